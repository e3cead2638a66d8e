"""Data quality of a corpus: a Great Expectations suite for every table."""


# The library compares everything itself, but sees the steps of a run as facts: how many there are,
# the hash of what a judge reads, the keys that texts quote. So no text of a run is in a stored
# result. That no task is in two splits does not rest on the library: `verify_manifest` is asked
# next to it, and by every reader.

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.pseudo_task import WHOLE_SHARE
from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.leakage import LEAK_KEYS, quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.splits import SPLITS, SplitManifest, verify_manifest
from certify_assets.errors import ManifestError

if TYPE_CHECKING:
    import pandas as pd

#: tables that are validated, in the order of the page
TABLES: Final = {
    "trajectories": "Rows of the trajectory table",
    "renderings": "What judges read of the runs",
    "keys": "Keys that the texts of the runs quote",
    "splits": "Tasks of the splits",
    **{name: f"Rows of the {name.upper()} split" for name in SPLITS},
}
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
# unexpected values that are shown
_FEW = 3
_LONGEST = 200
# of an expectation on a column that is not there, which must not pass for one that is sound
_MISSING = "its column is missing: see schema"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the library found of an expectation; its values are text of somebody else."""

    # observed value, or share of values that were not expected
    value: str
    # values that were not expected: how many, and some of them
    unexpected: int
    samples: tuple[str, ...]
    missing_columns: str
    further_columns: str

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Seen:
        """Read the documented part of a result."""
        samples = [_clipped(value) for value in result.get("partial_unexpected_list") or ()]
        differing = (result.get("details") or {}).get("mismatched") or {}
        share, value = result.get("unexpected_percent"), result.get("observed_value", "")
        if share is not None:
            value = f"{share:.4g} % unexpected"
        return cls(
            value=_names(value) if isinstance(value, list) else str(value),
            unexpected=int(result.get("unexpected_count") or 0),
            samples=tuple(dict.fromkeys(samples[:_FEW])),
            missing_columns=_names(differing.get("missing")),
            further_columns=_names(differing.get("unexpected")),
        )

    @property
    def sample(self) -> str:
        """Some of the values that were not expected."""
        return ", ".join(self.samples)


@dataclass(frozen=True)
class Rule:
    """One expectation of a check: its name in the library, and what is said of it."""

    check: str
    expectation: str
    expected: str
    # says what is wrong
    problem: Callable[[Seen], str]
    arguments: Mapping[str, Any] = field(default_factory=dict)


def rules_of(
    table: str, rows: int, members: Sequence[str], alpha: float, certifying: Sequence[str]
) -> list[Rule]:
    """Return the suite of a table of so many rows."""
    remedy = "remove what speaks of the outcome before a judge reads it"
    if table == "keys":
        return [
            Rule(
                "no_leak_field",
                "ExpectColumnValuesToNotBeInSet",
                "no text quotes a key that only harnesses use.",
                lambda seen: f"key {seen.sample}: {remedy}",
                {"column": "key", "value_set": list(LEAK_KEYS)},
            )
        ]
    if table == "renderings":
        return [
            Rule(
                "duplicates",
                "ExpectColumnUniqueValueCountToBeBetween",
                "as many renderings must differ as there are runs.",
                lambda seen: f"{rows - int(seen.value)} of {rows} renderings equal an earlier one",
                {"column": "rendering", "min_value": rows},
            )
        ]
    if table == "splits":
        return _split_rules(members, alpha, certifying)
    if table in SPLITS:
        # the other identities are those of its runs, whose table was validated whole
        return _row_rules(("split_rows",) * 3, ("task_id",), f"{table}: ")
    return [
        Rule(
            "schema",
            "ExpectTableColumnsToMatchSet",
            f"the table must have the {len(COLUMNS)} columns of a trajectory.",
            lambda seen: f"the columns {seen.missing_columns} are missing: import the corpus again",
            {"column_set": list(COLUMNS), "exact_match": False},
        ),
        *_row_rules(("schema", "unique_trajectory_id", "binary_outcome"), _REQUIRED, ""),
        Rule(
            "no_leak_field",
            "ExpectTableColumnsToMatchSet",
            "the table must have no other column.",
            # a table without all its columns has no other column either
            lambda seen: (
                f"column {seen.further_columns}: {remedy}" if seen.further_columns else _MISSING
            ),
            {"column_set": list(COLUMNS), "exact_match": True},
        ),
    ]


def _row_rules(checks: Sequence[str], required: Sequence[str], where: str) -> list[Rule]:
    """Return what holds for every row, for the checks of identities, ids and outcomes."""

    def missing(column: str) -> Callable[[Seen], str]:
        return lambda seen: (
            f"{where}{column} is missing in {seen.unexpected} rows: give every trajectory its "
            f"{column}"
        )

    def wrong(column: str) -> Callable[[Seen], str]:
        return lambda seen: (
            f"{where}{seen.unexpected} rows have a {column} such as {seen.sample}: correct them"
        )

    identities, ids, outcomes = checks
    never, unique, binary = (
        f"ExpectColumnValuesTo{what}" for what in ("NotBeNull", "BeUnique", "BeInSet")
    )
    return [
        *(
            Rule(identities, never, "values must never be null.", missing(name), {"column": name})
            for name in required
        ),
        Rule(
            ids,
            unique,
            "values must be unique.",
            wrong("trajectory_id"),
            {"column": "trajectory_id"},
        ),
        Rule(
            outcomes,
            binary,
            "values must be 0 or 1, or missing.",
            wrong("outcome"),
            {"column": "outcome", "value_set": [0, 1]},
        ),
    ]


def _split_rules(members: Sequence[str], alpha: float, certifying: Sequence[str]) -> list[Rule]:
    column = _library("great_expectations.expectations.row_conditions").Column

    def disjoint(one: str, other: str) -> Rule:
        return Rule(
            "disjoint_tasks",
            "ExpectColumnValuesToBeUnique",
            f"no task may be in both {one} and {other}.",
            lambda seen: (
                f"{seen.unexpected // 2} tasks are in both {one} and {other}, such as "
                f"{seen.samples[0]!r}: make the splits again"
            ),
            {"column": "task_id", "row_condition": column("split").is_in([one, other])},
        )

    needed = n_min(alpha, _DELTA / WHOLE_SHARE)
    names = " and ".join(name.upper() for name in certifying)
    large = Rule(
        "n_min_tasks",
        "ExpectColumnUniqueValueCountToBeBetween",
        f"{names} must have at least the {needed} tasks that α={alpha:g} needs.",
        lambda seen: f"{names} has {seen.value} tasks, and α={alpha:g} needs {needed}",
        {
            "column": "task_id",
            "min_value": needed,
            "row_condition": column("split").is_in(list(certifying)),
        },
    )
    pairs = [disjoint(one, other) for one, other in combinations(members, 2)]
    return [*pairs, large] if "cal" in members else pairs


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation on one table: what was expected and what was found."""

    check: str
    column: str
    expected: str
    # what is wrong; empty where nothing is
    problem: str
    seen: Seen

    @property
    def passed(self) -> bool:
        """Whether it is met."""
        return not self.problem

    @classmethod
    def of(cls, rule: Rule, item: Mapping[str, Any]) -> Expectation:
        """Read one entry of the results of a validation."""
        seen, problem = Seen.of(item["result"]), ""
        if not item["success"]:
            problem = _raised(item["exception_info"]) or rule.problem(seen)
        column = str(rule.arguments.get("column", ""))
        return cls(rule.check, column, rule.expected, problem, seen)


