"""What the formats of code repair share: instance ids, issue texts, and harness reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Draft, Reading, contents, words
from certify_assets.corpora.formats.files import FileSet, SourceFile
from certify_assets.corpora.formats.records import Record, decode, is_object_with, one_object
from certify_assets.corpora.schema import Step

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
class Report:
    """One report of a harness on the runs of a folder."""

    name: str
    # the folder that it is in, but for one that holds only reports, such as ``results``
    folder: str
    resolved: frozenset[str]
    # every instance that it names, so that others count as never evaluated; None where it names
    # only those that got somewhere
    counted: frozenset[str] | None = None
    # instances whose environment could not be set up
    no_setup: frozenset[str] = frozenset()
    submitted: int | None = None
    total: int | None = None

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


class ReportedOutcomes:
    """Outcomes of runs, by folder; see `collect_outcomes`."""

    def __init__(
        self,
        reports: Mapping[str, Report],
        runs: Iterable[tuple[str, str]],
        passed_over: Counter[str],
        *,
        keep_unlabelled: bool,
    ) -> None:
        self._reports, self._passed_over = reports, passed_over
        self._keep_unlabelled = keep_unlabelled
        # without reports the runs need not be known, which may be in long files
        found = (
            [(report.name, task) for name, task in runs if (report := self.report(name))]
            if reports
            else []
        )
        self._runs = Counter(found)
        self._per_report = Counter(name for name, _ in found)

    def report(self, name: str) -> Report | None:
        """Return the nearest report above a file."""
        return next(
            (self._reports[folder] for folder in parents(name) if folder in self._reports), None
        )

    def of(self, name: str, task: str) -> int | Unlabelled | None:
        """Return the outcome of a file's run; None where no report says it and runs are kept."""
        found = self._of(name, task)
        return None if self._keep_unlabelled and isinstance(found, Unlabelled) else found

    def _of(self, name: str, task: str) -> int | Unlabelled | None:
        report = self.report(name)
        if report is None:
            return None
        if problem := self.rejected(report):
            return Unlabelled("not_evaluated", f"was not evaluated: {problem}")
        if self._runs[report.name, task] > 1:
            return Unlabelled(
                "ambiguous_label",
                f"is one of {self._runs[report.name, task]} runs of one instance, of which "
                f"{report.name} judges one",
            )
        return report.outcome(task)

    def rejected(self, report: Report) -> str | None:
        """Say why a report covers too little of its run to be believed about the rest."""
        runs = self._per_report[report.name]
        if report.submitted is None or 2 * report.submitted >= (runs or report.total or 0):
            return None
        whole = f"{runs} runs" if runs else f"{report.total} instances"
        return f"{report.name} reports on {report.submitted} of {whole}"

    def note(self, reading: Reading) -> None:
        """Count reports that are not believed, and resolved instances whose runs are not here."""
        for report in self._reports.values():
            if problem := self.rejected(report):
                reading.drop(
                    "run_rejected",
                    f"{problem}; import the run with the report of its full evaluation.",
                )
            elif self._per_report[report.name]:
                missing = sum((report.name, task) not in self._runs for task in report.resolved)
                reading.notes["resolved instances whose runs are not here"] += missing
                reading.notes["reports passed over for another of the same run"] += (
                    self._passed_over[report.folder]
                )
        # what came to nothing is no note
        reading.tally.notes += Counter()


def collect_outcomes(
    files: FileSet, reading: Reading, runs: Iterable[tuple[str, str]]
) -> ReportedOutcomes:
    """Read every report among the files."""
    best: dict[str, Report] = {}
    found: Counter[str] = Counter()
    for report in _reports(files, reading):
        other = best.get(report.folder)
        found[report.folder] += 1
        if other is None or _rank(report.name) < _rank(other.name):
            best[report.folder] = report
    keep_unlabelled = bool(reading.options.get("keep_unlabelled"))
    return ReportedOutcomes(
        best, runs, found - Counter(best.keys()), keep_unlabelled=keep_unlabelled
    )


def task_of(identity: str) -> str:
    """Return an instance id in the spelling of SWE-bench: apache__dubbo-10638."""
    match = _NEW_ID.fullmatch(identity)
    return f"{match[1]}__{match[2]}-{match[3]}" if match else identity


def issue_text(prompt: str) -> str:
    """Return the issue in a prompt, without the harness's instructions around it."""
    match = _TAGS.search(prompt)
    if match:
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


class FileRun(NamedTuple):
    """What one file holds of a run."""

    instruction: str
    steps: tuple[Step, ...]
    #: what a run without steps is called
    empty: str = "in which the agent said nothing"


def draft_of(
    file: SourceFile,
    run: FileRun | str,
    task: str,
    agent: str,
    *,
    outcomes: ReportedOutcomes,
    reading: Reading,
) -> Iterator[Draft]:
    """Turn the run of one file into a draft, or count why not; `run` may say what is wrong."""
    if isinstance(run, str):
        reading.unusable(file.name, run)
    elif not run.steps:
        reading.drop("no_trajectory", f"{file.name} holds a run {run.empty}.")
    elif isinstance(outcome := outcomes.of(file.name, task), Unlabelled):
        reading.drop(outcome.reason, f"{file.name} {outcome.words}.")
    else:
        yield Draft(
            task_id=task,
            agent=agent,
            instruction=run.instruction,
            steps=run.steps,
            outcome=outcome,
            origin=reading.origin(file),
        )


def _reports(files: FileSet, reading: Reading) -> Iterator[Report]:
    for file, data in contents(files.matching("*.json", "*.json.gz"), reading):
        if b'"resolved' not in data or not is_object_with(data, ()):
            continue
        document = one_object(decode(data))
        if isinstance(document, str):
            reading.sha256(file)
            reading.drop(
                "file_unreadable",
                f"{file.name} seems to hold outcomes and cannot be read: {document}; fetch it "
                "again.",
            )
        elif report := _report(file.name, document):
            reading.sha256(file)
            yield report


def _report(name: str, document: Record) -> Report | None:
    found = [_ids(document, key) for key in ("resolved", "resolved_ids")]
    resolved = next((ids for ids in found if ids is not None), None)
    if resolved is None:
        return None
    named = [ids for key in _COUNTED if (ids := _ids(document, key)) is not None]
    folder = next(
        parent
        for parent in parents(name)
        if not _REPORT_FOLDER.fullmatch(PurePosixPath(parent).name)
    )
    return Report(
        name=name,
        folder=folder,
        resolved=resolved,
        counted=resolved.union(*named) if named else None,
        no_setup=frozenset().union(*(_ids(document, key) or frozenset() for key in _NO_SETUP)),
        submitted=_count(document.get("submitted_instances")),
        total=_count(document.get("total_instances")),
    )


def _ids(document: Record, key: str) -> frozenset[str] | None:
    values = document.get(key)
    return (
        frozenset(task_of(value) for value in values if isinstance(value, str))
        if isinstance(values, list)
        else None
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rank(name: str) -> tuple[bool, int, str]:
    rank = next(
        (number for number, ending in enumerate(_RANKS) if f"/{name}".endswith(f"/{ending}")),
        len(_RANKS),
    )
    return "old_eval_results/" in name, rank, name
