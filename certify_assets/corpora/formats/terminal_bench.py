"""Terminal-Bench runs (`tb run`): a folder a trial with results.json and its terminal."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Drafts, Reading, corpus_format
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import Record, begins, mapping, named, text_of
from certify_assets.corpora.formats.terminal_text import (
    cast_text,
    plain_text,
    steps_of_terminal,
    unwrapped,
)
from certify_assets.corpora.schema import Step

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
    trials = _Trials(files, reading)
    # folders and trials that are done with
    done: set[str] = set()
    for kind in _TERMINALS:
        # an archive is unpacked again for every kind
        if trials.recorded[kind] <= done:
            continue
        for file in files.matching(f"*/{kind}"):
            folder = str(_path(file).parent.parent)
            if folder in done:
                continue
            trial = trials.of(folder)
            if trial is None:
                words = "belongs to no trial that a results.json names."
                reading.drop("no_label", f"{file.name} {words}")
                done.add(folder)
            elif steps := _steps(file, trial.instruction, reading):
                done |= {folder, trial.where}
                if not trials.is_copy(trial):
                    yield Draft(
                        task_id=trial.task,
                        agent=str(reading.options.get("agent") or trials.agent(folder)),
                        instruction=trial.instruction,
                        steps=steps,
                        outcome=trial.resolved,
                        outcome_name="is_resolved",
                        origin=reading.origin(file),
                        trajectory_id=trial.identity,
                    )
    for trial in trials.each():
        if trial.where not in done and not trials.is_copy(trial):
            if trial.resolved is None and not reading.options.get("keep_unlabelled"):
                reason, has = "no_label", "no outcome, and"
            else:
                reason, has = "no_trajectory", "an outcome, but"
            said = f"{has} nothing was recorded of the trial {trial.name}."
            reading.drop(reason, f"{trial.where} has {said}")


def _steps(file: SourceFile, instruction: str, reading: Reading) -> tuple[Step, ...]:
    try:
        text = file.read().decode("utf-8", "replace")
    except BrokenFileError as error:
        reading.drop("file_unreadable", str(error))
        return ()
    plain = plain_text(cast_text(text) if file.suffix == ".cast" else text)
    # a pane is the screen: its long lines are broken at the width of the terminal
    return steps_of_terminal(unwrapped(plain) if file.suffix == ".txt" else plain, instruction)


class _Trials:
    """All trials: those with a folder of their own, and those that only their run lists."""

    def __init__(self, files: FileSet, reading: Reading) -> None:
        #: folders that hold a terminal of a kind
        self.recorded: dict[str, set[str]] = {kind: set() for kind in _TERMINALS}
        self._reading = reading
        self._by_folder: dict[str, _Trial] = {}
        self._by_run: dict[tuple[str, str], _Trial] = {}
        self._agents: dict[str, str] = {}
        # by the id of a trial, where the first with that id was
        self._first: dict[str, str] = {}
        for file in files:
            path = _path(file)
            kind = "/".join(path.parts[-2:])
            if kind in self.recorded:
                self.recorded[kind].add(str(path.parent.parent))
            elif path.name in (_RESULTS, _ABOUT):
                for _, document in reading.documents([file]):
                    self._take(file, mapping(document))
            elif not _UNREAD.fullmatch(path.name):
                reading.other(file.name)

    def _take(self, file: SourceFile, found: Record) -> None:
        folder = str(_path(file).parent)
        if _path(file).name == _ABOUT:
            parts = (text_of(found.get(key)) for key in ("agent_name", "model_name"))
            self._agents[folder] = "_".join(part.replace("/", "-") for part in parts if part)
        elif isinstance(found.get("results"), list):
            for row, record in enumerate(found["results"], 1):
                if trial := self._trial(file, row, mapping(record)):
                    self._by_run[folder, trial.name] = trial
        # a trial that was not checked has no is_resolved
        elif not {"trial_name", "is_resolved"}.isdisjoint(found):
            if trial := self._trial(file, 1, found):
                self._by_folder[folder] = trial
        else:
            self._reading.other(file.name)

    def _trial(self, file: SourceFile, row: int, record: Record) -> _Trial | None:
        name, task = record.get("trial_name"), named(record.get("task_id"))
        where = self._reading.origin(file, row)
        if task is None or not isinstance(name, str):
            self._reading.unusable(where, "it lacks task_id or trial_name")
            return None
        return _Trial(
            where=str(where),
            identity=named(record.get("id")),
            name=name,
            task=task,
            instruction=text_of(record.get("instruction")),
            resolved=record.get("is_resolved"),
        )

    def of(self, folder: str) -> _Trial | None:
        """Return the trial of a folder."""
        path = PurePosixPath(folder)
        above = (self._by_run.get((str(run), path.name)) for run in path.parents)
        return self._by_folder.get(folder) or next(filter(None, above), None)

    def each(self) -> list[_Trial]:
        """Return the trials, each once."""
        listed = {
            (str(run), trial.name)
            for folder, trial in self._by_folder.items()
            for run in PurePosixPath(folder).parents
        }
        alone = (trial for place, trial in self._by_run.items() if place not in listed)
        return [*self._by_folder.values(), *alone]

    def is_copy(self, trial: _Trial) -> bool:
        """Count a trial whose id another had before it."""
        original = self._first.setdefault(trial.identity or trial.where, trial.where)
        if original == trial.where:
            return False
        words = f"is a copy of {original}: it has its id."
        self._reading.drop("duplicate", f"{trial.where} {words}")
        return True

    def agent(self, folder: str) -> str:
        """Name the agent by its submission, <date>_<agent>_<model>, or by run_metadata.json."""
        above = PurePosixPath(folder).parents
        submitted = (_SUBMISSION.fullmatch(parent.name) for parent in above)
        if match := next(filter(None, submitted), None):
            return match[1]
        named = (self._agents.get(str(parent)) for parent in above)
        return next(filter(None, named), "unknown")
