"""AgentClinic runs: a folder a run, in it ``cases`` with the dialogue of each case as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    begins_with,
    corpus_format,
    json_objects,
    usable,
    words,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.records import one_object
from certify_assets.corpora.formats.texts import (
    Conversation,
    is_id,
    is_list_of_objects,
    mapping,
    text_of,
)
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

_MARKS = (re.compile(rb'"scenario_id"\s*:'), re.compile(rb'"dialogue"\s*:\s*\['))
_STAMP = re.compile(r"^\d{8}T\d{6}Z?[-_]")
# Small runs are those that are made while a benchmark is set up, often with other settings.
_MIN_CASES = 10


@corpus_format(
    title="AgentClinic runs (folder of cases, one JSON object a case)",
    suffixes=(".json",),
    domain="medicine",
    fits=begins_with(*_MARKS),
    label_source="a moderator model's comparison of the doctor's diagnosis with the case's",
    options={"min_cases": f"smallest run to read, in cases; {_MIN_CASES} where it is not given"},
    leak_fields=words(
        "correct_diagnosis score answer_options findings refusals diagnostics "
        "doctor_turns dialogue[].payload dialogue[].kind dialogue[].refusal"
    ),
)
def agentclinic(files: Files, reading: Reading) -> Iterator[Draft]:
    """Hold the first cases of every run back until it has enough of them."""
    enough, held = _min_cases(reading), dict[str, list[Draft]]()
    counts: dict[str, int] = {}
    for file, text in json_objects(files, _MARKS, "with scenario_id and dialogue", reading):
        run = _run(file.name)
        counts[run] = counts.get(run, 0) + 1
        held.setdefault(run, []).extend(_case(file, text, reading))
        if counts[run] >= enough:
            yield from held[run]
            held[run].clear()
    for run, drafts in held.items():
        for draft in drafts:
            sentence = (
                f"{draft.origin.file} is of a run with {counts[run]} cases; keep runs below "
                f"{enough} with the option min_cases."
            )
            reading.drop("small_run", sentence)


def _min_cases(reading: Reading) -> int:
    given = str(reading.options.get("min_cases", _MIN_CASES))
    if not given.isdecimal():
        raise InputError(f"the option min_cases is {given!r}; give a whole number of cases.")
    return int(given)


def _case(file: SourceFile, text: str, reading: Reading) -> Iterator[Draft]:
    record = usable(one_object(text), f"{file.name} row 1", reading, _problem)
    if record is None:
        return
    if record.get("infra_fail") or record.get("error"):
        reading.drop(
            "infrastructure_error",
            f"{file.name} row 1 broke down for reasons that are not the agent's.",
        )
    elif not (steps := _steps(record["dialogue"], reading)):
        reading.drop("no_trajectory", f"{file.name} row 1 has no dialogue.")
    else:
        case = _task(record)
        yield Draft(
            task_id=case,
            agent=_STAMP.sub("", PurePosixPath(_run(file.name)).name),
            # the record holds no prompt; without the case, all cases would have one instruction
            instruction=f"Find the diagnosis of the patient of case {case} by questions and tests.",
            steps=steps,
            outcome=_outcome(mapping(record.get("score")).get("correctness")),
            origin=reading.origin(file),
        )


def _problem(record: Mapping[str, Any]) -> str | None:
    if not is_id(case := record.get("scenario_id")):
        return f"its scenario_id is {case!r}"
    if not is_list_of_objects(record.get("dialogue")):
        return "its dialogue is not a list of turns"
    return None


def _run(name: str) -> str:
    # the folder without its time stamp names the agent
    folder = PurePosixPath(name).parent
    return str(folder.parent if folder.name == "cases" else folder)


def _task(record: Mapping[str, Any]) -> str:
    case, dataset = str(record["scenario_id"]), str(record.get("dataset") or "")
    return case if not dataset or case.startswith(dataset) else f"{dataset}-{case}"


def _steps(dialogue: list[Mapping[str, Any]], reading: Reading) -> tuple[Step, ...]:
    talk = Conversation()
    for turn in dialogue:
        role, text = turn.get("role"), text_of(turn.get("text"))
        if role == "doctor":
            talk.act(text)
        elif role in ("patient", "measurement"):
            talk.see(f"{role}: {text}")
        else:
            reading.notes["turns of another role left out"] += 1
    return talk.steps()


def _outcome(correct: Any) -> int | None:
    return int(correct) if isinstance(correct, bool) or correct in (0, 1) else None
