"""Arms of GRPO: trained once, resumed after a kill, and chosen on CAL."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from certify_assets.certificates import certify
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError, StaleCertificateError
from certify_assets.judges import arms
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.reward import ARMS
from certify_assets.judges.record import columns
from certify_assets.judges.reinforced import Candidate, candidates
from certify_assets.judges.specs import JudgeSpec
from certify_assets.storage.store import Store
from certify_assets.work import Advance
from certify_assets_tests.arms_builders import CORPUS, TINY, chosen_arm, start_judge
from certify_assets_tests.builders import judged

CANDIDATES = ["start", *(f"{arm}_1" for arm in ARMS)]
ARM = f"judges/grpo/{CORPUS}/arms/reject_3"


def grpo(store: Store, spec: JudgeSpec = TINY) -> JudgedCorpus:
    return JudgedCorpus.of(Corpus(store, CORPUS), spec)


@pytest.fixture(autouse=True)
def _one_step(one_step_arms: None) -> None:
    """Every test here is of a judge with one step an arm."""


def noting(steps: list[int]) -> Callable[[Advance], None]:
    """Note the steps of a training, not the rows of its scoring."""
    return lambda seen: steps.append(seen.done) if seen.stage.startswith("grpo") else None


@pytest.mark.slow
def test_a_finished_arm_is_taken_up_and_another_configuration_is_another_arm(
    arms_store: Store,
) -> None:
    before = arms.ArmRecord(**arms_store.read_json(f"{ARM}/arm.json"))
    steps: list[int] = []
    assert arms.train_arm(grpo(arms_store), "reject_3", report=noting(steps)) == before
    assert steps == [], "nothing was trained"
    assert before.steps.keys() == {"1"}
    assert before.inputs["reward"] == {"lam": 1.0, "mu": 3.0}
    assert not arms_store.exists(f"{ARM}/checkpoint")
    other = arms.train_arm(
        grpo(arms_store, TINY.model_copy(update={"seed": 7})), "reject_3", report=noting(steps)
    )
    assert steps == [1] and other.key != before.key and other.steps != before.steps
    again = arms.train_arm(grpo(arms_store), "reject_3")
    assert again == before, "the same key gives the same bytes"


@pytest.mark.slow
def test_another_start_makes_other_arms_and_the_chosen_one_is_stale(arms_store: Store) -> None:
    start_judge(arms_store, seed=1)
    with pytest.raises(StaleCertificateError, match="started from another sft judge"):
        _ = grpo(arms_store).artifact


@pytest.mark.slow
def test_an_arm_that_was_stopped_goes_on_and_ends_with_the_same_bytes(arms_store: Store) -> None:
    whole, cut = (
        TINY.model_copy(update={"name": name, "steps": (1, 2)}) for name in ("whole", "cut")
    )

    def stop(seen: Advance) -> None:
        if seen.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arms.train_arm(grpo(arms_store, cut), "release_5", report=stop)
    folder = f"judges/cut/{CORPUS}/arms/release_5"
    assert (arms_store.scratch(folder) / "step_1/provenance.json").is_file()
    assert not arms_store.exists(f"{folder}/arm.json")
    steps: list[int] = []
    found = arms.train_arm(grpo(arms_store, cut), "release_5", report=noting(steps))
    assert steps == [2], "the first step was not taken again"
    expected = arms.train_arm(grpo(arms_store, whole), "release_5")
    assert found == expected
    for step in (1, 2):
        name = f"arms/release_5/step_{step}/adapter_model.safetensors"
        assert arms_store.read_bytes(f"judges/cut/{CORPUS}/{name}") == arms_store.read_bytes(
            f"judges/whole/{CORPUS}/{name}"
        )


@pytest.mark.slow
def test_what_was_altered_is_refused(arms_store: Store) -> None:
    weights = f"{ARM}/step_1/adapter_model.safetensors"
    kept = arms_store.read_bytes(weights)
    arms_store.write_bytes(weights, kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(IntegrityError, match="not the one its provenance names"):
        arms.train_arm(grpo(arms_store), "reject_3")
    arms_store.write_bytes(weights, kept)
    with pytest.raises(
        InputError, match="there is no arm 'nobody'; name one of accuracy, reject_3"
    ):
        arms.train_arm(grpo(arms_store), "nobody")


def rescore(store: Store, candidate: Candidate, strength: float) -> None:
    """Replace the scores of a candidate by those that know the outcome to a degree."""
    key = f"judges/grpo/{CORPUS}/arms/{candidate.arm}/cal_{candidate.step}"
    table = arms.scored_candidate(grpo(store), candidate)
    noise = np.random.default_rng(len(table)).normal(size=len(table))
    truth = table["outcome"].to_numpy(float)
    sha256 = store.write_table(
        f"{key}.parquet", table.assign(score=strength * (2 * truth - 1) + noise)
    )
    store.write_json(f"{key}.json", {**store.read_json(f"{key}.json"), "scores_sha256": sha256})


@pytest.mark.slow
def test_the_arm_that_certifies_most_is_chosen_and_paid_for(tmp_path: Path) -> None:
    # fewer tasks certify nothing at the level of five candidates
    store = chosen_arm(tmp_path, tasks=160)
    strengths = {"start": 4.0, "reject_3_1": 6.0, "release_5_1": 0.0}
    for each in candidates(TINY):
        rescore(store, each, strengths.get(each.name, 1.0))
    record = judged(store, CORPUS, "grpo").train()
    coverage = {row["name"]: row["coverage"] for row in record.selection}
    assert list(coverage) == CANDIDATES and record.candidates == len(CANDIDATES)
    assert {row["alpha"] for row in record.selection} == {0.2}
    for each in (Candidate("start"), Candidate("reject_3", 1)):
        cal = columns(arms.scored_candidate(grpo(store), each))
        assert coverage[each.name] == certify(*cal, alpha=0.2, candidates=5).coverage
    assert coverage[record.details["chosen"]] == max(coverage.values()) > 0
