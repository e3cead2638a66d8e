"""What a run and the readers of a corpus make of sources that changed, moved or were cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certify_assets import InputError, Workspace
from certify_assets.storage.store import Store
from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return write_runs(tmp_path / "runs.jsonl", tasks=60, attempts=3)


@pytest.mark.slow
def test_a_changed_and_a_missing_source(call: Call, runs: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    made = f"corpus import {runs} --name c --format table --set rl=false --root {root}"
    assert call(made).code == 0
    before = runs.read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in before]
    for row in rows[:12]:
        row["outcome"] = 1 - row["outcome"]
    runs.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    first = call(f"run c --judge combined --judge lexical --root {root}")
    assert "Version 2: 12 runs have another label than before" in first.err
    assert "changed meanwhile" not in first.err
    certified = any(
        item["certified"]
        for judge in ("combined", "lexical")
        for item in Store(str(root)).read_json(f"judges/{judge}/c/certificates.json")[
            "certificates"
        ]
        if item["procedure"] == "pseudo_task"
    )
    assert first.code == (0 if certified else 3)
    runs.unlink()
    second = call(f"run c --judge lexical --root {root}")
    assert second.code == first.code
    assert f"{runs} is missing. The runs are used as they were imported." in second.err
    # a judge that is named is the only one that the command speaks of
    assert "lexical" in second.out and "combined" not in second.out
    assert "combined" in first.out and "data_quality done" not in first.err


def test_a_source_that_never_was_there_is_refused(call: Call, runs: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert call(f"corpus import {runs} --name c --format table --root {root}").code == 0
    other, store = tmp_path / "other.jsonl", Store(str(root))
    settings = {**store.read_json("corpora/c/corpus.json"), "paths": [str(other)]}
    store.write_json("corpora/c/corpus.json", settings)
    with pytest.raises(InputError, match=r"other\.jsonl does not exist"):
        Workspace.open(str(root)).corpus("c").prepare()


def test_a_replacement_that_is_cut_off_leaves_the_corpus_as_it_was(
    call: Call, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = tmp_path / "root", write_runs(tmp_path / "other.jsonl", tasks=50, attempts=3)
    assert call(f"corpus import {runs} --name c --format table --root {root}").code == 0

    def seed() -> int:
        listed = call(f"corpus list --root {root} --json").json["corpora"]
        return next(item["seed"] for item in listed if item["name"] == "c")

    before, replace = seed(), f"corpus import {other} --name c --replace --set seed=7 --root {root}"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("certify_assets.storage.folder.Folder.write", full)
        assert call(replace).code != 0
    assert seed() == before and call(f"corpus show c --root {root}").code == 0
    assert call(replace).code == 0
    assert seed() == 7 and call(f"corpus show c --root {root}").code == 0
