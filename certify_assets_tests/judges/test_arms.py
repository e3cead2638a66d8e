"""Arms of GRPO: resumed after a kill, stale with another start, and chosen on CAL."""

from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.reward import ARMS
from certify_assets.storage.store import Store
from certify_assets.work import Advance
from certify_assets_tests.arms_builders import CORPUS, TINY

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
