"""``certify judge``: trained, scored, and new runs scored for a decision."""

import json
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.cli.calling import Call


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    store = Store(str(folder / "root"))
    register_runs(
        store, "c", write_runs(folder / "runs.jsonl", tasks=60, attempts=3, seed=0), rl=True
    )
    Corpus(store, "c").prepare_splits()
    return folder / "root"


@pytest.fixture(autouse=True)
def _named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTIFY_ROOT", str(root))


def test_a_judge_is_trained_and_scores_its_corpus(call: Call, root: Path) -> None:
    trained = call("judge train c --json")
    assert trained.code == 0 and trained.json["candidates"] == 1
    assert "sft tasks" in call("judge train c").out
    scored = call("judge score c --json")
    assert scored.code == 0 and scored.json["unscored"] == 0 and scored.json["auroc"] > 0.5
    table = Store(str(root)).read_table("judges/lexical/c/scores.parquet")
    assert len(table) == scored.json["rows"]
    assert table.loc[table["split"] == "test", "outcome"].isna().all()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_new_runs_are_scored_into_a_table_that_other_commands_read(
    call: Call, root: Path, tmp_path: Path, suffix: str
) -> None:
    call("judge train c")
    runs = write_runs(tmp_path / "new.jsonl", tasks=40, attempts=3, seed=5)
    lines = runs.read_text("utf-8").splitlines()
    first = {**json.loads(lines[0]), "outcome": None}
    runs.write_text("\n".join([json.dumps(first), *lines[1:]]), "utf-8")
    out = tmp_path / f"scores{suffix}"
    answer = call(f"judge score c {runs} --out {out} --json")
    assert answer.code == 0
    assert answer.json["rows"] == 120
    assert answer.json["dropped"] == {}
    assert answer.json["out"] == str(out)
    if suffix == ".csv":
        assert int(pd.read_csv(out)["outcome"].isna().sum()) == 1, (
            "a run without an outcome is scored for a decision"
        )
    certified = call(f"certificate {out} --alpha 0.2 --json")
    assert certified.code in (0, 2, 3) and "Traceback" not in certified.err


def test_a_table_without_outcomes_is_scored(call: Call, root: Path, tmp_path: Path) -> None:
    call("judge train c")
    records = map(
        json.loads,
        write_runs(tmp_path / "labelled.jsonl", tasks=4, attempts=2, seed=5)
        .read_text("utf-8")
        .splitlines(),
    )
    lines = [
        json.dumps({name: value for name, value in record.items() if name != "outcome"})
        for record in records
    ]
    (runs := tmp_path / "new.jsonl").write_text("\n".join(lines), "utf-8")
    answer = call(f"judge score c {runs} --out {tmp_path}/scores.csv --json")
    assert answer.code == 0
    assert answer.json["rows"] == 8
    assert pd.read_csv(tmp_path / "scores.csv")["outcome"].isna().all()
    (odd := tmp_path / "odd").mkdir()
    rows = pd.DataFrame(map(json.loads, lines))
    texts = rows.drop(columns="steps").assign(text="opened; left")
    texts.to_csv(odd / "new.csv", sep=";", index=False)
    answer = call(f"judge score c {odd}/new.csv --out {tmp_path}/odd.csv")
    assert "new.csv read as: semicolons between fields" in " ".join(answer.err.split())


def test_what_cannot_be_scored_is_a_sentence(call: Call, root: Path, tmp_path: Path) -> None:
    runs = write_runs(tmp_path / "new.jsonl", tasks=3, attempts=1)
    assert "Name one with --out" in call(f"judge score c {runs}").err
    assert "has an unknown ending" in call(f"judge score c {runs} --out {tmp_path}/x.txt").err
    assert call(f"judge score c {runs} --out {runs}").code == 2
    assert call(f"judge score nope {runs} --out {tmp_path}/x.csv").code == 2
    untrained = call(f"judge score c {runs} --judge base --out {tmp_path}/x.csv")
    assert untrained.code == 2 and untrained.err.count("\n") <= 2
    (broken := tmp_path / "broken.jsonl").write_text("no runs")
    unknown = call(f"judge score c {broken} --judge nope --out {tmp_path}/x.csv")
    assert "there is no judge 'nope'" in unknown.err, "before the runs are read"


def test_a_corpus_without_splits_is_told_the_command_that_makes_them(
    call: Call, root: Path, tmp_path: Path
) -> None:
    register_runs(Store(str(root)), "new", write_runs(tmp_path / "r.jsonl", tasks=3, attempts=1))
    answer = call("judge train new")
    assert answer.code == 2 and "run `certify run new`, or materialize" in answer.err
