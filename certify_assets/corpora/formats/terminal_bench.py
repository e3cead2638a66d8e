"""Terminal-Bench runs (`tb run`): a folder a trial with results.json and its terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Drafts, Reading, corpus_format
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import Record, begins, inside, mapping, named, text_of
from certify_assets.corpora.formats.terminal_text import (
    cast_text,
    plain_text,
    steps_of_terminal,
    unwrapped,
)
from certify_assets.corpora.trajectory import Step

# in the order of preference; each is gone through on its own, so that no two texts of a trial are
# held at once
_TERMINALS = ("panes/post-agent.txt", "sessions/agent.log", "sessions/agent.cast")
_RESULTS, _ABOUT = "results.json", "run_metadata.json"
# post-test pane, recordings of tests and commands.txt, whose last lines start the tests, are never
# opened
_UNREAD = re.compile(
    r"(?:post-agent|pre-agent|post-test|commands)\.txt|(?:agent|tests)\.(?:log|cast)"
)
_SUBMISSION = re.compile(r"\d{8}_(.+)")


class _Trial(NamedTuple):
    # its file and its place in it
    where: str
    identity: str | None
    name: str
    task: str
    instruction: str
    resolved: Any


def _path(file: SourceFile) -> PurePosixPath:
    return PurePosixPath(file.plain_name)


def _fits(file: SourceFile) -> bool:
    marks = b'"task_id"', b'"trial_name"'
    return _path(file).name == _RESULTS and begins(file, b"{", *marks)


@corpus_format(
    title="Terminal-Bench runs (results.json of trials with their panes or recordings)",
    suffixes=(".json", ".txt", ".log", ".cast"),
    domain="shell",
    fits=_fits,
    label_source="tests of the task, run by the harness in the container after the agent",
    options={
        "agent": "agent of all runs; read from the path or run_metadata.json where it is not given"
    },
)
def terminal_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read trials with their terminal recordings."""
    # trials by their folder, and those that only their run lists, by its folder and their name
    own: dict[str, _Trial] = {}
    listed: dict[tuple[str, str], _Trial] = {}
    agents: dict[str, str] = {}
    # folders that hold a terminal of a kind
    recorded: dict[str, set[str]] = {kind: set() for kind in _TERMINALS}
    for file in files:
        path = _path(file)
        folder, kind = str(path.parent), "/".join(path.parts[-2:])
        if kind in recorded:
            recorded[kind].add(str(path.parent.parent))
        elif path.name == _ABOUT:
            for _, document in reading.documents([file]):
                parts = (text_of(inside(document, key)) for key in ("agent_name", "model_name"))
                agents[folder] = "_".join(part.replace("/", "-") for part in parts if part)
        elif path.name == _RESULTS:
            for _, document in reading.documents([file]):
                rows, has_folder = _results(mapping(document))
                if not rows:
                    reading.other(file.name)
                for trial in _trials(file, rows, reading):
                    if has_folder:
                        own[folder] = trial
                    else:
                        listed[folder, trial.name] = trial
        elif not _UNREAD.fullmatch(path.name):
            reading.other(file.name)
    # by the id of a trial, where the first with that id was
    first: dict[str, str] = {}

    def is_copy(trial: _Trial) -> bool:
        original = first.setdefault(trial.identity or trial.where, trial.where)
        if original == trial.where:
            return False
        said = f"{trial.where} is a copy of {original}: it has its id."
        reading.drop("duplicate", said)
        return True

    # folders and trials that are done with
    done: set[str] = set()
    for kind in _TERMINALS:
        # an archive is unpacked again for every kind
        if recorded[kind] <= done:
            continue
        for file in files.matching(f"*/{kind}"):
            place = _path(file).parent.parent
            folder = str(place)
            if folder in done:
                continue
            above = (listed.get((str(run), place.name)) for run in place.parents)
            held = own.get(folder) or next(filter(None, above), None)
            if held is None:
                said = f"{file.name} belongs to no trial that a results.json names."
                reading.drop("no_label", said)
                done.add(folder)
            elif steps := _steps(file, held.instruction, reading):
                done |= {folder, held.where}
                if not is_copy(held):
                    yield Draft(
                        task_id=held.task,
                        agent=str(reading.options.get("agent") or _agent(place, agents)),
                        instruction=held.instruction,
                        steps=steps,
                        outcome=held.resolved,
                        outcome_name="is_resolved",
                        origin=reading.origin(file),
                        trajectory_id=held.identity,
                    )
    with_folder = {
        (str(run), trial.name)
        for folder, trial in own.items()
        for run in PurePosixPath(folder).parents
    }
    alone = (trial for place, trial in listed.items() if place not in with_folder)
    for trial in (*own.values(), *alone):
        if trial.where not in done and not is_copy(trial):
            if trial.resolved is None and not reading.options.get("keep_unlabelled"):
                reason, has = "no_label", "no outcome, and"
            else:
                reason, has = "no_trajectory", "an outcome, but"
            said = f"{has} nothing was recorded of the trial {trial.name}."
            reading.drop(reason, f"{trial.where} has {said}")


def _results(document: Record) -> tuple[list[Any], bool]:
    """Return the results in a document, and whether it is that of one trial in its folder."""
    if isinstance(document.get("results"), list):
        return document["results"], False
    # a trial that was not checked has no is_resolved
    is_trial = not {"trial_name", "is_resolved"}.isdisjoint(document)
    return [document] if is_trial else [], True


def _trials(file: SourceFile, records: list[Any], reading: Reading) -> Iterator[_Trial]:
    """Read the results of trials; count those that name no task or trial."""
    for row, record in enumerate(map(mapping, records), 1):
        name, task = record.get("trial_name"), named(record.get("task_id"))
        where = reading.origin(file, row)
        if task is None or not isinstance(name, str):
            reading.unusable(where, "it lacks task_id or trial_name")
            continue
        yield _Trial(
            where=str(where),
            identity=named(record.get("id")),
            name=name,
            task=task,
            instruction=text_of(record.get("instruction")),
            resolved=record.get("is_resolved"),
        )


def _agent(folder: PurePosixPath, agents: Mapping[str, str]) -> str:
    """Name the agent by its submission, <date>_<agent>_<model>, or by run_metadata.json."""
    submitted = (_SUBMISSION.fullmatch(parent.name) for parent in folder.parents)
    if match := next(filter(None, submitted), None):
        return match[1]
    said = (agents.get(str(parent)) for parent in folder.parents)
    return next(filter(None, said), "unknown")


def _steps(file: SourceFile, instruction: str, reading: Reading) -> tuple[Step, ...]:
    try:
        text = file.read().decode("utf-8", "replace")
    except BrokenFileError as error:
        reading.drop("file_unreadable", str(error))
        return ()
    plain = plain_text(cast_text(text) if file.suffix == ".cast" else text)
    # a pane is the screen: its long lines are broken at the width of the terminal
    return steps_of_terminal(unwrapped(plain) if file.suffix == ".txt" else plain, instruction)
