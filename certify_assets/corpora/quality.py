"""Great Expectations suites over a corpus and its splits, in memory: nothing written or sent."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from certify_assets.certificates.clustering import n_min
from certify_assets.corpora.leakage import LEAK_KEYS, find_leak_fields
from certify_assets.corpora.profile import duplicated
from certify_assets.corpora.rendering import Outline, Rendered
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.splits import SPLITS, SplitManifest, verify_manifest
from certify_assets.errors import ManifestError

if TYPE_CHECKING:
    import pandas as pd


BLOCKING: tuple[str, ...] = (
    "schema",
    "unique_trajectory_id",
    "binary_outcome",
    "disjoint_tasks",
    "no_leak_field",
    "manifest",
)

_REQUIRED = ("corpus", "task_id", "trajectory_id", "agent", "attempt")
_TABLE_SUITES = ("schema", "unique_trajectory_id", "binary_outcome", "no_leak_field", "duplicates")
_FEW = 3
_DELTA = 0.05


@dataclass(frozen=True, slots=True)
class QualityResult:
    """Outcome of one suite; a failed error blocks everything downstream, a warning does not."""

    name: str
    passed: bool
    severity: str
    detail: str
    # how many expectations the suite has
    expectations: int


@dataclass(frozen=True)
class QualityReport:
    """Outcome of all suites, in the order of the checks."""

    results: tuple[QualityResult, ...]
    # what Great Expectations renders of every validated table for its Data Docs
    documents: dict[str, Any]


def evaluate_suites(
    frame: pd.DataFrame,
    manifest: SplitManifest | None = None,
    *,
    splits: Mapping[str, pd.DataFrame] | None = None,
    rendered: Sequence[Rendered | Outline] | None = None,
    alpha: float = 0.2,
) -> QualityReport:
    """Check a corpus and its splits, and render the findings for Data Docs."""
    import pandas as pd

    members = _members(frame, manifest, splits)
    complete = set(COLUMNS) <= set(frame.columns)
    rows = frame.drop(columns=[name for name in ("steps", "instruction") if name in frame.columns])
    leaks = [f"{item.kind} {item.name}" for item in find_leak_fields(frame)] if complete else None
    tables = {
        "columns": frame.head(0),
        "rows": rows.assign(copy=duplicated(frame, rendered)) if complete else rows,
        "leaks": pd.DataFrame({} if leaks is None else {"finding": leaks}, dtype=object),
        "tasks": _task_table(members),
        "cal": pd.DataFrame(
            {"tasks": [len(tasks) for name, tasks in members.items() if name == "cal"]}
        ),
    }
    validated = _validate(tables, _expectations(tables, members, alpha))
    results = list(validated.results)
    # a suite that had nothing to look at fails: what is missing must not pass for what is sound
    results += [
        _suite_result(name, False, "its column is missing: see schema.", 0)
        for name in _TABLE_SUITES
        if name not in {result.name for result in results}
    ]
    results += [] if manifest is None else [_manifest_result(manifest, frame, splits)]
    return QualityReport(tuple(results), validated.documents)


@dataclass(frozen=True)
class _Check:
    """One expectation: the suite and table it belongs to, and what is true where it is met."""

    suite: str
    table: str
    expectation: Any
    fine: str


def _great_expectations() -> Any:
    """Import the library, which itself imports two deprecated modules of Python."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"module 'sre_\w+' is deprecated", category=DeprecationWarning
        )
        return importlib.import_module("great_expectations")


def _expectations(
    tables: Mapping[str, pd.DataFrame], members: Mapping[str, set[str]], alpha: float
) -> list[_Check]:
    gxe, checks = _great_expectations().expectations, list[_Check]()

    def expect(suite: str, table: str, expectation: Any, fine: str = "") -> None:
        checks.append(_Check(suite, table, expectation, fine))

    columns = set(tables["rows"].columns)
    whole = f"the table has the {len(COLUMNS)} columns of a trajectory and no identity is missing"
    named = gxe.ExpectTableColumnsToMatchSet(column_set=list(COLUMNS), exact_match=False)
    expect("schema", "columns", named, whole)
    for name in _REQUIRED:
        if name in columns:
            expect("schema", "rows", gxe.ExpectColumnValuesToNotBeNull(column=name))
    if "trajectory_id" in columns:
        unique = gxe.ExpectColumnValuesToBeUnique(column="trajectory_id")
        fine = f"{len(tables['rows'])} trajectories, every id once"
        expect("unique_trajectory_id", "rows", unique, fine)
    if "outcome" in columns:
        binary = gxe.ExpectColumnValuesToBeInSet(column="outcome", value_set=[0, 1])
        expect("binary_outcome", "rows", binary, "every outcome that is there is 0 or 1")
    if "finding" in tables["leaks"]:
        fine = f"none of {len(LEAK_KEYS)} harness keys, no column beyond the schema"
        expect("no_leak_field", "leaks", gxe.ExpectTableRowCountToEqual(value=0), fine)
    if "copy" in columns:
        different = gxe.ExpectColumnValuesToBeInSet(column="copy", value_set=[False])
        expect("duplicates", "rows", different, "no two renderings are equal")
    for pair in tables["tasks"].columns[1:]:
        apart = gxe.ExpectColumnValuesToBeInSet(column=pair, value_set=[0])
        expect("disjoint_tasks", "tasks", apart, f"no task is in two of {', '.join(members)}")
    if "cal" in members:
        needed = n_min(alpha, _DELTA)
        large = gxe.ExpectColumnValuesToBeBetween(column="tasks", min_value=needed)
        fine = f"CAL has at least the {needed} tasks that α={alpha:g} needs"
        expect("n_min_tasks", "cal", large, fine)
    return checks


