"""Shared parts of the code repair formats: instance ids, issue texts, and harness reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import LeftOutError, Reading, words
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import listed, mapping

_NEW_ID = re.compile(r"([^/\s]+?)(?:/|__)([^/\s]+?)(?::pr-|_pr-)(\d+)")
_REPORT_FOLDER = re.compile(r"results|reports?|evaluation|\w*eval_results")
_TAGS = re.compile(
    r"<(issue|issue_description|pr_description|problem_statement)>(.*?)</\1>", re.DOTALL
)
_ISSUE = re.compile(r"(?:\A|\n)ISSUE:\n(.*?)(?:\n\s*INSTRUCTIONS:\n|\Z)", re.DOTALL)
# lists by which a report shows that it knows of an instance
_COUNTED = words(
    "submitted_ids completed_ids incomplete_ids unresolved_ids empty_patch_ids error_ids"
)
# instances whose environment could not be set up
_NO_SETUP = ("install_fail", "reset_failed")


@dataclass(frozen=True, slots=True)
class _Report:
    """A harness's report on the runs of a folder."""

    name: str
    resolved: frozenset[str]
    # every instance that it names, so that others count as never evaluated; empty where it names
    # only those that got somewhere
    counted: frozenset[str]
    no_setup: frozenset[str]
    submitted: Any
    total: Any

    def outcome(self, task: str) -> int:
        """Return the outcome of a run that exists."""
        if task in self.resolved:
            return 1
        if task in self.no_setup:
            raise LeftOutError(
                f"was not evaluated: {self.name} says that its environment could not be set up",
                "infrastructure_error",
            )
        if self.counted and task not in self.counted:
            said = f"is not among the instances that {self.name} names"
            raise LeftOutError(said, "not_evaluated")
        return 0

    def rejected(self, runs: int) -> str:
        """Say why a report covers too little of its evaluation to be used."""
        whole = f"{runs} runs" if runs else f"{self.total} instances"
        if type(self.submitted) is not int or 2 * self.submitted >= (runs or int(self.total or 0)):
            return ""
        return f"{self.name} reports on {self.submitted} of {whole}"


class Reports:
    """Outcomes of runs by the reports of a harness; each report covers the runs of its folder.

    Parameters
    ----------
    files : FileSet
        Where the reports are.
    reading : Reading
        Counts reports that are not used, and resolved instances whose runs are missing.
    runs : iterable of pairs
        File and task of every run; read only if there is a report.
    """

    def __init__(self, files: FileSet, reading: Reading, runs: Iterable[tuple[str, str]]) -> None:
        self._keep_unlabelled = bool(reading.options.get("keep_unlabelled"))
        self._by_folder: dict[str, _Report] = {}
        # where a folder has more than one, the newest of the names that harnesses use
        for folder, report in sorted(_reports(files, reading), key=_rank):
            self._by_folder.setdefault(folder, report)
        named = ((self._report(name), task) for name, task in runs) if self._by_folder else ()
        self._runs = Counter((report.name, task) for report, task in named if report)
        for report in self._by_folder.values():
            if problem := report.rejected(self._runs_of(report)):
                reading.drop(
                    "run_rejected",
                    f"{problem}; import the run with the report of its full evaluation.",
                )
            elif self._runs_of(report):
                missing = sum((report.name, task) not in self._runs for task in report.resolved)
                if missing:
                    reading.notes["resolved instances whose runs are not here"] += missing

    def _report(self, name: str) -> _Report | None:
        """Return the nearest report above a file."""
        above = (self._by_folder.get(folder) for folder in parents(name))
        return next(filter(None, above), None)

    def _runs_of(self, report: _Report) -> int:
        return sum(count for (name, _), count in self._runs.items() if name == report.name)

    def outcome(self, name: str, task: str) -> int | None:
        """Return the outcome of a file's run, None if no report states it.

        LeftOutError says why there is none, unless runs without an outcome are kept.
        """
        try:
            return self._outcome(name, task)
        except LeftOutError:
            if self._keep_unlabelled:
                return None
            raise

    def _outcome(self, name: str, task: str) -> int | None:
        report = self._report(name)
        if report is None:
            return None
        if problem := report.rejected(self._runs_of(report)):
            raise LeftOutError(f"was not evaluated: {problem}", "not_evaluated")
        if (number := self._runs[report.name, task]) > 1:
            said = f"is one of {number} runs of one instance, and {report.name} judges only one"
            raise LeftOutError(said, "ambiguous_label")
        return report.outcome(task)


def _rank(found: tuple[str, _Report]) -> tuple[bool, bool, str]:
    name = found[1].name
    return "old_eval_results/" in name, not name.endswith("results.json"), name


def _reports(files: FileSet, reading: Reading) -> Iterator[tuple[str, _Report]]:
    """Iterate over the reports, each with its folder."""
    for file in filter(_may_be_report, files.matching("*.json")):
        reading.origin(file)
        document = mapping(next((found for _, found in reading.documents([file])), {}))
        resolved = document.get("resolved", document.get("resolved_ids"))
        if isinstance(resolved, list):
            counted = [_ids(document[key]) for key in _COUNTED if key in document]
            report = _Report(
                name=file.name,
                resolved=_ids(resolved),
                counted=_ids(resolved).union(*counted) if counted else frozenset(),
                no_setup=frozenset().union(*(_ids(document.get(key)) for key in _NO_SETUP)),
                submitted=document.get("submitted_instances"),
                total=document.get("total_instances"),
            )
            above = (PurePosixPath(folder) for folder in parents(file.name))
            yield str(next(one for one in above if not _REPORT_FOLDER.fullmatch(one.name))), report


def _may_be_report(file: SourceFile) -> bool:
    with suppress(BrokenFileError):
        return b'"resolved' in file.read()
    return False


def _ids(values: Any) -> frozenset[str]:
    return frozenset(task_of(value) for value in listed(values) if isinstance(value, str))


def task_of(identity: str) -> str:
    """Return an instance id in the spelling of SWE-bench: apache__dubbo-10638."""
    match = _NEW_ID.fullmatch(identity)
    return f"{match[1]}__{match[2]}-{match[3]}" if match else identity


def issue_text(prompt: str) -> str:
    """Return the issue in a prompt, without the harness's instructions."""
    if match := _TAGS.search(prompt):
        return match[2].strip()
    match = _ISSUE.search(prompt)
    return (match[1] if match else prompt).strip()


def parents(name: str) -> list[str]:
    """Return the folders above a file, the nearest first."""
    return [parent.as_posix() for parent in PurePosixPath(name).parents]


def run_name(name: str) -> str:
    """Return the folder that names the run a file belongs to."""
    path = PurePosixPath(name)
    names = (parent.name for parent in path.parents)
    return next(
        (part for part in names if part and part not in (path.stem, "trajs", "trajectories")),
        "unknown",
    )
