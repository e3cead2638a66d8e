"""Metadata that asset pages show: row counts, schemas and column lineage of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from certify_assets.defs.names import key, stored_version
from certify_assets.defs.resources import MlflowTracker
from certify_assets.judges.base import JUDGED_COLUMNS, RUN_COLUMNS
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Bill

Metadata = dict[
    str, dg.MetadataValue[Any] | dg.TableSchema | dg.TableColumnLineage | float | str | None
]


def table_metadata(frame: pd.DataFrame, rows: int | None = None) -> Metadata:
    """Return row count and column schema; `rows` where the table at hand holds none of them."""
    columns = [
        dg.TableColumn(name=str(name), type=str(dtype)) for name, dtype in frame.dtypes.items()
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


def score_metadata(table: pd.DataFrame) -> tuple[Metadata, dict[str, float]]:
    """Return the metadata of a score table, which is made from the three splits, and its counts."""
    splits = [key(f"corpora/{name}_split") for name in ("rl", "cal", "test")]
    copied = {name: [(key, name) for key in splits] for name in RUN_COLUMNS if name != "corpus"}
    judged = {
        name: [(key, "steps") for key in splits] + [(key, "instruction") for key in splits]
        for name in JUDGED_COLUMNS
    }
    labels = {"outcome": [(key, "outcome") for key in splits[:2]]}
    splits_found = dict.fromkeys(["rl", "cal", "test", *table["split"]])
    counts = {f"{split}_rows": float((table["split"] == split).sum()) for split in splits_found}
    lineage = column_lineage({**copied, **judged, **labels})
    return table_metadata(table) | lineage, {
        **counts,
        "unscored": float(table["score"].isna().sum()),
    }


def bill_metrics(bill: Bill | None) -> dict[str, float]:
    """Return the cost of an endpoint judge's scores by name; nothing for other judges."""
    if bill is None:
        return {}
    count = max(1, bill["decisions"])
    figures = {
        "cost": bill["cost"],
        "cost_per_decision": bill["cost_per_decision"],
        "seconds": bill["seconds"],
        "seconds_per_decision": bill["seconds"] / count,
        "tokens_per_decision": (bill["prompt_tokens"] + bill["completion_tokens"]) / count,
        "parse_rate": bill["parse_rate"],
    }
    return {name: float(value) for name, value in figures.items() if value is not None}


def bill_metadata(bill: Bill | None) -> Metadata:
    """Return the bill for the asset's page: figures, and the rest as one document."""
    return {} if bill is None else {**bill_metrics(bill), "bill": dg.MetadataValue.json(dict(bill))}


def materialized(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
    store: Store,
    mlflow: MlflowTracker,
    metadata: Mapping[str, Any],
    *,
    version: str = "",
    **record: Any,
) -> dg.MaterializeResult[Any]:
    """Return the result of an asset: its metadata, its record in MLflow, and its data version."""
    corpus = context.partition_key if context.has_partition_key else ""
    return dg.MaterializeResult(
        metadata={**metadata, **mlflow.record(context, store, **record)},
        # the hash of the documents that it stores, unless one is given
        data_version=dg.DataVersion(version)
        if version
        else stored_version(store, context.asset_key, corpus),
        value=None,
    )


def three_states(status: str) -> dg.AssetCheckSeverity:
    """Return the severity of a check whose verdict is PASS, WARN or ERROR."""
    return dg.AssetCheckSeverity.ERROR if status == "ERROR" else dg.AssetCheckSeverity.WARN
