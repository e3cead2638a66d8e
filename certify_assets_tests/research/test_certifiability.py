import json
import shutil
from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.specs import JUDGES, PROCEDURES
from certify_assets.operations.ledger import ledger_entries
from certify_assets.research.certifiability import (
    CERTIFIABILITY_KEY,
    doubts,
    fit_measured,
    gather_points,
    measure,
    write_certifiability,
)
from certify_assets.research.law import fit_law
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, score_as_base
from certify_assets_tests.conftest import copy_world


@pytest.fixture(scope="module")
def template(_small_corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = copy_world(_small_corpora, tmp_path_factory.mktemp("scored"))
    for corpus in ("one", "two", "three"):
        score_as_base(store, corpus)
    return Path(store.root)


@pytest.fixture
def scored(template: Path, tmp_path: Path) -> Store:
    """The three corpora with scores of base."""
    return Store(str(shutil.copytree(template, tmp_path / "scored")))


def test_a0_is_that_of_the_untrained_judge_alone(corpora: Store) -> None:
    with pytest.raises(InputError, match=r"base, whose AUROC is A₀, has not scored one; call "):
        measure(Corpus(corpora, "one"))
    score_as_base(corpora, "one")
    found = measure(Corpus(corpora, "one"))
    assert "AUROC: base on CAL;" in found.source
    area, of_lexical = (cal_auroc(corpora, judge) for judge in ("base", "lexical"))
    assert found.point.auroc == pytest.approx(area) and area < of_lexical
    some = write_certifiability(corpora)
    assert [item.point.corpus for item in some.measured] == ["one"] and some.law is None
    left_out = dict(some.left_out)
    assert "certify judge score two --judge base" in left_out["two"] and "three" in left_out
    score_as_base(corpora, "two")
    key = "judges/base/two/scores.json"
    corpora.write_json(key, {**corpora.read_json(key), "scores_sha256": "0" * 64})
    assert "base on two belong to another scores" in dict(gather_points(corpora)[1])["two"]


def cal_auroc(store: Store, judge: str) -> float:
    table = judged(store, "one", judge).score_table()
    cal = table[table["split"] == "cal"]
    return float(roc_auc_score(cal["outcome"].astype(int), cal["score"]))


def test_every_number_is_that_of_cal(scored: Store) -> None:
    found = measure(Corpus(scored, "one"))
    scores = judged(scored, "one").score_table()
    cal = scores[scores["split"] == "cal"]
    assert found.point.success_rate == pytest.approx(cal["outcome"].astype(int).mean())
    assert found.point.tasks == cal["task_id"].nunique()
    stored = scored.read_json("judges/lexical/one/certificates.json")["certificates"]
    coverage = {
        item["procedure"]: item["coverage"]
        for item in stored
        if item["side"] == "reject" and item["alpha"] == 0.1
    }
    assert found.point.coverage == coverage[PROCEDURES[0]] > 0
    assert found.best_judge == "lexical"
    assert found.without == tuple(name for name in JUDGES if name != "lexical")
    assert "without certificates that hold now: lexical_weighted" in found.source


def test_test_is_neither_read_nor_needed(scored: Store) -> None:
    before = measure(Corpus(scored, "two"))
    ledger = ledger_entries(Corpus(scored, "two"))
    scored.delete("corpora/two/splits/test.parquet")
    assert measure(Corpus(scored, "two")) == before
    assert ledger_entries(Corpus(scored, "two")) == ledger


@pytest.mark.slow
def test_corpora_without_valid_certificates_are_left_out_with_the_reason(scored: Store) -> None:
    measured, left_out = gather_points(scored)
    assert [item.point.corpus for item in measured] == ["one", "three", "two"]
    assert {corpus for corpus, _ in left_out} == {"miniwob_mixed", "miniwob_weak"}
    assert all("has not scored" in reason for _, reason in left_out)
    key = "judges/lexical/two/certificates.json"
    document = scored.read_json(key)
    document["certificates"][0]["coverage"] = 0.99
    scored.write_json(key, document)
    measured, left_out = gather_points(scored)
    assert [item.point.corpus for item in measured] == ["one", "three"]
    assert "was altered" in dict(left_out)["two"]


def test_the_document_holds_points_fit_reasons_and_the_paper(scored: Store) -> None:
    found = write_certifiability(scored)
    document = scored.read_json(CERTIFIABILITY_KEY)
    assert document == json.loads(json.dumps(found.to_dict()))
    assert found.law is not None and found.law == fit_law([item.point for item in found.measured])
    assert document["law"]["forms"][0]["slope"] == pytest.approx(found.law.slope, rel=1e-9)
    codes = [item["code"] for item in document["findings"]]
    assert codes[0] == "points" and codes[-3:] == ["untrained_base", "one_split", "best_of_judges"]
    said = doubts(scored)
    assert said[0] == "3 corpora are fewer than 7." and not any("A₀" in line for line in said)


def test_points_that_allow_no_fit_are_shown_all_the_same(scored: Store) -> None:
    measured, _ = gather_points(scored)
    few = fit_measured(measured[:2])
    assert few.law is None and "fitted to 2 corpora; give at least 3" in few.reason
    alike = fit_measured([measured[0]] * 3)
    assert alike.law is None and "two points" in alike.reason
    assert dict(few.findings)["no_law"].endswith(few.reason) and len(few.to_dict()["points"]) == 2
