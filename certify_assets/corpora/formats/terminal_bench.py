"""Terminal-Bench runs (`tb run`): a folder for each trial, with results.json and its terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Drafts, Reading, corpus_format
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    inside,
    listed,
    mapping,
    named,
    text_of,
)
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


#: the folder above a trial, or one further up, and the name of the trial
_Key = tuple[str, str]


class _Trial(NamedTuple):
    # its file and its place in it
    where: str
    identity: str | None
    name: str
    task: str
    instruction: str
    resolved: Any


class _Run(NamedTuple):
    """The results of a run, and the trials that have a terminal of a kind."""

    trials: dict[_Key, _Trial]
    # by the folder of a run
    agents: dict[str, str]
    recorded: dict[str, set[_Key]]


def _keys(folder: PurePosixPath, name: str) -> list[_Key]:
    """Return the keys by which results may name the trial of a folder, its own first."""
    return [(str(above), name) for above in folder.parents]


def _fits(file: SourceFile) -> bool:
    marks = b'"task_id"', b'"trial_name"'
    return file.path.name == _RESULTS and begins(file, b"{", *marks)


@corpus_format(
    title="Terminal-Bench runs (results.json of trials with their panes or recordings)",
    suffixes=(".json", ".txt", ".log", ".cast"),
    domain="shell",
    fits=_fits,
    label_source="tests of the task",
    options={
        "agent": "agent of all runs; read from the path or run_metadata.json where it is not given"
    },
)
def terminal_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read trials with their terminal recordings."""
    trials, agents, recorded = _results(files, reading)
    done: set[_Key] = set()
    # by the id of a trial, where the first with that id was
    first: dict[str, str] = {}

    def is_copy(trial: _Trial) -> bool:
        original = first.setdefault(trial.identity or trial.where, trial.where)
        if original == trial.where:
            return False
        said = f"{trial.where} is a copy of {original}: both have the same id."
        reading.drop("duplicate", said)
        return True

    for kind in _TERMINALS:
        # an archive is unpacked again for every kind
        if recorded[kind] <= done:
            continue
        for file in files.matching(f"*/{kind}"):
            folder = file.path.parent.parent
            keys = _keys(folder, folder.name)
            if keys[0] in done:
                continue
            trial = next((trials[key] for key in keys if key in trials), None)
            if trial is None:
                said = f"{file.name} belongs to no trial that a results.json names."
                reading.drop("no_label", said)
                done.add(keys[0])
            elif steps := _steps(file, trial.instruction, reading):
                done.update(keys, _keys(folder, trial.name))
                if not is_copy(trial):
                    yield Draft(
                        task_id=trial.task,
                        agent=str(reading.options.get("agent") or _agent(folder, agents)),
                        instruction=trial.instruction,
                        steps=steps,
                        outcome=trial.resolved,
                        outcome_name="is_resolved",
                        origin=reading.origin(file),
                        trajectory_id=trial.identity,
                    )
    # the results of a run list the trials of its folders again
    for key in sorted(trials, key=lambda key: -len(PurePosixPath(key[0]).parts)):
        trial = trials[key]
        if key not in done and not is_copy(trial):
            unlabelled = trial.resolved is None and not reading.options.get("keep_unlabelled")
            has = "no outcome, and" if unlabelled else "an outcome, but"
            said = f"{trial.where} has {has} nothing was recorded of the trial {trial.name}."
            reading.drop("no_label" if unlabelled else "no_trajectory", said)
        done.update(_keys(PurePosixPath(*key), trial.name))


def _results(files: FileSet, reading: Reading) -> _Run:
    """Read the results and the agents of runs, and list the terminals."""
    found = _Run({}, {}, {kind: set() for kind in _TERMINALS})
    for file in files:
        path = file.path
        kind = "/".join(path.parts[-2:])
        if kind in found.recorded:
            folder = path.parent.parent
            found.recorded[kind].add(_keys(folder, folder.name)[0])
        elif path.name == _ABOUT:
            for _, document in reading.documents([file]):
                parts = (text_of(inside(document, key)) for key in ("agent_name", "model_name"))
                names = (part.replace("/", "-") for part in parts if part)
                found.agents[str(path.parent)] = "_".join(names)
        elif path.name == _RESULTS:
            for _, document in reading.documents([file]):
                found.trials.update(_trials(file, mapping(document), reading))
        elif not _UNREAD.fullmatch(path.name):
            reading.other(file.name)
    return found


def _trials(file: SourceFile, document: Record, reading: Reading) -> Iterator[tuple[_Key, _Trial]]:
    """Read the results of a run, or of one trial in its folder; count results without a name."""
    folder, rows = file.path.parent, document.get("results")
    is_run = isinstance(rows, list)
    # a trial that was not checked has no is_resolved
    if not is_run and {"trial_name", "is_resolved"}.isdisjoint(document):
        reading.other(file.name)
        return
    for row, record in enumerate(map(mapping, listed(rows) if is_run else [document]), 1):
        name, task = record.get("trial_name"), named(record.get("task_id"))
        where = reading.origin(file, row)
        if task is None or not isinstance(name, str):
            reading.unusable(where, "it lacks task_id or trial_name")
            continue
        key = (str(folder), name) if is_run else (str(folder.parent), folder.name)
        yield (
            key,
            _Trial(
                where=str(where),
                identity=named(record.get("id")),
                name=name,
                task=task,
                instruction=text_of(record.get("instruction")),
                resolved=record.get("is_resolved"),
            ),
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
