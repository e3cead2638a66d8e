"""Data quality of a corpus: a Great Expectations suite for every table."""


# The library compares everything itself, but sees the steps of a run as facts: how many there are,
# the hash of what a judge reads, the keys that texts quote. So no text of a run is in a stored
# result. That no task is in two splits does not rest on the library: `verify_manifest` is asked
# next to it, and by every reader.

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.pseudo_task import WHOLE_SHARE
from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.leakage import LEAK_KEYS, quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.splits import SPLITS, SplitManifest, verify_manifest
from certify_assets.corpora.validations import FEW, MISSING, Expectation, Validation
from certify_assets.errors import ManifestError

if TYPE_CHECKING:
    import pandas as pd


#: checks whose failure stops everything downstream; that of the others is a warning
BLOCKING: tuple[str, ...] = (
    "schema",
    "unique_trajectory_id",
    "binary_outcome",
    "disjoint_tasks",
    "no_leak_field",
    "split_rows",
    "manifest",
)

_REQUIRED = ("corpus", "task_id", "trajectory_id", "agent", "attempt")
_DELTA = 0.05


@dataclass(frozen=True)
class Rule:
    """One expectation of a check, with the sentence where it is met and where it is not."""

    # sentences may name facts of the result: see `validations`
    check: str
    expectation: str
    expected: str
    fine: str
    problem: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def rules_of(
    table: str, members: Sequence[str], alpha: float, certifying: Sequence[str] = CERTIFYING
) -> list[Rule]:
    """Return the suite of a table."""
    if table == "keys":
        return [
            Rule(
                "no_leak_field",
                "ExpectColumnValuesToNotBeInSet",
                "no text quotes a key that only harnesses use.",
                f"none of {len(LEAK_KEYS)} harness keys is quoted",
                "key $sample: remove what speaks of the outcome before a judge reads it",
                {"column": "key", "value_set": list(LEAK_KEYS)},
            )
        ]
    if table == "renderings":
        return [
            Rule(
                "duplicates",
                "ExpectColumnUniqueValueCountToBeBetween",
                "as many renderings must differ as there are runs.",
                "no two renderings are equal",
                "$lacking of $least renderings equal an earlier one",
                {"column": "rendering", "min_value": {"$PARAMETER": "rows"}},
            )
        ]
    if table == "splits":
        return _split_rules(members, alpha, certifying)
    if table in SPLITS:
        # the other identities are those of its runs, whose table was validated whole
        fine = "no stored split has an id twice, and every outcome that is there is 0 or 1"
        rules = _row_rules(("split_rows",) * 3, ("task_id",), f"{table}: ")
        return [replace(rule, fine=fine) for rule in rules]
    return [
        Rule(
            "schema",
            "ExpectTableColumnsToMatchSet",
            f"the table must have the {len(COLUMNS)} columns of a trajectory.",
            f"the table has the {len(COLUMNS)} columns of a trajectory and no identity is missing",
            "the columns $missing are missing: import the corpus again",
            {"column_set": list(COLUMNS), "exact_match": False},
        ),
        *_row_rules(("schema", "unique_trajectory_id", "binary_outcome"), _REQUIRED, ""),
        Rule(
            "no_leak_field",
            "ExpectTableColumnsToMatchSet",
            "the table must have no other column.",
            f"none of {len(LEAK_KEYS)} harness keys, no column beyond the schema",
            "column $extra: remove what speaks of the outcome before a judge reads it",
            {"column_set": list(COLUMNS), "exact_match": True},
        ),
    ]


def _row_rules(checks: Sequence[str], required: Sequence[str], where: str) -> list[Rule]:
    """Return what holds for every row, for the checks of identities, ids and outcomes."""
    identities, ids, outcomes = checks
    wrong = f"{where}$count rows have a $column such as $sample: correct them"
    return [
        *(
            Rule(
                identities,
                "ExpectColumnValuesToNotBeNull",
                "values must never be null.",
                "no identity is missing",
                f"{where}$column is missing in $count rows: give every trajectory its $column",
                {"column": name},
            )
            for name in required
        ),
        Rule(
            ids,
            "ExpectColumnValuesToBeUnique",
            "values must be unique.",
            "$rows trajectories, every id once",
            wrong,
            {"column": "trajectory_id"},
        ),
        Rule(
            outcomes,
            "ExpectColumnValuesToBeInSet",
            "values must be 0 or 1, or missing.",
            "every outcome that is there is 0 or 1",
            wrong,
            {"column": "outcome", "value_set": [0, 1]},
        ),
    ]


def _split_rules(members: Sequence[str], alpha: float, certifying: Sequence[str]) -> list[Rule]:
    column = importlib.import_module("great_expectations.expectations.row_conditions").Column
    rules = [
        Rule(
            "disjoint_tasks",
            "ExpectColumnValuesToBeUnique",
            f"no task may be in both {one} and {other}.",
            f"no task is in two of {', '.join(members)}",
            f"$pairs tasks are in both {one} and {other}, such as $first: make the splits again",
            {"column": "task_id", "row_condition": column("split").is_in([one, other])},
        )
        for one, other in combinations(members, 2)
    ]
    if "cal" not in members:
        return rules
    needed = n_min(alpha, _DELTA / WHOLE_SHARE)
    names = " and ".join(name.upper() for name in certifying)
    large = Rule(
        "n_min_tasks",
        "ExpectColumnUniqueValueCountToBeBetween",
        f"{names} must have at least the {needed} tasks that α={alpha:g} needs.",
        f"{names} has at least the {needed} tasks that α={alpha:g} needs",
        f"{names} has $seen tasks, and α={alpha:g} needs {needed}",
        {
            "column": "task_id",
            "min_value": needed,
            "row_condition": column("split").is_in(list(certifying)),
        },
    )
    return [*rules, large]


