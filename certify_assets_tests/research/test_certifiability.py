import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from certify_assets.corpora.corpus import Corpus
from certify_assets.evaluation import certification
from certify_assets.judges.specs import JUDGES, PROCEDURES
from certify_assets.research.certifiability import (
    CERTIFIABILITY_KEY,
    base_judge,
    doubts,
    fit_measured,
    gather_points,
    measure,
    write_certifiability,
)
from certify_assets.research.law import fit_law
from certify_assets.research.pages.law_page import render_law
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged


def score_as_base(store: Store, corpus: str) -> None:
    """Let base have scored and certified a corpus: the lexical judge's files under its name, with
    scores that rank worse.
    """
    for name in ("adapter", "scores"):
        store.write_json(
            f"judges/base/{corpus}/{name}.json",
            store.read_json(f"judges/lexical/{corpus}/{name}.json"),
        )
    table = store.read_table(f"judges/lexical/{corpus}/scores.parquet")
    noise = np.random.default_rng(0).normal(0, 2 * table["score"].std(), len(table))
    sha256 = store.write_table(
        f"judges/base/{corpus}/scores.parquet", table.assign(score=table["score"] + noise)
    )
    key = f"judges/base/{corpus}/scores.json"
    store.write_json(key, {**store.read_json(key), "scores_sha256": sha256})


@pytest.mark.slow
def test_a0_is_that_of_the_untrained_judge_where_it_has_scored(corpora: Store) -> None:
    assert not JUDGES["base"].chooses and not JUDGES["lexical"].chooses, "neither was picked on CAL"
    lexical = measure(Corpus(corpora, "one"))
    assert base_judge(Corpus(corpora, "one")) == lexical.base_judge == "lexical"
    assert not lexical.untrained
    score_as_base(corpora, "one")
    scored = measure(Corpus(corpora, "one"))
    assert base_judge(Corpus(corpora, "one")) == scored.base_judge == "base"
    assert "AUROC: base on CAL;" in scored.source
    table = judged(corpora, "one", "base").score_table()
    cal = table[table["split"] == "cal"]
    assert scored.point.auroc == pytest.approx(
        roc_auc_score(cal["outcome"].astype(int), cal["score"])
    )
    assert scored.point.auroc < lexical.point.auroc
    # base is not certified: everything else is as it was
    assert replace(scored.point, auroc=lexical.point.auroc) == lexical.point
    assert scored.certificate_sha256 == lexical.certificate_sha256
    mixed = write_certifiability(corpora)
    assert "base on 1 of 3 corpora" in dict(mixed.findings)["two_base_judges"]
    assert any("two kinds of points" in said for said in doubts(corpora))
    for corpus in ("two", "three"):
        score_as_base(corpora, corpus)
    untrained = write_certifiability(corpora)
    assert "base_judge" not in dict(untrained.findings)
    assert "not fine-tuned" in dict(untrained.findings)["untrained_base"]
    assert not any("A₀" in said for said in doubts(corpora))
    page = render_law(untrained)
    assert page.count("<small>base</small>") == 3 and "not fine-tuned on the corpus" in page
    corpora.write_json(
        "judges/base/two/scores.json",
        {**corpora.read_json("judges/base/two/scores.json"), "scores_sha256": "0" * 64},
    )
    assert "base on two belong to another scores" in dict(gather_points(corpora)[1])["two"]


def test_a_certified_base_is_read_without_a_lexical_judge(corpora: Store) -> None:
    score_as_base(corpora, "one")
    certification.certify_judge(judged(corpora, "one", "base"))
    corpora.delete("judges/lexical/one/certificates.json")
    found = measure(Corpus(corpora, "one"))
    assert found.base_judge == "base" and "lexical" in found.without and "base" not in found.without


def test_every_number_is_that_of_cal(corpora: Store) -> None:
    found = measure(Corpus(corpora, "one"))
    scores = judged(corpora, "one").score_table()
    cal = scores[scores["split"] == "cal"]
    outcome = cal["outcome"].astype(int)
    assert found.point.auroc == pytest.approx(roc_auc_score(outcome, cal["score"]))
    assert found.point.success_rate == pytest.approx(outcome.mean())
    assert found.point.tasks == cal["task_id"].nunique()
    stored = corpora.read_json("judges/lexical/one/certificates.json")["certificates"]
    reject = {
        item["procedure"]: item
        for item in stored
        if item["side"] == "reject" and item["alpha"] == 0.1
    }
    assert found.point.coverage == reject[PROCEDURES[0]]["coverage"] > 0
    assert found.best_judge == "lexical"
    assert found.plain_coverage == reject["taskboot"]["coverage"]
    assert found.without == tuple(name for name in JUDGES if name != "lexical")
    assert "AUROC: lexical on CAL" in found.source
    assert "without certificates that hold now: lexical_weighted" in found.source


def test_test_is_neither_read_nor_needed(corpora: Store) -> None:
    before = measure(Corpus(corpora, "two"))
    ledger = corpora.read_bytes("ledger/two.jsonl")
    corpora.delete("corpora/two/splits/test.parquet")
    assert measure(Corpus(corpora, "two")) == before
    assert corpora.read_bytes("ledger/two.jsonl") == ledger


@pytest.mark.slow
def test_corpora_without_valid_certificates_are_left_out_with_the_reason(corpora: Store) -> None:
    measured, left_out = gather_points(corpora)
    assert [item.point.corpus for item in measured] == ["one", "three", "two"]
    assert {corpus for corpus, _ in left_out} == {"miniwob_mixed", "miniwob_weak"}
    assert all("has no certificates" in reason for _, reason in left_out)
    key = "judges/lexical/two/certificates.json"
    document = corpora.read_json(key)
    document["certificates"][0]["coverage"] = 0.99
    corpora.write_json(key, document)
    measured, left_out = gather_points(corpora)
    assert [item.point.corpus for item in measured] == ["one", "three"]
    assert "coverage is 0.99" in dict(left_out)["two"]


def test_the_document_holds_points_fit_reasons_and_the_paper(corpora: Store) -> None:
    found = write_certifiability(corpora)
    document = corpora.read_json(CERTIFIABILITY_KEY)
    assert document == json.loads(json.dumps(found.to_dict()))
    assert found.law is not None
    assert document["law"]["forms"][0]["slope"] == pytest.approx(found.law.slope, rel=1e-9)
    assert fit_law([item.point for item in found.measured]) == found.law
    assert document["paper"]["published"]["law"] == {"r2": 0.977, "loocv_r2": 0.964, "mae": 0.039}
    codes = [item["code"] for item in document["findings"]]
    assert codes[0] == "points" and codes[-3:] == ["base_judge", "one_split", "best_of_judges"]
    said = doubts(corpora)
    assert said[0] == "3 corpora are fewer than 7."
    assert any("lexical, which is trained on SFT" in line for line in said)


def test_points_that_allow_no_fit_are_shown_all_the_same(corpora: Store) -> None:
    measured, _ = gather_points(corpora)
    few = fit_measured(measured[:2])
    assert few.law is None and "on 3 corpora and here are 2" in few.reason
    alike = fit_measured([measured[0]] * 3)
    assert alike.law is None and "two points" in alike.reason
    assert dict(few.findings)["no_law"].endswith(few.reason) and len(few.to_dict()["points"]) == 2
