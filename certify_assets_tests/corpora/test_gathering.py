"""An import with texts in a file gives the same bytes as one in memory."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from certify_assets.corpora import schema
from certify_assets.corpora.formats import gather_corpus, gathering, import_corpus
from certify_assets.corpora.schema import parquet_bytes, read_trajectories
from certify_assets_tests.corpora.swe_builders import rebench_row, save_parquet


def test_neither_pieces_nor_memory_change_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [rebench_row(f"org__name-{row % 3}", row % 2, row, None) for row in range(12)]
    path = save_parquet(tmp_path / "runs.parquet", rows)
    frame = import_corpus(path, name="c").frame
    for name, value, groups in (("_IN_MEMORY", 1, 1), ("GROUP_ROWS", 5, 3)):
        monkeypatch.setattr(schema if groups > 1 else gathering, name, value)
        sink = io.BytesIO()
        with gather_corpus(path, name="c") as (runs, _):
            runs.write(sink)
        assert pq.ParquetFile(sink).num_row_groups == groups
        assert sink.getvalue() == parquet_bytes(frame)
    (tmp_path / "whole.parquet").write_bytes(sink.getvalue())
    assert read_trajectories(tmp_path / "whole.parquet").equals(frame)
