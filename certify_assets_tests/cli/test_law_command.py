import json
from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.builders import score_as_base
from certify_assets_tests.cli.calling import Call

TABLE = (
    "corpus,success_rate,auroc,coverage,n_eff\n"
    "a,.2,.9,.6,40\nb,.5,.8,.3,60\nc,.7,.6,0,80\nd,.4,.85,.35,90\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    path.write_text(TABLE, "utf-8")
    return path


def test_a_table_of_points_as_json_and_file(call: Call, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "law.json"
    answer = call(f"research law {table} --json --out {out}")
    assert answer.code == 0 and json.loads(out.read_text("utf-8")) == answer.json
    assert [point["corpus"] for point in answer.json["points"]] == ["a", "b", "c", "d"]
    assert {fit["form"] for fit in answer.json["law"]["forms"]} >= {"law", "parameter_free"}
    assert answer.json["findings"][0]["code"] == "points" and "published" not in answer.json


def test_a_prediction_comes_with_what_it_rests_on(call: Call, table: Path) -> None:
    asked = f"research law {table} --success-rate 0.9 --auroc 0.55"
    found = call(f"{asked} --json").json["prediction"]
    assert found["extrapolates"]
    assert 0 <= found["low"] <= found["coverage"] <= found["high"] <= found["ceiling"]
    text = call(asked).out
    assert all(sentence in text for sentence in found["sentences"])
    assert text.count("4 corpora, fewer than the paper's 7") == 1


@pytest.mark.slow
def test_the_corpora_of_the_data_root(call: Call, corpora: Store) -> None:
    for corpus in ("one", "two", "three"):
        score_as_base(corpora, corpus)
    asked = f"research law --root {corpora.root}"
    points = call(f"{asked} --json").json["points"]
    assert [point["corpus"] for point in points] == ["one", "three", "two"]
    for point in points:
        assert "CAL" in point["source"] and "TEST" not in point["source"]
    assert "Left out: miniwob_mixed: base, whose AUROC is A₀, has not scored" in call(asked).out


def test_a_data_root_with_too_little_is_exit_three(call: Call, tmp_path: Path) -> None:
    answer = call(f"research law --root {tmp_path}/root")
    assert answer.code == 3 and "fitted to 0 corpora; give at least 3" in answer.out
    refused = call(f"research law --root {tmp_path}/root --success-rate 0.3 --auroc 0.8")
    assert refused.code == 2 and "--paper" in refused.err and not refused.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--paper --auroc 0.8", "A prediction needs --success-rate"),
        ("--paper --success-rate 30 --auroc 0.8", "30.0 is not in the range 0<=x<=1"),
        ("{table} --paper", "POINTS and --paper exclude each other"),
        ("{table} --out {table}", "would be overwritten"),
        ("missing.csv", "does not exist"),
        ("points.odt", "does not end in"),
    ],
)
def test_refusals(call: Call, table: Path, arguments: str, words: str) -> None:
    answer = call(f"research law {arguments}".format(table=table))
    assert answer.code == 2 and words in answer.err and not answer.out
    assert len(answer.err.splitlines()) == 1