def _validate(tables: Mapping[str, pd.DataFrame], checks: Sequence[_Check]) -> QualityReport:
    gx = _great_expectations()
    renderer = importlib.import_module(
        "great_expectations.render.renderer"
    ).ValidationResultsPageRenderer()
    report = QualityReport((), {})
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_pandas("corpus")
    problems: dict[int, str] = {}
    for name, table in tables.items():
        numbers = [number for number, check in enumerate(checks) if check.table == name]
        if not numbers:
            continue
        for number in numbers:
            checks[number].expectation.meta = {"number": number}
        suite = gx.ExpectationSuite(
            name=name, expectations=[checks[number].expectation for number in numbers]
        )
        batch = (
            source.add_dataframe_asset(name)
            .add_batch_definition_whole_dataframe("whole")
            .get_batch({"dataframe": table})
        )
        validated = batch.validate(
            suite, result_format={"result_format": "BASIC", "partial_unexpected_count": _FEW}
        )
        report.documents[name] = renderer.render(validated).to_json_dict()
        for result in validated.results:
            if not result.success:
                number = result.expectation_config.meta["number"]
                problems[number] = _problem(checks[number], result, table)
    names = dict.fromkeys(check.suite for check in checks)
    results = (
        _result(name, {n: check for n, check in enumerate(checks) if check.suite == name}, problems)
        for name in names
    )
    return QualityReport(tuple(results), report.documents)


def _problem(check: _Check, result: Any, table: pd.DataFrame) -> str:
    column = check.expectation.configuration.kwargs.get("column", "")
    if result.exception_info.get("raised_exception"):
        message = result.exception_info.get("exception_message")
        return f"{column or check.suite} could not be checked ({message})"
    if check.table == "columns":
        missing = set(COLUMNS) - set(table.columns)
        return f"the columns {', '.join(sorted(missing))} are missing: import the corpus again"
    if check.table == "leaks":
        return (
            f"{', '.join(sorted(set(table['finding']))[:_FEW])}: remove what speaks of the "
            "outcome before a judge reads it"
        )
    if check.table == "tasks":
        shared = table["task_id"][table[column] != 0].tolist()
        example = f"{len(shared)} tasks are in both {column}, such as {shared[0]!r}"
        return f"{example}: make the splits again"
    if check.table == "cal":
        needed = check.fine.removeprefix("CAL has at least the ")
        return f"CAL has {table['tasks'].iloc[0]} tasks, {needed}"
    if check.suite == "duplicates":
        return f"{int(table['copy'].sum())} of {len(table)} renderings equal an earlier one"
    count = result.result["unexpected_count"]
    if check.suite == "schema":
        return f"{column} is missing in {count} rows: give every trajectory its {column}"
    values = ", ".join(dict.fromkeys(map(str, result.result["partial_unexpected_list"])))
    return f"{count} rows have a {column} such as {values}: correct them"


def _result(name: str, checks: Mapping[int, _Check], problems: Mapping[int, str]) -> QualityResult:
    found = [problems[number] for number in checks if number in problems]
    detail = "; ".join(found) or next(check.fine for check in checks.values() if check.fine)
    return _suite_result(name, not found, f"{detail}.", len(checks))


def _suite_result(name: str, passed: bool, detail: str, expectations: int) -> QualityResult:
    severity = "error" if name in BLOCKING else "warning"
    return QualityResult(name, passed, severity, detail, expectations)


def _members(
    frame: pd.DataFrame, manifest: SplitManifest | None, splits: Mapping[str, pd.DataFrame] | None
) -> dict[str, set[str]]:
    if splits is not None:
        return {name: set(table["task_id"]) for name, table in splits.items()}
    if manifest is not None:
        return {name: set(manifest.tasks[name]) for name in SPLITS if manifest.tasks[name]}
    return {}


def _task_table(members: Mapping[str, set[str]]) -> pd.DataFrame:
    """Return one row a task and one column a pair of splits, 1 where the task is in both."""
    import pandas as pd

    tasks = sorted(set().union(*members.values()))
    pairs = {
        f"{one} and {other}": members[one] & members[other]
        for one, other in combinations(members, 2)
    }
    return pd.DataFrame(
        {"task_id": tasks}
        | {name: [int(task in shared) for task in tasks] for name, shared in pairs.items()}
    )


def _manifest_result(
    manifest: SplitManifest, frame: pd.DataFrame, splits: Mapping[str, pd.DataFrame] | None
) -> QualityResult:
    try:
        verify_manifest(manifest, frame)
        for name, table in (splits or {}).items():
            if name in SPLITS and set(table["task_id"]) != set(manifest.tasks[name]):
                raise ManifestError(
                    f"the stored {name} split has other tasks than the manifest gives it; "
                    "write the splits again."
                )
    except ManifestError as error:
        return _suite_result("manifest", False, str(error), 1)
    detail = f"seed {manifest.seed}, profile {manifest.profile}, hash {manifest.sha256[:12]}."
    return _suite_result("manifest", True, detail, 1)