@dataclass(frozen=True, slots=True)
class Validation:
    """One table validated once."""

    table: str
    rows: int
    expectations: tuple[Expectation, ...]

    @property
    def met(self) -> int:
        """How many expectations were met."""
        return sum(item.passed for item in self.expectations)


def _raised(info: Mapping[str, Any]) -> str:
    """Say why an expectation could not be evaluated; empty where it was."""
    # several metrics of one expectation may have failed, each with an entry of its own
    entries: Iterable[Any] = [info, *info.values()]
    messages = [
        str(entry.get("exception_message"))
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("raised_exception")
    ]
    if messages and all("does not exist" in message for message in messages):
        return _MISSING
    return f"it could not be evaluated ({_clipped(messages[0])})" if messages else ""


def _names(values: Iterable[Any] | None) -> str:
    return ", ".join(_clipped(value) for value in values or ())


def _clipped(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@dataclass(frozen=True, slots=True)
class QualityResult:
    """Result of one check; a failed error blocks everything downstream, a warning does not."""

    name: str
    passed: bool
    detail: str
    # how many expectations the check has
    expectations: int

    @property
    def severity(self) -> str:
        """What a failure is."""
        return "error" if self.name in BLOCKING else "warning"


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
    suites = {
        name: rules_of(name, len(table), list(members), alpha, certifying)
        for name, table in tables.items()
    }
    validations = tuple(_validate(tables, suites))
    checks: dict[str, list[Expectation]] = {}
    for item in (item for table in validations for item in table.expectations):
        checks.setdefault(item.check, []).append(item)
    results = [_result(check, items) for check, items in checks.items()]
    if manifest is not None:
        results.append(_manifest_result(manifest, frame, splits))
    return QualityReport(tuple(results), validations)


def _run_tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of the runs; where a column is missing, those of their texts have none."""
    import pandas as pd

    rows = frame.assign(steps=frame["steps"].map(len)) if "steps" in frame.columns else frame
    tables = {"trajectories": rows, "renderings": pd.DataFrame(), "keys": pd.DataFrame()}
    if set(COLUMNS) <= set(frame.columns):
        digests = [item.digest.hex() for item in render_frame(frame)]
        tables["renderings"] = pd.DataFrame({"rendering": digests}, dtype=object)
        tables["keys"] = pd.DataFrame({"key": quoted_keys(frame)}, dtype=object)
    return tables


def _validate(
    tables: Mapping[str, pd.DataFrame], suites: Mapping[str, list[Rule]]
) -> Iterator[Validation]:
    """Validate every table by its suite."""
    gx, config = _library(), _library("great_expectations.data_context.types.base")
    context = gx.get_context(
        mode="ephemeral",
        project_config=config.DataContextConfig(
            analytics_enabled=False,
            progress_bars={"globally": False},
            store_backend_defaults=config.InMemoryStoreBackendDefaults(),
        ),
    )
    source = context.data_sources.add_pandas("corpus")
    for table, rules in suites.items():
        # results come in another order
        expectations = [
            getattr(gx.expectations, rule.expectation)(**rule.arguments, meta={"place": place})
            for place, rule in enumerate(rules)
        ]
        suite = gx.ExpectationSuite(name=table, expectations=expectations)
        whole = source.add_dataframe_asset(table).add_batch_definition_whole_dataframe("whole")
        result = whole.get_batch({"dataframe": tables[table]}).validate(
            suite, result_format={"result_format": "BASIC", "partial_unexpected_count": _FEW}
        )
        found = {
            item["expectation_config"]["meta"]["place"]: item
            for item in result.to_json_dict()["results"]
        }
        read = tuple(Expectation.of(rule, found[place]) for place, rule in enumerate(rules))
        yield Validation(table, len(tables[table]), read)


def _library(module: str = "great_expectations") -> Any:
    """Import Great Expectations, which itself imports two deprecated modules of Python."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=r"module 'sre_\w+' is deprecated", category=DeprecationWarning
        )
        return importlib.import_module(module)


def _result(check: str, items: Sequence[Expectation]) -> QualityResult:
    """Sum up the expectations of a check."""
    found = list(dict.fromkeys(item.problem for item in items if item.problem))
    problems = [problem for problem in found if problem != _MISSING] or found
    detail = "; ".join(problems) or f"all {len(items)} expectations are met"
    return QualityResult(check, not problems, f"{detail}.", len(items))


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
        return QualityResult("manifest", False, str(error), 1)
    detail = f"seed {manifest.seed}, profile {manifest.profile}, hash {manifest.sha256[:12]}."
    return QualityResult("manifest", True, detail, 1)
