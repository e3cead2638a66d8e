"""Data quality of a corpus: a Great Expectations suite for every table."""

# The library compares everything itself, but sees the steps of a run as facts: how many there are,
# the hash of what a judge reads, the keys that texts quote. So no text of a run is in a stored
# result. That no task is in two splits does not rest on the library: `verify_manifest` is asked
# next to it, and by every reader.

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.leakage import quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.splits import SPLITS, SplitManifest, verify_manifest
from certify_assets.corpora.suites import BLOCKING, Rule, rules_of
from certify_assets.corpora.validations import FEW, MISSING, Expectation, Validation
from certify_assets.errors import ManifestError

if TYPE_CHECKING:
    import pandas as pd


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
