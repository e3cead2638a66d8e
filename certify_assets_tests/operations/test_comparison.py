"""Judges of small corpora compared: figures of certificates and scores, and what is missing."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.specs import JUDGES
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.comparison import (
    CONTROLS,
    MAIN_TABLE_KEY,
    beaten_by_controls,
    compare,
    comparison_key,
    labelled_rows,
    unscored_sentences,
    write_comparison,
    write_main_table,
)
from certify_assets.operations.ledger import ledger_entries
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged


def row_of(document: dict[str, Any], judge: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in document["rows"] if row["judge"] == judge)
    return found


def rescore(store: Store, corpus: str, judge: str, change: Any) -> None:
    """Store changed scores as a judge would have: with their hash."""
    folder = f"judges/{judge}/{corpus}"
    table = store.read_table(f"{folder}/scores.parquet")
    sha256 = store.write_table(f"{folder}/scores.parquet", change(table))
    store.write_json(
        f"{folder}/scores.json",
        {**store.read_json(f"{folder}/scores.json"), "scores_sha256": sha256},
    )


def test_figures_are_those_of_scores_and_certificates(corpora: Store) -> None:
    document = compare(Corpus(corpora, "one"))
    row = row_of(document, "lexical")
    scores = judged(corpora, "one").score_table()
    cal = scores[scores["split"] == "cal"]
    outcome = cal["outcome"].astype(int)
    assert row["auroc"]["cal"]["value"] == pytest.approx(
        roc_auc_score(outcome, cal["score"]), rel=1e-9
    )
    won = pairs = 0.0
    for _, task in cal.groupby("task_id"):
        good, bad = (task.loc[task["outcome"] == side, "score"].to_numpy() for side in (1, 0))
        pairs += good.size * bad.size
        won += ((good[:, None] > bad) + 0.5 * (good[:, None] == bad)).sum()
    assert row["within_task"]["cal"]["pairs"] == pairs
    assert row["within_task"]["cal"]["value"] == pytest.approx(won / pairs, rel=1e-9)
    stored = corpora.read_json("judges/lexical/one/certificates.json")["certificates"]
    deciding = {
        (item["side"], item["alpha"]): item
        for item in stored
        if item["procedure"] == document["procedure"]
    }
    assert len(row["certified"]) == len(deciding) == 4
    assert any(cell["certified"] for cell in row["certified"])
    for cell in row["certified"]:
        item = deciding[cell["side"], cell["alpha"]]
        assert cell["certified"] == item["certified"]
        assert cell["coverage"] == item["coverage"]
        assert cell["candidates"] == item["candidates"]
    assert row["cost"]["train"]["cpu_seconds"] > 0 and row["cost"]["cpu_seconds_per_trajectory"] > 0
    assert row["cost"]["tokens_per_decision"] is None and row["auroc"]["rl"]["value"] is None, (
        "this corpus has no RL split"
    )


def test_controls_are_compared_like_judges_in_their_better_direction(corpora: Store) -> None:
    document = compare(Corpus(corpora, "one"))
    cal = labelled_rows(Corpus(corpora, "one"), "cal")
    steps = roc_auc_score(cal["outcome"].astype(int), cal["steps"].map(len))
    assert row_of(document, "step_count")["auroc"]["cal"]["value"] == pytest.approx(
        max(steps, 1 - steps), rel=1e-9
    )
    for name in CONTROLS:
        row = row_of(document, name)
        assert row["family"] == "control"
        assert row["certified"] == []
        assert row["auroc"]["cal"]["value"] >= 0.5
        (against,) = (
            item
            for item in document["differences"]
            if (item["judge"], item["against"]) == ("lexical", name)
        )
        mine, theirs = (
            row_of(document, judge)["auroc"]["cal"]["value"] for judge in ("lexical", name)
        )
        assert against["difference"] == pytest.approx(mine - theirs, abs=1e-9)
        assert against["low"] < against["difference"] < against["high"]


def test_judges_that_are_not_there_are_named_and_a_stale_certificate_gives_its_reason(
    corpora: Store,
) -> None:
    missing = {
        (item["judge"], item["what"]): item["reason"]
        for item in compare(Corpus(corpora, "two"))["missing"]
    }
    assert {judge for judge, what in missing if what == "scores"} == set(JUDGES) - {"lexical"}
    assert missing["base", "scores"] == "not scored"
    assert ("lexical", "audit") in missing
    rescore(corpora, "two", "lexical", lambda table: table.assign(score=table["score"] + 1))
    document = compare(Corpus(corpora, "two"))
    missing = {(item["judge"], item["what"]): item["reason"] for item in document["missing"]}
    assert "another scores" in missing["lexical", "certificate"]
    assert row_of(document, "lexical")["certified"] == []
    corpora.delete("judges/lexical/two/scores.json")
    with pytest.raises(InputError, match="no judge has current scores on two"):
        compare(Corpus(corpora, "two"))


def test_test_is_what_the_audit_read_and_nothing_else(corpora: Store) -> None:
    assert row_of(compare(Corpus(corpora, "one")), "lexical")["auroc"]["test"] is None
    result = audit_judge(judged(corpora, "one"))
    ledger = ledger_entries(Corpus(corpora, "one"))
    corpora.delete("corpora/one/splits/test.parquet")
    row = row_of(compare(Corpus(corpora, "one")), "lexical")
    assert ledger_entries(Corpus(corpora, "one")) == ledger
    assert row["auroc"]["test"]["value"] == pytest.approx(
        roc_auc_score(result.scores["outcome"].astype(int), result.scores["score"]), rel=1e-9
    )
    audits = {audit.certificate_sha256: audit for audit in result.audits}
    for cell in (cell for cell in row["certified"] if cell["certified"]):
        audit = audits[cell["certificate_sha256"]]
        assert cell["audit"] == audit.verdict
        assert cell["test_error"] == pytest.approx(audit.realized_error, rel=1e-9)
        assert cell["test_coverage"] == pytest.approx(audit.coverage, rel=1e-9)
    with pytest.raises(InputError, match="through the ledger"):
        labelled_rows(Corpus(corpora, "one"), "test")


def test_rows_without_a_score_are_left_out_counted_and_said(corpora: Store) -> None:
    assert unscored_sentences(compare(Corpus(corpora, "two"))) == []
    rescore(
        corpora,
        "two",
        "lexical",
        lambda table: table.assign(score=table["score"].where(table.index % 5 != 0)),
    )
    document = compare(Corpus(corpora, "two"))
    row = row_of(document, "lexical")
    assert 0 < row["unscored"] < row["rows"]
    assert str(row["unscored"]) in unscored_sentences(document)[0]
    assert {item["rows"] for item in document["differences"]} == {row["rows"] - row["unscored"]}
    assert "unscored" in {item["code"] for item in document["findings"]}


@pytest.mark.slow
def test_what_does_not_help_is_said(corpora: Store) -> None:
    judged(corpora, "one", "lexical_weighted").train()
    judged(corpora, "one", "lexical_weighted").score()
    rng = np.random.default_rng(0)
    rescore(
        corpora,
        "one",
        "lexical_weighted",
        lambda table: table.assign(score=rng.normal(size=len(table))),
    )
    certifier.certify_judge(judged(corpora, "one", "lexical_weighted"))
    said = {item["code"]: item["message"] for item in compare(Corpus(corpora, "one"))["findings"]}
    assert "lexical_weighted ranks worse than lexical on CAL" in said["not_above_floor"]
    assert "less than the lexical floor" in said["coverage_not_above_floor"]
    assert "4 candidates" in said["chosen_on_cal"]


@pytest.mark.parametrize(
    ("changed", "control", "said"),
    [
        ({"model": "compact"}, "agent_only", ["said"]),
        ({"family": "combined"}, "step_count", ["said"]),
        ({"family": "lexical"}, "step_count", []),
    ],
)
def test_a_judge_that_does_not_beat_its_controls_is_named(
    corpora: Store, changed: dict[str, str], control: str, said: list[str]
) -> None:
    document = compare(Corpus(corpora, "one"))
    assert beaten_by_controls(document) == [], "the lexical judge is no language model"
    row_of(document, "lexical").update(changed)
    assert beaten_by_controls(document) == [], "it beats them"
    for item in document["differences"]:
        if item["against"] == control:
            item |= {"verdict": "level", "sentence": "said"}
    assert beaten_by_controls(document) == said


def test_the_documents_are_the_same_bytes_again_and_the_table_holds_every_corpus(
    corpora: Store,
) -> None:
    write_comparison(Corpus(corpora, "one"))
    before = corpora.sha256(comparison_key("one"))
    write_comparison(Corpus(corpora, "one"))
    assert corpora.sha256(comparison_key("one")) == before
    document = write_main_table(corpora)
    assert document == corpora.read_json(MAIN_TABLE_KEY)
    assert [item["corpus"] for item in document["corpora"]] == ["one", "three", "two"]
    assert {item["corpus"] for item in document["left_out"]} == {"miniwob_mixed", "miniwob_weak"}
    assert document["corpora"][0] == corpora.read_json(comparison_key("one"))
