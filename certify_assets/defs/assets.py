"""What assets have in common: the step that makes them, and the metadata of their pages."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import dagster as dg

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.names import COST, FAMILY, judge_code_version, stored_version
from certify_assets.defs.policies import OnDevice, pool_of
from certify_assets.defs.project import About, Project
from certify_assets.defs.resources import DataRoot, MlflowTracker
from certify_assets.errors import ChangedInputError, LostDatabaseError
from certify_assets.judges.base import JUDGED_COLUMNS, RUN_COLUMNS
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.spec import JudgeSpec
from certify_assets.operations.judge_figures import Figures, judge_summary
from certify_assets.storage.events import head_text
from certify_assets.storage.objects import MissingObjectError
from certify_assets.storage.store import Store
from certify_assets.work import ProgressLines

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Bill

Metadata = dict[
    str, dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | float | str | None
]

MaterializeResult = dg.MaterializeResult[Any]


@dataclass(frozen=True)
class AssetStep:
    """What an asset works with: names, the run, the data root, and the tracker."""

    project: Project
    context: dg.AssetExecutionContext
    data_root: DataRoot
    mlflow: MlflowTracker

    @cached_property
    def store(self) -> Store:
        """Data root of the run."""
        return self.data_root.view()

    @cached_property
    def corpus(self) -> Corpus:
        """Corpus of the partition, opened once."""
        return Corpus(self.store, self.context.partition_key)

    @property
    def partition(self) -> str:
        """Name of the corpus of the partition; "" of an asset over all corpora."""
        return self.context.partition_key if self.context.has_partition_key else ""

    @property
    def ledger(self) -> str:
        """Head of the ledger that the step sees."""
        return head_text(self.store.ledger(self.partition))

    def judge(self, name: str) -> JudgedCorpus:
        """Return a judge on the corpus."""
        return JudgedCorpus(self.corpus, name)

    def _inputs(self) -> dict[str, str]:
        """Return the versions of what the step read as Dagster names them."""
        # of a step that is repeated Dagster would record those of its first attempt
        deps = self.context.assets_def.asset_deps.get(self.context.asset_key, ())
        found = {
            dep: stored_version(self.store, self.project.name_of(dep), self.partition)
            for dep in deps
        }
        return {
            f"dagster/input_data_version/{dep.to_user_string()}": version.value
            for dep, version in found.items()
            if version is not None
        }

    @property
    def report(self) -> ProgressLines:
        """What turns reports of progress into lines of the run's log."""
        return ProgressLines(self.context.log.info)

    def skip(self, reason: str) -> None:
        """Say why the asset, and all that depends on it, is skipped in this run."""
        self.context.log.warning(reason)
        self.context.log_event(
            dg.AssetObservation(
                self.context.asset_key,
                partition=self.context.partition_key,
                metadata={"gate_closed": reason},
            )
        )

    def made(
        self,
        metadata: Mapping[str, Any],
        *,
        params: Mapping[str, Any] | None = None,
        metrics: Mapping[str, float | None] | None = None,
        figures: Figures | None = None,
        reads: Sequence[str] = (),
        page: str = "",
        documents: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        version: str = "",
        **files: Any,
    ) -> MaterializeResult:
        """Return metadata and data version as the asset's result, and record it in MLflow.

        Parameters
        ----------
        metadata : Mapping[str, Any]
            What the asset's page shows, besides parameters and metrics.
        params, metrics : Mapping[str, Any], optional
            What the asset's page and its MLflow run show.
        figures : Figures, optional
            Metrics that judges are compared by, in MLflow alone.
        reads : Sequence[str], optional
            Splits that made the figures.
        page : str, optional
            Storage key of the page of the asset.
        documents, tags : Mapping[str, str], optional
            Texts by name, and tags, in MLflow alone.
        version : str, optional
            Data version; by default the hash of the documents that the asset stores.
        **files : Any
            Curves and files of the MLflow run.
        """
        context, store, ledger = self.context, self.store, self.ledger
        params, metrics, documents = params or {}, metrics or {}, dict(documents or {})
        links: dict[str, Any] = {}
        if page:
            documents[page.rpartition("/")[2]] = store.read_bytes(page).decode("utf-8")
            links["page"] = dg.MetadataValue.path(store.locate(page))
            links["index"] = dg.MetadataValue.path(store.locate("index.html"))
            self.data_root.draw_index()
        if (judge := self.project.judge_of(context.asset_key)) and self.mlflow.enabled:
            files["summary"] = judge_summary(self.judge(judge), figures, reads)
        name = self.project.name_of(context.asset_key)
        self.mlflow.record(
            context,
            store,
            name=name,
            tags={"certify.ledger": ledger, **(tags or {})},
            page=page.rpartition("/")[2],
            params=params,
            metrics={**(figures or {}), **metrics},
            documents=documents,
            **files,
        )
        shown = {name: value for name, value in metrics.items() if value is not None}
        return dg.MaterializeResult(
            metadata={**metadata, **params, **shown, "ledger": ledger, **links},
            tags=self._inputs(),
            data_version=dg.DataVersion(version)
            if version
            else stored_version(store, name, self.partition),
            value=None,
        )