#: tables that are made of the runs themselves, before there are splits
RUN_TABLES: Final = ("trajectories", "renderings", "keys")


@dataclass(frozen=True, slots=True)
class QualityResult:
    """Result of one check; a failed error blocks everything downstream, a warning does not."""

    name: str
    passed: bool
    severity: str
    detail: str
    # how many expectations the check has
    expectations: int


@dataclass(frozen=True)
class QualityReport:
    """Results of all checks, in their order, and what was validated for them."""

    results: tuple[QualityResult, ...]
    validations: tuple[Validation, ...]


def evaluate_suites(
    frame: pd.DataFrame,
    manifest: SplitManifest | None = None,
    *,
    splits: Mapping[str, pd.DataFrame] | None = None,
    alpha: float = 0.2,
    certifying: Sequence[str] = CERTIFYING,
) -> QualityReport:
    """Validate a corpus and its splits."""
    members = _members(manifest, splits)
    tables = _run_tables(frame)
    if members:
        tables["splits"] = _task_table(members)
    tables |= {name: table for name, table in (splits or {}).items() if name in SPLITS}
    validations = tuple(_validate(tables, list(members), alpha, certifying))
    results = _results([item for table in validations for item in table.expectations])
    if manifest is not None:
        results.append(_manifest_result(manifest, frame, splits))
    return QualityReport(tuple(results), validations)


def _run_tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of the runs; where a column is missing, those of their texts have none."""
    import pandas as pd

    rows = frame.assign(steps=frame["steps"].map(len)) if "steps" in frame.columns else frame
    tables = dict.fromkeys(RUN_TABLES, pd.DataFrame()) | {"trajectories": rows}
    if set(COLUMNS) <= set(frame.columns):
        digests = [item.digest.hex() for item in render_frame(frame)]
        keys = [(key, len(runs), runs[0]) for key, runs in quoted_keys(frame).items()]
        tables["renderings"] = pd.DataFrame({"rendering": digests}, dtype=object)
        tables["keys"] = pd.DataFrame(keys, columns=["key", "runs", "example"], dtype=object)
    return tables


def _validate(
    tables: Mapping[str, pd.DataFrame],
    members: Sequence[str],
    alpha: float,
    certifying: Sequence[str],
) -> Iterator[Validation]:
    """Validate every table by its suite."""
    gx = _great_expectations()
    config = importlib.import_module("great_expectations.data_context.types.base")
    context = gx.get_context(
        mode="ephemeral",
        project_config=config.DataContextConfig(
            analytics_enabled=False,
            progress_bars={"globally": False},
            store_backend_defaults=config.InMemoryStoreBackendDefaults(),
        ),
    )
    source = context.data_sources.add_pandas("corpus")
    for table, frame in tables.items():
        suite = gx.ExpectationSuite(name=table)
        for position, rule in enumerate(rules_of(table, members, alpha, certifying)):
            suite.expectations.append(_expectation(gx, rule, position))
        whole = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("whole")
        result = whole.get_batch({"dataframe": frame}).validate(
            suite,
            expectation_parameters={"rows": len(frame)},
            result_format={"result_format": "BASIC", "partial_unexpected_count": FEW},
        )
        yield Validation.parse(table, result.to_json_dict())


def _expectation(gx: Any, rule: Rule, position: int) -> Any:
    return getattr(gx.expectations, rule.expectation)(
        **rule.arguments,
        description=rule.expected,
        severity="critical" if rule.check in BLOCKING else "warning",
        meta={
            "check": rule.check,
            "fine": rule.fine,
            "problem": rule.problem,
            "position": position,
        },
    )


def _great_expectations() -> Any:
    """Import the library, which itself imports two deprecated modules of Python."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"module 'sre_\w+' is deprecated", category=DeprecationWarning
        )
        return importlib.import_module("great_expectations")


def _results(expectations: Sequence[Expectation]) -> list[QualityResult]:
    """Sum up the expectations of every check."""
    checks: dict[str, list[Expectation]] = {}
    for item in expectations:
        checks.setdefault(item.check, []).append(item)
    results = []
    for check, items in checks.items():
        found = list(dict.fromkeys(item.sentence for item in items if not item.passed))
        problems = [sentence for sentence in found if sentence != MISSING] or found
        fine = list(dict.fromkeys(item.sentence for item in items))
        detail = "; ".join(problems) or fine[0]
        results.append(_result(check, not problems, f"{detail}.", len(items)))
    return results


def _result(name: str, passed: bool, detail: str, expectations: int) -> QualityResult:
    severity = "error" if name in BLOCKING else "warning"
    return QualityResult(name, passed, severity, detail, expectations)


def _members(
    manifest: SplitManifest | None, splits: Mapping[str, pd.DataFrame] | None
) -> dict[str, set[str]]:
    if splits is not None:
        return {name: set(table["task_id"]) for name, table in splits.items()}
    if manifest is not None:
        return {name: set(manifest.tasks[name]) for name in SPLITS if manifest.tasks[name]}
    return {}


def _task_table(members: Mapping[str, set[str]]) -> pd.DataFrame:
    """Return one row a split and task."""
    import pandas as pd

    rows = [(split, task) for split, tasks in members.items() for task in sorted(tasks, key=str)]
    return pd.DataFrame(rows, columns=["split", "task_id"], dtype=object)


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
        return _result("manifest", False, str(error), 1)
    detail = f"seed {manifest.seed}, profile {manifest.profile}, hash {manifest.sha256[:12]}."
    return _result("manifest", True, detail, 1)
