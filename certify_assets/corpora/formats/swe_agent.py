"""SWE-agent (`<instance>.traj`) and mini-swe-agent (`<instance>.traj.json`) runs, with reports."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
)
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.messages import (
    first_prompt,
    from_first,
    joined,
    message_text,
    messages_of,
    steps_of_messages,
)
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    is_list_of_objects,
    mapping,
    objects,
)
from certify_assets.corpora.formats.swe_reports import (
    Reports,
    issue_text,
    parents,
    run_name,
    task_of,
)
from certify_assets.corpora.trajectory import Step

_RUNS = (".traj", ".traj.json")
_TRAJECTORY = re.compile(rb'"(?:trajectory|messages)"\s*:\s*\[')
_MODEL = re.compile(rb'"model_name_or_path"\s*:\s*"([^"\\]+)"')


def _is_run(file: SourceFile) -> bool:
    return str(file.path).lower().endswith(_RUNS)


@corpus_format(
    title="SWE-agent and mini-swe-agent runs (.traj, .traj.json) with SWE-bench reports",
    suffixes=(".traj", ".json", ".jsonl"),
    domain="software",
    fits=lambda file: _is_run(file) and bool(_TRAJECTORY.search(file.head(HEAD))),
    label_source="tests of the instance",
)
def swe_agent(files: FileSet, reading: Reading) -> Drafts:
    """Read trajectories, with outcomes from harness reports."""
    runs = files.matching(*(f"*{end}" for end in _RUNS))
    reports = Reports(files, reading, ((file.name, _task(file.name)) for file in runs))
    models: dict[str, str] = {}
    for file in files.matching("*all_preds.jsonl", "*preds.json"):
        if match := _MODEL.search(file.head(HEAD)):
            reading.origin(file)
            models[parents(file.name)[0]] = match[1].decode("utf-8", "replace")

    def draft(record: Record, origin: Origin) -> Draft:
        said = mapping(record).get("trajectory", mapping(record).get("messages"))
        if not isinstance(said, list) or not is_list_of_objects(said):
            raise LeftOutError("it is not an object whose trajectory is a list of steps")
        if "trajectory" in record:
            instruction, steps = _instruction(record), tuple(filter(None, map(_step, said)))
        else:
            chat = messages_of(said)
            steps = steps_of_messages(from_first(chat, "assistant"), reading)
            instruction = issue_text(first_prompt(chat))
        task = _task(origin.file)
        called = (models.get(folder) for folder in parents(origin.file))
        agent = next(filter(None, called), None) or run_name(
            origin.file.removesuffix(".gz").removesuffix(".json")
        )
        return Draft(task, agent, instruction, steps, reports.outcome(origin.file, task), origin)

    found = reading.documents(files, _is_run)
    yield from reading.runs(((reading.origin(file), record) for file, record in found), draft)


def _task(name: str) -> str:
    plain = PurePosixPath(name).name.removesuffix(".gz").removesuffix(".json")
    return task_of(plain.removesuffix(".traj"))


def _step(step: Record) -> Step | None:
    texts = (message_text(step.get(name)).strip() for name in ("thought", "action"))
    said = joined(*texts) or message_text(step.get("response"))
    seen = message_text(step.get("observation"))
    return Step(said, seen) if said or seen else None


def _instruction(record: Record) -> str:
    """Return the issue: the user's first message that is not a demonstration of another task."""
    for message in objects(record.get("history")):
        if message.get("role") == "user" and not message.get("is_demo"):
            text = message_text(message.get("content"))
            if "--- DEMONSTRATION ---" not in text:
                return issue_text(text)
    return ""