@contextmanager
def asset_step(
    project: Project,
    context: dg.AssetExecutionContext,
    data_root: DataRoot,
    mlflow: MlflowTracker,
) -> Iterator[AssetStep]:
    """Begin the step of an asset, which commits what it stores at its end.

    It is repeated once where its inputs were replaced or the database was lost.
    """
    corpus = context.partition_key if context.has_partition_key else ""
    # a process that is killed after its commit, before Dagster knows, commits nothing twice
    token = f"{context.run.run_id} {context.op_def.name} {corpus}"
    try:
        with data_root.view().step(token):
            yield AssetStep(project, context, data_root, mlflow)
    except (ChangedInputError, MissingObjectError) as error:
        raise dg.RetryRequested(max_retries=1, seconds_to_wait=0) from error
    except LostDatabaseError as error:
        # the token says whether the lost commit arrived; a server takes seconds to start
        raise dg.RetryRequested(max_retries=1, seconds_to_wait=5) from error


# parts of a judge that are made before anything that waits with them
_FIRST = ("model", "scores", "certificate")


class AboutJudge(About, OnDevice):
    """What assets of a judge have in common."""

    tags: dict[str, str]


def about_judge(project: Project, spec: JudgeSpec, part: str) -> AboutJudge:
    """Return what `dagster.asset` takes of every asset of a judge."""
    device = pool_of(spec) if part in ("model", "scores") else OnDevice()
    # certificates before pages of corpora and of other judges
    priority = {"dagster/priority": str(int(part in _FIRST))}
    return {
        **project.about(
            f"judges/{spec.name}/{part}", f"judges_{spec.group}", judge_code_version(spec, part)
        ),
        **device,
        "tags": {FAMILY: spec.kind, COST: spec.cost},
        "op_tags": {**priority, **device.get("op_tags", {})},
    }


# what the columns of every stored table hold
_ABOUT_COLUMNS = {
    "corpus": "Name of the corpus.",
    "task_id": "Task of the run; runs of one task are never independent.",
    "trajectory_id": "Name of the run, unique in its corpus.",
    "agent": "Agent that made the run.",
    "attempt": "Number of the run among the agent's runs of the task, starting at 0.",
    "instruction": "Instruction that the agent was given.",
    "steps": "Actions of the agent, each with what it observed.",
    "outcome": "1 for a success, 0 for a failure, empty without a label.",
    "source_file": "File that the run was read from.",
    "source_sha256": "SHA-256 of that file.",
    "split": "Split of the task: rl, cal or test.",
    "judge": "Judge that decided the batch.",
    "score": "Log-odds of success by the judge; empty where it gave none.",
    "log_p_success": "Log-probability that the judge gives to success.",
    "log_p_fail": "Log-probability that the judge gives to failure.",
    "batch": "Batch in which the run was received.",
    "decision": "reject (auto-fail), release (auto-pass), human (review) or provisional.",
    "reason": "Code of the reason for the decision.",
    "asked": "Why the run is in the review queue: batch_draw, audit_sample, undecided, or empty.",
    "reject_threshold": "Score at or below which a run is auto-failed.",
    "release_threshold": "Score at or above which a run is auto-passed.",
    "certificate_sha256": "SHA-256 of the certificates behind the decision.",
    "adapter_sha256": "SHA-256 of the judge's model.",
    "place": "Place in the review queue, from 1.",
    "kind": "Why the run waits: batch_draw, audit_sample or undecided.",
    "reviews": "Number of labels that the run has.",
    "disputed": "Whether reviewers are tied.",
    "labels": "Number of labels that the run still needs.",
    "why": "Why the run waits, in words.",
    "votes": "Label of every reviewer, as JSON.",
    "time": "When the last label was given.",
}


def table_metadata(frame: "pd.DataFrame", rows: int | None = None) -> Metadata:
    """Return row count and column schema; `rows` where the table at hand holds none of them."""
    columns = [
        dg.TableColumn(str(name), type=str(dtype), description=_ABOUT_COLUMNS.get(str(name)))
        for name, dtype in frame.dtypes.items()
    ]
    return {
        "dagster/row_count": len(frame) if rows is None else rows,
        "dagster/column_schema": dg.TableSchema(columns=columns),
    }


def column_lineage(sources: Mapping[str, Sequence[tuple[dg.AssetKey, str]]]) -> Metadata:
    """Return column lineage: for each column the (asset, column) pairs it was made from."""
    deps = {
        name: [dg.TableColumnDep(asset_key=key, column_name=column) for key, column in pairs]
        for name, pairs in sources.items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps)}


def score_metadata(project: Project, table: "pd.DataFrame") -> tuple[Metadata, dict[str, float]]:
    """Return the metadata of a score table, which is made from the three splits, and its counts."""
    splits = project.keys("corpora", "rl_split", "cal_split", "test_split")
    copied = {name: [(key, name) for key in splits] for name in RUN_COLUMNS if name != "corpus"}
    judged = {
        name: [(key, "steps") for key in splits] + [(key, "instruction") for key in splits]
        for name in JUDGED_COLUMNS
    }
    labels = {"outcome": [(key, "outcome") for key in splits[:2]]}
    splits_found = dict.fromkeys(["rl", "cal", "test", *table["split"]])
    counts = {f"{split}_rows": float((table["split"] == split).sum()) for split in splits_found}
    lineage = column_lineage({**copied, **judged, **labels})
    counts["unscored"] = float(table["score"].isna().sum())
    return table_metadata(table) | lineage, counts


def bill_metrics(bill: "Bill | None") -> dict[str, float]:
    """Return the cost of an endpoint judge's scores by name; nothing for other judges."""
    if bill is None:
        return {}
    names = ("cost", "cost_per_decision", "seconds", "parse_rate")
    tokens = bill["prompt_tokens"] + bill["completion_tokens"]
    figures = {name: bill[name] for name in names} | {
        "seconds_per_decision": bill["seconds"] / max(1, bill["decisions"]),
        "tokens_per_decision": tokens / max(1, bill["decisions"]),
    }
    return {name: float(value) for name, value in figures.items() if value is not None}
