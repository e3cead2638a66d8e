"""A family is one module: one made up here is trained, scored, certified, audited and deployed."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import numpy as np
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.judges.assets import judge_assets
from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges import specs
from certify_assets.judges.base import JudgeProvenance, Scores, scores_from_log_odds
from certify_assets.judges.family import JudgeFamily, judge_family
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.reading import JudgeInput
from certify_assets.judges.record import JudgeRecord, save_files, texts
from certify_assets.judges.specs import JudgeSpec, families, judge_spec, platform_judges
from certify_assets.judges.timings import timings
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.recertification import to_recertify
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged

CORPUS, NAME = "one", "bayes"


@dataclass(frozen=True)
class BayesJudge:
    """Naive Bayes on the words of a text."""

    weights: Mapping[str, float]
    name: str = NAME

    def save(self, folder: Path) -> None:
        write_atomic(folder / "words.json", canonical_json(dict(self.weights)))

    def provenance(self) -> JudgeProvenance:
        return JudgeProvenance(
            self.name,
            sha256_bytes(canonical_json(dict(self.weights))),
            JudgeInput().renderer.sha256,
            "bayes/1",
            "float64",
        )

    def score(self, texts: Sequence[str]) -> Scores:
        found = [sum(self.weights.get(word, 0.0) for word in set(text.split())) for text in texts]
        return scores_from_log_odds(np.array(found, dtype=np.float64))


class BayesSpec(JudgeSpec):
    """A naive-Bayes judge."""

    family: Literal["bayes"] = "bayes"
    smoothing: float = 1.0


class BayesFamily(JudgeFamily):
    judges = (BayesSpec(name=NAME, summary="Naive Bayes on words."),)

    def train(self, judge: JudgedCorpus, *, report: Any) -> JudgeRecord:
        sft, spec = judge.corpus.split("sft"), judge.spec
        assert isinstance(spec, BayesSpec)
        known = sft[sft["outcome"].notna()]
        counts: dict[int, Counter[str]] = {0: Counter(), 1: Counter()}
        for text, outcome in zip(
            texts(known, JudgeInput().renderer), known["outcome"], strict=True
        ):
            counts[int(outcome)].update(set(text.split()))
        weights = {
            word: math.log(counts[1][word] + spec.smoothing)
            - math.log(counts[0][word] + spec.smoothing)
            for word in sorted({*counts[0], *counts[1]})
        }
        stored = save_files(judge.store, judge.key("adapter"), BayesJudge(weights))
        return judge.record(stored, sft)

    def load(
        self, judge: JudgedCorpus, *, expected_sha256: str, resume: bool, replay: bool
    ) -> BayesJudge:
        if self.fingerprint(judge, judge.stored_artifact) != expected_sha256:
            raise IntegrityError("the words of the judge were altered; train it again.")
        with judge.store.as_folder(judge.key("adapter")) as folder:
            return BayesJudge(read_json(folder / "words.json"))


@pytest.fixture
def bayes(monkeypatch: pytest.MonkeyPatch) -> Iterator[BayesSpec]:
    """The family, registered for one test."""
    monkeypatch.setattr(specs, "_FAMILIES", dict(families()))
    known = dict(platform_judges())
    judge_family("bayes")(BayesFamily)
    yield BayesFamily.judges[0]
    platform_judges().clear()
    platform_judges().update(known)


@pytest.mark.slow
def test_a_new_family_goes_from_training_to_deployment(corpora: Store, bayes: BayesSpec) -> None:
    from certify_assets.operations.rollout import deploy

    judge = judged(corpora, CORPUS, NAME)
    record = judge.train()
    assert record == judge.artifact and judge.family.describe(record).endswith("SFT tasks")
    table = judge.score()
    assert np.isfinite(table["score"]).all()
    certificates = certifier.certify_judge(judge)
    assert certifier.load_certificates(judge) == certificates
    assert certifier.verify_stored(judge) == []
    assert {item.candidates for item in certificates} == {1}
    assert judge.calibration[0]["score"].tolist() == judge.rescored().tolist()
    assert audit_judge(judge).entry.kind == "first"
    assert set(timings(judge)) == {"train", "score"}
    assert any(item.certified for item in certificates)
    assert deploy(judge, accepted=["chosen_among_judges"]).judge == NAME


def test_a_new_family_is_in_every_list(corpora: Store, bayes: BayesSpec) -> None:
    assert judge_spec(NAME) is bayes and list(specs.JUDGES)[-1] == NAME
    assert NAME in specs.QUICK_JUDGES and bayes.upstream == "" and not bayes.chooses
    keys = {key for assets in judge_assets() for key in assets.keys}
    parts = ("model", "scores", "certificate", "audit", "report")
    assert {dg.AssetKey(["judges", NAME, part]) for part in parts} <= keys
    assert NAME in to_recertify(Corpus(corpora, CORPUS))[0]
    assert bayes.registration() == {
        "family": "bayes",
        "model": "",
        "revision": None,
        "start": "",
        "smoothing": 1.0,
    }
