"""Several judges certified on one split: the one named beforehand, a choice, and its price."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import remove_corpus, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.certified_before import CertifiedJudges, certified_judges
from certify_assets.operations.certifier import certify_judge, load_certificates
from certify_assets.operations.deploying import deploy
from certify_assets.operations.deployment import DeploymentRecord
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs

_REFUSED = r"\(combined, lexical\), but δ was divided by 1. The judge named beforehand is combined"


def _certify(store: Store, judge: str, corpus: str = "c") -> None:
    if not judged(store, corpus, judge).is_trained:
        judged(store, corpus, judge).train()
        judged(store, corpus, judge).score()
    certify_judge(judged(store, corpus, judge))
    audit_judge(judged(store, corpus, judge))


def _codes(made: DeploymentRecord) -> set[str]:
    return {finding["code"] for finding in made.findings}


def test_the_judge_named_beforehand_is_deployed_and_another_one_is_a_choice(
    operated: Store,
) -> None:
    _certify(operated, "combined")
    assert certified_judges(Corpus(operated, "c")) == CertifiedJudges(
        ("combined", "lexical"), "combined"
    )
    with pytest.raises(GateClosedError, match=_REFUSED):
        deploy(judged(operated), track=False)
    assert "chosen_among_judges" not in _codes(
        deploy(judged(operated, judge="combined"), track=False)
    )
    assert "chosen_among_judges" in _codes(
        deploy(judged(operated), accepted=["chosen_among_judges"], track=False)
    )


@pytest.mark.slow
def test_a_name_that_comes_after_a_certificate_changes_nothing(operated: Store) -> None:
    _certify(operated, "combined")
    corpus = Corpus(operated, "c")
    save_config(operated, replace(corpus.config, judge="lexical"))
    _certify(operated, "lexical")
    with pytest.raises(GateClosedError, match=_REFUSED):
        deploy(judged(operated), track=False)


@pytest.mark.slow
def test_judges_of_the_same_split_under_another_name_count_and_outlast_it(
    operated: Store,
) -> None:
    path = Path(Corpus(operated, "c").config.paths[0])
    seed = Corpus(operated, "c").config.seed
    register_runs(
        operated, "same", path, seed=seed, rl=Corpus(operated, "c").config.rl, judge="lexical"
    )
    Corpus(operated, "same").prepare()
    _certify(operated, "lexical", "same")
    # the same judge under another name of the corpus is no other judge
    assert certified_judges(Corpus(operated, "c")).judges == ("lexical",)
    _certify(operated, "combined", "same")
    remove_corpus(operated, "same")
    assert certified_judges(Corpus(operated, "c")) == CertifiedJudges(
        ("combined", "lexical"), "combined"
    )
    with pytest.raises(GateClosedError, match=_REFUSED):
        deploy(judged(operated), track=False)


@pytest.mark.slow
def test_a_choice_that_its_certificates_pay_for_is_deployed(operated: Store) -> None:
    def coverage() -> dict[tuple[str, str, float], float]:
        return {
            (item.procedure, item.side, item.alpha): item.coverage if item.certified else 0.0
            for item in load_certificates(judged(operated))
        }

    before = coverage()
    save_config(operated, replace(Corpus(operated, "c").config, judges_compared=2))
    _certify(operated, "lexical")
    _certify(operated, "combined")
    assert {item.candidates for item in load_certificates(judged(operated))} == {2}
    assert all(coverage()[name] <= before[name] for name in before)
    assert "chosen_among_judges" not in _codes(deploy(judged(operated), track=False))
