"""What the formats of code repair share: instance ids, issue texts, and harness reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Reading, contents, words
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.records import is_object_with, one_object

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
_NO_SETUP = ("install_fail", "reset_failed")
# where a run has more than one report, the first of these speaks for it
_RANKS = words(
    "new_eval_results/report.json results/results.json results.json report.json final_report.json"
)


class Unlabelled(NamedTuple):
    """Why a run has no outcome."""

    reason: str
    words: str


@dataclass(frozen=True, slots=True)
class _Report:
    """One report of a harness on the runs of a folder."""

    name: str
    resolved: frozenset[str]
    # every instance that it names, so that others count as never evaluated; None where it names
    # only those that got somewhere
    counted: frozenset[str] | None
    # instances whose environment could not be set up
    no_setup: frozenset[str]
    submitted: Any
    total: Any

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Order of the reports of one folder, the one that speaks for it first."""
        endings = [f"/{self.name}".endswith(f"/{ending}") for ending in _RANKS]
        place = endings.index(True) if any(endings) else len(_RANKS)
        return "old_eval_results/" in self.name, place, self.name

    def outcome(self, task: str) -> int | Unlabelled:
        """Return the outcome of a run that exists."""
        if task in self.resolved:
            return 1
        if task in self.no_setup:
            return Unlabelled(
                "infrastructure_error",
                f"was not evaluated: {self.name} says that its environment could not be set up",
            )
        if self.counted is not None and task not in self.counted:
            return Unlabelled("not_evaluated", f"is not among the instances that {self.name} names")
        return 0


class Reports:
    """Outcomes of runs by the reports of a harness, each of which is on the runs of its folder.

    Parameters
    ----------
    files : FileSet
        Where the reports are.
    reading : Reading
        Counts reports that are not believed, and resolved instances whose runs are not here.
    runs : iterable of pairs
        File and task of every run; gone through only where there is a report.
    """

    def __init__(self, files: FileSet, reading: Reading, runs: Iterable[tuple[str, str]]) -> None:
        self._keep_unlabelled = bool(reading.options.get("keep_unlabelled"))
        self._by_folder: dict[str, _Report] = {}
        passed_over: Counter[str] = Counter()
        for folder, report in _reports(files, reading):
            known = self._by_folder.setdefault(folder, report)
            passed_over[folder] += known is not report
            self._by_folder[folder] = min(known, report, key=lambda found: found.rank)
        named = ((self._report(name), task) for name, task in runs) if self._by_folder else ()
        self._runs = Counter((report.name, task) for report, task in named if report)
        self._per_report: Counter[str] = Counter()
        for (name, _), count in self._runs.items():
            self._per_report[name] += count
        for folder, report in self._by_folder.items():
            if problem := self._rejected(report):
                reading.drop(
                    "run_rejected",
                    f"{problem}; import the run with the report of its full evaluation.",
                )
            elif self._per_report[report.name]:
                missing = sum((report.name, task) not in self._runs for task in report.resolved)
                reading.notes["resolved instances whose runs are not here"] += missing
                note = "reports passed over for another of the same run"
                reading.notes[note] += passed_over[folder]
        # what came to nothing is no note
        reading.tally.notes += Counter()

    def _report(self, name: str) -> _Report | None:
        """Return the nearest report above a file."""
        above = (self._by_folder.get(folder) for folder in parents(name))
        return next(filter(None, above), None)

    def _rejected(self, report: _Report) -> str | None:
        """Say why a report covers too little of its run to be believed about the rest."""
        runs = self._per_report[report.name]
        if type(report.submitted) is not int:
            return None
        total = report.total if type(report.total) is int else 0
        if 2 * report.submitted >= (runs or total):
            return None
        whole = f"{runs} runs" if runs else f"{total} instances"
        return f"{report.name} reports on {report.submitted} of {whole}"

    def outcome(self, name: str, task: str) -> int | Unlabelled | None:
        """Return the outcome of a file's run; None where no report says it and runs are kept."""
        found = self._outcome(name, task)
        return None if self._keep_unlabelled and isinstance(found, Unlabelled) else found

    def _outcome(self, name: str, task: str) -> int | Unlabelled | None:
        report = self._report(name)
        if report is None:
            return None
        if problem := self._rejected(report):
            return Unlabelled("not_evaluated", f"was not evaluated: {problem}")
        if (number := self._runs[report.name, task]) > 1:
            return Unlabelled(
                "ambiguous_label",
                f"is one of {number} runs of one instance, of which {report.name} judges one",
            )
        return report.outcome(task)


def _reports(files: FileSet, reading: Reading) -> Iterator[tuple[str, _Report]]:
    """Go through the reports, each with the folder that it is on."""
    for file, data in contents(files.matching("*.json", "*.json.gz"), reading):
        if b'"resolved' not in data or not is_object_with(data, ()):
            continue
        document = one_object(data)
        if isinstance(document, str):
            reading.sha256(file)
            reading.drop(
                "file_unreadable",
                f"{file.name} seems to hold outcomes and cannot be read: {document}; fetch it "
                "again.",
            )
            continue
        keys = ("resolved", "resolved_ids", *_COUNTED, *_NO_SETUP)
        lists = {key: _ids(document[key]) for key in keys if isinstance(document.get(key), list)}
        resolved = lists.get("resolved", lists.get("resolved_ids"))
        if resolved is None:
            continue
        reading.sha256(file)
        counted = [lists[name] for name in _COUNTED if name in lists]
        above = (
            folder
            for folder in parents(file.name)
            if not _REPORT_FOLDER.fullmatch(PurePosixPath(folder).name)
        )
        yield (
            next(above),
            _Report(
                name=file.name,
                resolved=resolved,
                counted=resolved.union(*counted) if counted else None,
                no_setup=frozenset().union(*(lists.get(name, ()) for name in _NO_SETUP)),
                submitted=document.get("submitted_instances"),
                total=document.get("total_instances"),
            ),
        )


def _ids(values: list[Any]) -> frozenset[str]:
    return frozenset(task_of(value) for value in values if isinstance(value, str))


def task_of(identity: str) -> str:
    """Return an instance id in the spelling of SWE-bench: apache__dubbo-10638."""
    match = _NEW_ID.fullmatch(identity)
    return f"{match[1]}__{match[2]}-{match[3]}" if match else identity


def issue_text(prompt: str) -> str:
    """Return the issue in a prompt, without the harness's instructions around it."""
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
