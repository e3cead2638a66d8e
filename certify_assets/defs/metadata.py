"""Metadata that asset pages show: row counts, schemas and column lineage of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["column_lineage", "score_metadata", "table_metadata"]


def table_metadata(frame: pd.DataFrame, rows: int | None = None) -> dict[str, Any]:
    """Return row count and column schema under the names that Dagster's pages know; `rows` where the table at hand holds none of them."""
    columns = [dg.TableColumn(name=str(name), type=str(dtype)) for name, dtype in frame.dtypes.items()]
    return {"dagster/row_count": len(frame) if rows is None else rows, "dagster/column_schema": dg.TableSchema(columns=columns)}


def column_lineage(sources: Mapping[str, Sequence[tuple[dg.AssetKey, str]]]) -> dict[str, Any]:
    """Return column lineage: for each column the (asset, column) pairs it was made from."""
    deps = {name: [dg.TableColumnDep(asset_key=key, column_name=column) for key, column in pairs] for name, pairs in sources.items()}
    return {"dagster/column_lineage": dg.TableColumnLineage(deps_by_column=deps)}


def score_metadata(table: pd.DataFrame) -> tuple[dict[str, Any], dict[str, float]]:
    """Return the metadata of a score table, which is made from the three splits, and its counts."""
    splits = [dg.AssetKey(name) for name in ("rl_split", "cal_split", "test_split")]
    copied = {name: [(key, name) for key in splits] for name in ("task_id", "trajectory_id", "agent", "attempt")}
    judged = {
        name: [(key, "steps") for key in splits] + [(key, "instruction") for key in splits]
        for name in ("score", "log_p_success", "log_p_fail")
    }
    labels = {"outcome": [(key, "outcome") for key in splits[:2]]}
    counts = {f"{split}_rows": float((table["split"] == split).sum()) for split in ("rl", "cal", "test")}
    about = {**table_metadata(table), **column_lineage({**copied, **judged, **labels})}
    return about, {**counts, "unscored": float(table["score"].isna().sum())}
