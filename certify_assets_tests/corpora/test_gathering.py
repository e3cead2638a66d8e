"""An import with texts in a file gives the same bytes as one in memory."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from certify_assets.corpora import schema
from certify_assets.corpora.formats import gather_corpus, gathering, import_corpus
from certify_assets.corpora.formats.gathering import StepTexts
from certify_assets.corpora.profile import profile_corpus
from certify_assets.corpora.rendering import outlines
from certify_assets.corpora.schema import (
    Step,
    read_columns,
    read_trajectories,
    row_groups,
    write_trajectories,
)
from certify_assets.corpora.splits import make_manifest
from certify_assets.errors import InputError
from certify_assets_tests.corpora.formats import taubench_v1, terminal_bench
from certify_assets_tests.corpora.swe_builders import rebench_row, save_parquet

TEXT = "one text"


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


def test_a_group_ends_by_rows_or_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_GROUP_ROWS", 3)
    monkeypatch.setattr(schema, "_GROUP_CHARS", 10)
    assert list(row_groups([1, 1, 1, 1])) == [(0, 3), (3, 4)]
    assert list(row_groups([9, 1, 50, 1, 1])) == [(0, 2), (2, 3), (3, 5)]
    assert list(row_groups([])) == []


@pytest.mark.parametrize("limit", [1, 1 << 20])
def test_texts_come_back_as_they_were(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(gathering, "_IN_MEMORY", limit)
    kept = [
        ("lone \ud800", (Step("é\n", "\0"), Step("", "\udfff"))),
        ("", ()),
        (TEXT * 999, (Step(TEXT, TEXT),)),
    ]
    texts = StepTexts()
    places = [texts.put(*item) for item in kept]
    assert [texts.get(place) for place in reversed(places)] == kept[::-1]
    assert [place.chars for place in places] == [
        len(text) + sum(len(s.action) + len(s.observation) for s in steps) for text, steps in kept
    ]
    texts.close()


def test_ids_that_become_one_in_the_table_are_refused(tmp_path: Path) -> None:
    rows = [rebench_row("org__name-1", 1, row, None) for row in range(2)]
    rows[1]["trajectory_id"] = rows[0]["trajectory_id"]
    path = save_parquet(tmp_path / "runs.parquet", rows)
    with pytest.raises(
        InputError, match=r"row 2 has the trajectory_id .* of .* row 1; give every run its own id"
    ):
        written(path)


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


IMPORTED = """
import resource, sys
from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.profile import profile_corpus
from certify_assets.storage.store import Store

store = Store(sys.argv[2])
save_config(store, CorpusConfig("runs", format="swe_rebench", paths=(sys.argv[1],)))
summary = Corpus(store, "runs").import_trajectories()
corpus = Corpus(store, "runs")
profile_corpus(corpus.columns(), dropped=summary.dropped, rendered=corpus.outlines())
print(summary.trajectories, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write_long_runs(path: Path, runs: int) -> None:
    """Write runs of forty steps, 40 kB each, a hundred at a time."""
    generator = np.random.default_rng(0)
    pool = "".join(map(chr, generator.integers(97, 123, 2_000_000)))

    def say(role: str) -> dict[str, str]:
        start = int(generator.integers(len(pool) - 1000))
        return {"role": role, "content": pool[start : start + int(generator.integers(1, 1000))]}

    writer = None
    for start in range(0, runs, 100):
        rows = [
            {
                "trajectory_id": f"run-{number}",
                "instance_id": f"org__name-{number // 10}",
                "trajectory": [say(role) for role in ("user", *["assistant", "tool"] * 40)],
                "resolved": number % 2,
            }
            for number in range(start, start + 100)
        ]
        table = pa.Table.from_pylist(rows)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_runs(tmp_path: Path) -> None:
    """Seven thousand runs of 40 kB more take less than 60 MB more."""

    def peak(number: int, again: int) -> float:
        path = tmp_path / f"{number}.parquet"
        if not path.exists():
            write_long_runs(path, number)
        command = [sys.executable, "-c", IMPORTED, path, tmp_path / f"root-{number}-{again}"]
        # started by a small process, whose peak the child would else begin with
        launcher = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]
        done = subprocess.run([*launcher, *command], check=True, capture_output=True, text=True)
        found, megabytes = done.stdout.split()
        assert int(found) == number
        return float(megabytes)

    sizes = (3000, 10_000)
    # an allocator keeps more or less of what was freed, and never less than what is needed
    few, many = (peak(number, 0) for number in sizes)
    for again in (1, 2):
        if many - few >= 60:
            few, many = min(few, peak(sizes[0], again)), min(many, peak(sizes[1], again))
    assert many - few < 60 and many < 600
