"""Data quality of a corpus: Great Expectations suites, a checkpoint a table, results that stay."""

# The library compares everything itself, but sees the steps of a run as facts: how many there are,
# the hash of what a judge reads, the keys that texts quote. So no text of a run is in a stored
# result. That no task is in two splits does not rest on the library: `verify_manifest` is asked
# next to it, and by every reader.

from __future__ import annotations

import importlib
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.leakage import quoted_keys
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.splits import SPLITS, SplitManifest, verify_manifest
from certify_assets.corpora.suites import BLOCKING, Rule, rules_of
from certify_assets.corpora.validations import (
    FEW,
    MISSING,
    TABLES,
    Expectation,
    Validation,
    Validations,
    project_key,
)
from certify_assets.errors import ManifestError
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd


#: tables that are made of the runs themselves, before there are splits
RUN_TABLES: Final = ("trajectories", "renderings", "keys")
_NAMESPACE: Final = uuid.UUID("6f2a1c0e-7d5b-5c53-9a3e-0f5b6d1f4c11")
_STORES: Final = {
    "expectations": "ExpectationsStore",
    "validation_definition_store": "ValidationDefinitionStore",
    "checkpoints": "CheckpointStore",
    "validations": "ValidationResultsStore",
}


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


@dataclass(frozen=True)
class Project:
    """The Great Expectations project of a corpus: suites, checkpoints and results over time."""

    store: Store
    corpus: str
    # hash of the trajectories that are validated
    sha256: str

    @property
    def folder(self) -> str:
        """Storage key of the project."""
        return project_key(self.corpus)

    @property
    def version(self) -> str:
        """Name of what is validated, among the results."""
        return self.sha256[:12]

    def latest(self, *tables: str) -> list[Validation]:
        """Return the last results of these tables in this version, as far as there are some."""
        stored = Validations(self.store, self.corpus)
        found = (stored.latest(table, self.version) for table in tables)
        return [validation for validation in found if validation is not None]


def evaluate_suites(
    frame: pd.DataFrame,
    manifest: SplitManifest | None = None,
    *,
    splits: Mapping[str, pd.DataFrame] | None = None,
    alpha: float = 0.2,
    project: Project | None = None,
    known: Sequence[Validation] = (),
) -> QualityReport:
    """Validate a corpus and its splits; what is `known` of a table is not validated again.

    Suites and results are stored in the project, or nowhere without one.
    """
    members = _members(manifest, splits)
    tables = {} if len(known) == len(RUN_TABLES) else _run_tables(frame)
    if members:
        tables["splits"] = _task_table(members)
    tables |= {name: table for name, table in (splits or {}).items() if name in SPLITS}
    validated = {item.table: item for item in known} | {
        item.table: item for item in _validate(tables, list(members), alpha, project)
    }
    validations = tuple(validated[table] for table in TABLES if table in validated)
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
    project: Project | None,
) -> Iterator[Validation]:
    """Run the checkpoint of every table; its result is stored before the next one runs."""
    gx = _great_expectations()
    run = importlib.import_module("great_expectations.core.run_identifier").RunIdentifier(
        run_name=project.version if project else "unstored", run_time=datetime.now(UTC)
    )
    with _opened(gx, project) as context:
        for table, frame in tables.items():
            checkpoint = _checkpoint(gx, context, table, rules_of(table, members, alpha))
            ran = checkpoint.run(
                batch_parameters={"dataframe": frame},
                expectation_parameters={"rows": len(frame)},
                run_id=run,
            )
            (result,) = ran.run_results.values()
            yield Validation.parse(result.to_json_dict())


def _checkpoint(gx: Any, context: Any, table: str, rules: Sequence[Rule]) -> Any:
    """Store suite, validation definition and checkpoint of a table; the same for the same rules."""
    suite = gx.ExpectationSuite(name=table, id=_id("suite", table))
    for position, rule in enumerate(rules):
        made = getattr(gx.expectations, rule.expectation)(
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
        suite.expectations.append(made)
        made.id = _id("expectation", f"{table}/{position}")
    # `add` of the library gives every object a random id, and a process that wrote the same objects
    # at the same time would make these ones stale
    context.expectations_store.set(context.expectations_store.get_key(name=table), suite)
    data = context.data_sources.get("corpus").get_asset(table).get_batch_definition("whole")
    definition = gx.ValidationDefinition(
        name=table, data=data, suite=context.suites.get(table), id=_id("definition", table)
    )
    store = context.validation_definition_store
    store.set(store.get_key(name=table), definition)
    checkpoint = gx.Checkpoint(
        name=table,
        validation_definitions=[definition],
        result_format={"result_format": "BASIC", "partial_unexpected_count": FEW},
        id=_id("checkpoint", table),
    )
    context.checkpoint_store.set(context.checkpoint_store.get_key(name=table), checkpoint)
    return checkpoint


@contextmanager
def _opened(gx: Any, project: Project | None) -> Iterator[Any]:
    """Open the file context of a project; that of none, or of a remote one, is a temporary one."""
    import yaml

    backend: dict[str, str] = {"class_name": "InMemoryStoreBackend"}
    if project is not None:
        backend = {
            "module_name": "certify_assets.corpora.expectation_store",
            "class_name": "DataRootBackend",
        }
        settings = yaml.safe_dump(_settings(backend), sort_keys=False).encode("utf-8")
        key = f"{project.folder}/great_expectations.yml"
        if not project.store.exists(key) or project.store.read_bytes(key) != settings:
            project.store.write_bytes(key, settings)
        if project.store.is_local:
            yield gx.get_context(
                mode="file", context_root_dir=project.store.local_path(project.folder)
            )
            return
        # the library opens project files on a disk only; what it stores goes to the data root
        backend["root"] = project.store.locate(project.folder).replace("$", r"\$")
    with tempfile.TemporaryDirectory() as folder:
        text = yaml.safe_dump(_settings(backend), sort_keys=False)
        (Path(folder) / "great_expectations.yml").write_text(text, encoding="utf-8")
        yield gx.get_context(mode="file", context_root_dir=folder)


def _settings(backend: Mapping[str, str]) -> dict[str, Any]:
    """Return the project file: stores of one backend, and a data asset for every table."""
    in_memory = backend["class_name"] == "InMemoryStoreBackend"
    stores = {
        name: {
            "class_name": kind,
            "store_backend": {**backend, **({} if in_memory else {"base_directory": name})},
        }
        for name, kind in _STORES.items()
    }
    assets = {
        table: {
            "type": "dataframe",
            "id": _id("asset", table),
            "batch_definitions": {"whole": {"id": _id("batch", table), "partitioner": None}},
        }
        for table in TABLES
    }
    return {
        "config_version": 4.0,
        "analytics_enabled": False,
        "progress_bars": {"globally": False},
        "expectations_store_name": "expectations",
        "validation_results_store_name": "validations",
        "checkpoint_store_name": "checkpoints",
        "stores": stores,
        "fluent_datasources": {
            "corpus": {"type": "pandas", "id": _id("source", "corpus"), "assets": assets}
        },
    }


def _id(kind: str, name: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


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
