"""An import with texts in a file gives the same bytes as one in memory."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from certify_assets.corpora import schema
from certify_assets.corpora.formats import gather_corpus, gathering, import_corpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.rendering import outlines
from certify_assets.corpora.schema import read_columns, read_trajectories, write_trajectories
from certify_assets.corpora.splits import make_manifest
from certify_assets_tests.corpora.formats import taubench_v1, terminal_bench
from certify_assets_tests.corpora.swe_builders import rebench_row, save_parquet


def written(path: Path, **options: object) -> bytes:
    sink = io.BytesIO()
    with gather_corpus(path, name="c", options=options) as (runs, _):
        runs.write(sink)
    return sink.getvalue()


def runs(root: Path, number: int = 12) -> Path:
    return save_parquet(
        root / "runs.parquet",
        [rebench_row(f"org__name-{row % 3}", row % 2, row, None) for row in range(number)],
    )


@pytest.mark.parametrize(
    "options", [{}, {"keep_unlabelled": True}, {"merge_same_instruction": True}]
)
@pytest.mark.parametrize("form", [taubench_v1, terminal_bench])
def test_the_bytes_are_those_of_an_import_in_memory(
    tmp_path: Path, form: object, options: dict[str, object]
) -> None:
    form.write(tmp_path / "runs")  # type: ignore[attr-defined]
    frame = import_corpus(tmp_path / "runs", name="c", options=options).frame
    assert written(tmp_path / "runs", **options) == write_trajectories(
        tmp_path / "whole.parquet", frame
    )


def test_neither_pieces_nor_memory_change_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runs(tmp_path)
    once = written(path)
    monkeypatch.setattr(gathering, "_IN_MEMORY", 1)
    assert written(path) == once
    monkeypatch.setattr(schema, "_GROUP_ROWS", 5)
    several = written(path)
    assert pq.ParquetFile(io.BytesIO(several)).num_row_groups == 3
    assert several == write_trajectories(
        tmp_path / "whole.parquet", import_corpus(path, name="c").frame
    )
    (tmp_path / "several.parquet").write_bytes(several)
    assert read_trajectories(tmp_path / "several.parquet").equals(
        import_corpus(path, name="c").frame
    )


def test_a_profile_needs_no_texts(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    taubench_v1.write(tmp_path / "runs")
    path.write_bytes(written(tmp_path / "runs"))
    whole, small = read_trajectories(path), read_columns(path)
    assert small.equals(whole.drop(columns="steps"))
    manifest = (
        make_manifest(whole["task_id"].unique(), "c") if whole["task_id"].nunique() > 3 else None
    )
    assert profile_corpus(small, manifest, rendered=outlines(path)) == profile_corpus(
        whole, manifest
    )
