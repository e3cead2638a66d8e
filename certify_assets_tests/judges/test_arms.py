"""Arms of GRPO: resumed after a kill, stale with another start, and chosen on CAL."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import certify
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.families import grpo
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.reward import ARMS
from certify_assets.judges.record import columns
from certify_assets.storage.store import Store
from certify_assets.work import Advance
from certify_assets_tests.arms_builders import CORPUS, TINY, small_corpus, start_judge

CANDIDATES = ["start", *(f"{arm}_1" for arm in ARMS)]


def judge_of(store: Store, **changes: Any) -> JudgedCorpus:
    return JudgedCorpus.of(Corpus(store, CORPUS), TINY.model_copy(update=changes))


@pytest.fixture(autouse=True)
def _one_step(one_step_arms: None) -> None:
    """Every test here is of a judge with one step an arm."""


@pytest.mark.slow
def test_a_training_that_was_stopped_ends_with_the_same_bytes(arms_store: Store) -> None:
    settings = {"steps": (1, 2), "rewards": (ARMS["accuracy"], ARMS["release_5"])}

    def stop(seen: Advance) -> None:
        if seen.stage == "grpo release_5" and seen.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_of(arms_store, name="cut", **settings).train(report=stop)
    assert not judge_of(arms_store, name="cut").is_trained
    steps: list[str] = []
    cut = judge_of(arms_store, name="cut", **settings).train(
        report=lambda seen: steps.append(seen.stage) if seen.stage.startswith("grpo") else None
    )
    assert "grpo accuracy" not in steps, "a finished arm is not trained again"
    whole = judge_of(arms_store, name="whole", **settings).train()
    assert cut.details["training"] == whole.details["training"]
    assert cut.selection == whole.selection and cut.adapter_sha256 == whole.adapter_sha256
    assert not arms_store.keeps_work(judge_of(arms_store, name="cut").key("training"))


@pytest.mark.slow
def test_the_arm_that_certifies_most_is_chosen_and_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fewer tasks certify nothing at the level of five candidates
    store = small_corpus(tmp_path, tasks=160)
    start_judge(store)
    strengths = {"start": 4.0, "reject_3_1": 6.0, "release_5_1": 0.0}
    tables: dict[str, pd.DataFrame] = {}

    def scored(judge: JudgedCorpus, name: str, *_: object) -> pd.DataFrame:
        table = judge.labelled_runs(["cal"])
        noise = np.random.default_rng(len(table)).normal(size=len(table))
        truth = table["outcome"].to_numpy(float)
        score = strengths.get(name, 1.0) * (2 * truth - 1) + noise
        tables[name] = table.assign(score=score)
        return tables[name]

    monkeypatch.setattr(grpo, "_calibration_scores", scored)
    record = judge_of(store).train()
    coverage = {row["name"]: row["coverage"] for row in record.selection}
    assert list(coverage) == CANDIDATES and record.candidates == len(CANDIDATES)
    assert {row["alpha"] for row in record.selection} == {0.2}
    for name in ("start", "reject_3_1"):
        found = certify(*columns(tables[name]), alpha=0.2, candidates=5)
        assert coverage[name] == found.coverage
    assert coverage[record.details["chosen"]] == max(coverage.values()) > 0
    assert record.details["training"]["arms"]["reject_3"] == {"lam": 1.0, "mu": 3.0}
    assert store.exists(judge_of(store).key("adapter", "adapter_model.safetensors"))
