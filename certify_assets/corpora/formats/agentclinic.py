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
    contents,
    corpus_format,
    excerpt,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.records import HEAD, decode, is_object_with, one_object
from certify_assets.corpora.formats.texts import mapping
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

_MARKS = (re.compile(rb'"scenario_id"\s*:'), re.compile(rb'"dialogue"\s*:\s*\['))
_STAMP = re.compile(r"^\d{8}T\d{6}Z?[-_]")
_MIN_CASES = 10


def _fits(file: SourceFile) -> bool:
    return is_object_with(file.head(HEAD), _MARKS)


@corpus_format(
    title="AgentClinic runs (folder of cases, one JSON object a case)",
    suffixes=(".json",),
    domain="medicine",
    fits=_fits,
    label_source="a moderator model's comparison of the doctor's diagnosis with the case's",
    options={"min_cases": f"smallest run to read, in cases; {_MIN_CASES} where it is not given"},
    leak_fields=(
        "correct_diagnosis",
        "score",
        "answer_options",
        "findings",
        "refusals",
        "diagnostics",
        "doctor_turns",
        "dialogue[].payload",
        "dialogue[].kind",
        "dialogue[].refusal",
    ),
)
def agentclinic(files: Files, reading: Reading) -> Iterator[Draft]:
    """Hold the first cases of every run back until it has enough of them."""
    enough, held = _min_cases(reading), dict[str, list[Draft]]()
    counts: dict[str, int] = {}
    for file, data in contents(files, reading):
        if not is_object_with(data[:HEAD], _MARKS):
            reading.tally.other(
                file.name, f"{file.name} is not a JSON object with scenario_id and dialogue."
            )
            continue
        run = _run(file.name)
        counts[run] = counts.get(run, 0) + 1
        held.setdefault(run, []).extend(_case(file, decode(data), reading))
        if counts[run] >= enough:
            yield from held[run]
            held[run].clear()
    for run, drafts in held.items():
        for draft in drafts:
            sentence = (
                f"{draft.source_file} is of a run with {counts[run]} cases; keep runs below "
                f"{enough} with the option min_cases."
            )
            reading.tally.drop("small_run", sentence)


def _min_cases(reading: Reading) -> int:
    given = str(reading.options.get("min_cases", _MIN_CASES))
    if not given.isdecimal():
        raise InputError(f"the option min_cases is {given!r}; give a whole number of cases.")
    return int(given)


def _case(file: SourceFile, text: str, reading: Reading) -> Iterator[Draft]:
    record = one_object(text)
    problem = record if isinstance(record, str) else _problem(record)
    if problem or isinstance(record, str):
        reading.tally.drop("unreadable_record", f"{file.name} row 1 cannot be used: {problem}.")
    elif record.get("infra_fail") or record.get("error"):
        reading.tally.drop(
            "infrastructure_error",
            f"{file.name} row 1 broke down for reasons that are not the agent's.",
        )
    elif not (steps := _steps(record["dialogue"], reading)):
        reading.tally.drop("no_trajectory", f"{file.name} row 1 has no dialogue.")
    else:
        case = _task(record)
        yield Draft(
            task_id=case,
            agent=_STAMP.sub("", PurePosixPath(_run(file.name)).name),
            # the record holds no prompt; without the case, all cases would have one instruction
            instruction=f"Find the diagnosis of the patient of case {case} by questions and tests.",
            steps=steps,
            outcome=_outcome(mapping(record.get("score")).get("correctness")),
            source_file=file.name,
            source_sha256=reading.sha256(file),
            row=1,
        )


def _problem(record: Mapping[str, Any]) -> str | None:
    case, dialogue = record.get("scenario_id"), record.get("dialogue")
    if isinstance(case, bool) or not isinstance(case, int | str) or case == "":
        return f"its scenario_id is {case!r}"
    if not isinstance(dialogue, list) or not all(isinstance(turn, Mapping) for turn in dialogue):
        return "its dialogue is not a list of turns"
    return None


def _run(name: str) -> str:
    folder = PurePosixPath(name).parent
    return str(folder.parent if folder.name == "cases" else folder)


def _task(record: Mapping[str, Any]) -> str:
    case, dataset = str(record["scenario_id"]), str(record.get("dataset") or "")
    return case if not dataset or case.startswith(dataset) else f"{dataset}-{case}"


def _steps(dialogue: list[Mapping[str, Any]], reading: Reading) -> tuple[Step, ...]:
    """What the doctor said, then what patient and measurements answered."""
    steps: list[tuple[str, list[str]]] = []
    for turn in dialogue:
        role, text = turn.get("role"), turn.get("text") if isinstance(turn.get("text"), str) else ""
        if role == "doctor":
            steps.append((str(text), []))
        elif role in ("patient", "measurement"):
            if not steps:
                steps.append(("", []))
            steps[-1][1].append(f"{role}: {text}")
        else:
            reading.tally.notes["turns of another role left out"] += 1
    return tuple(Step(excerpt(said), excerpt("\n".join(answers))) for said, answers in steps)


def _outcome(correct: Any) -> int | None:
    return int(correct) if isinstance(correct, bool) or correct in (0, 1) else None
