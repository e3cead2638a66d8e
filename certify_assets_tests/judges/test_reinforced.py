"""Judges of the family grpo in judges.yaml: what is read, refused, recorded, and found stale."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.lm.grpo_config import ARMS, arm_of
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.reinforced import GrpoSpec, grpo_config
from certify_assets.judges.specs import JUDGES, families, judge_problems, judge_spec, judges
from certify_assets.storage.store import Store
from certify_assets_tests.arms_builders import CORPUS
from certify_assets_tests.builders import judged

TUNED: dict[str, Any] = {"name": "tuned", "family": "sft", "tokens": 512}
SAMPLED: dict[str, Any] = {"name": "sampled", "family": "grpo", "start": "tuned"}


def _write(root: Path, *entries: dict[str, Any]) -> str:
    root.mkdir(parents=True, exist_ok=True)
    (root / "judges.yaml").write_text(yaml.safe_dump({"judges": list(entries)}), "utf-8")
    return str(root)


def _read(root: Path, **settings: Any) -> GrpoSpec:
    where = _write(root, TUNED, {**SAMPLED, **settings})
    found = judge_spec("sampled", where)
    assert isinstance(found, GrpoSpec) and judge_problems(where) == ()
    return found


def test_a_judge_takes_model_and_reading_from_its_start(tmp_path: Path) -> None:
    found = _read(tmp_path)
    assert (found.model, found.reading.tokens, found.upstream) == ("compact", 512, "tuned")
    assert found.arms == tuple(ARMS) and found.candidates == JUDGES["grpo"].candidates == 9
    own = judge_spec("own", _write(tmp_path, {"name": "own", "family": "grpo"}))
    # the platform's, under another name
    assert own.registration() == JUDGES["grpo"].registration()
    assert own.reading == JUDGES["sft"].reading


def test_rewards_steps_and_samples_are_configuration(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        optimiser="trl",
        rewards=[{"mu": 3}, {"lambda": 2, "mu": 2.5}],
        steps=[20, 40],
        samples=4,
        prompts_per_step=3,
        learning_rate=1e-5,
    )
    assert found.rewards == (ARMS["reject_3"], arm_of(2, 2.5))
    assert found.arms == ("reject_3", "lambda_2_mu_2.5") and found.candidates == 5
    config = grpo_config(found)
    assert (config.evaluate_at, config.samples, config.global_batch) == ((20, 40), 4, 12)
    assert config.learning_rate == 1e-5
    assert "GRPO of TRL, 4 samples a prompt" in found.summary
    others = [
        _read(tmp_path, **change).registration()
        for change in (
            {},
            {"optimiser": "trl"},
            {"steps": [20]},
            {"samples": 4},
            {"prompts_per_step": 3},
            {"learning_rate": 1e-5},
            {"rewards": [{"mu": 3}]},
        )
    ]
    assert len({str(each) for each in [found.registration(), *others]}) == 8


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"start": "lexical"}, "name one of sft, tuned, or write it above"),
        ({"optimiser": "ppo"}, "is 'ppo'; give one of exact, trl"),
        ({"steps": [3, 2]}, "give whole numbers from 1, each once and in order"),
        ({"steps": 3}, "steps: input should be a valid list"),
        ({"samples": 1}, "samples of GRPO is 1; give a whole number of at least 2"),
        ({"learning_rate": 0}, "learning_rate of GRPO must be above 0"),
        ({"samples": 10**12}, "samples: input should be less than or equal to 10000"),
        ({"rewards": []}, "give at least one, and each pair of lambda and mu once"),
        ({"rewards": [{"mu": 3}, {"mu": 3}]}, "each pair of lambda and mu once"),
        ({"rewards": [{"mu": -1}]}, "give a finite number that is not negative"),
        ({"rewards": [{"cost": 3}]}, "rewards has no setting 'cost'; it has lambda, mu"),
        ({"model": "compact"}, "take model out, or write it there"),
        ({"beta": 1}, "a judge has no setting 'beta'; it has family, learning_rate"),
    ],
)
def test_what_cannot_be_trained_is_a_sentence(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    root = _write(tmp_path, TUNED, {**SAMPLED, **settings}, {"name": "later", "family": "sft"})
    assert "tuned" in judges(root) and "sampled" not in judges(root)
    (problem,) = judge_problems(root)
    assert sentence in problem and "judges.yaml, judge 'sampled': " in problem
    assert problem.endswith(".")


def _described(chosen: str, **training: Any) -> str:
    """The training line of a record of four steps of two prompts, on 208 runs of RL."""
    settings = GrpoSpec(
        name="sampled", summary="", model="compact", start="tuned", steps=(2, 4), prompts_per_step=2
    ).settings
    record = JudgeRecord(
        judge="sampled",
        corpus="c",
        adapter_sha256="",
        manifest_sha256="",
        renderer_sha256="",
        reads={},
        seed=42,
        sft_trajectories=496,
        sft_tasks=31,
        details={
            "chosen": chosen,
            "training": {**settings, "rl_trajectories": 208, **training},
        },
    )
    return families()["grpo"].describe(record)  # type: ignore[attr-defined, no-any-return]


def test_the_training_line_counts_what_was_read() -> None:
    by = "208 runs of RL by exact GRPO, the expectation over 8 samples a prompt"
    tuned = "496 runs of 31 SFT tasks"
    assert _described("reject_3_4") == f"{tuned}, then 8 prompts of {by}"
    assert _described("accuracy_2") == f"{tuned}, then 4 prompts of {by}"
    assert (
        _described("accuracy_4", rows=60)
        == f"{tuned}, of which a cap left 60, then 8 prompts of {by}"
    )
    kept = f"{tuned}; the start was kept, for no arm on {by} certified more"
    assert _described("start") == kept


def test_a_record_of_other_settings_is_stale_and_names_its_optimiser(arms_store: Store) -> None:
    # the platform's judge under another name, as if this document had asked for it
    entry = {"name": "own", "family": "grpo", "steps": [1]}
    own = judge_spec("own", _write(Path(arms_store.root), entry))
    document = arms_store.read_json(f"judges/grpo/{CORPUS}/adapter.json")
    document["registered"] = own.registered
    arms_store.write_json(f"judges/own/{CORPUS}/adapter.json", document)
    record = judged(arms_store, CORPUS, "own").artifact
    words = "exact GRPO, the expectation over 8 samples a prompt"
    family = judged(arms_store, CORPUS, "own").family
    assert words in family.describe(record) and family.provenance(record) == {"optimiser": words}
    for change, named in (
        ({"optimiser": "trl"}, "optimiser"),
        ({"steps": [1, 2]}, "steps"),
        ({"rewards": [{"mu": 3}]}, "rewards"),
    ):
        _write(Path(arms_store.root), {**entry, **change})
        with pytest.raises(StaleCertificateError, match=f"another {named} than judges.yaml"):
            _ = judged(arms_store, CORPUS, "own").artifact


def test_words_of_several_tokens_are_refused_before_the_start_is_trained(corpora: Store) -> None:
    # they share their first tokens, and neither begins the other
    alike = {**TUNED, "prompt": {"success": " zq1", "fail": " zq2"}}
    root = Path(_write(Path(corpora.root), alike, SAMPLED))
    said = r"the verdicts are the tokens \(.*GRPO reads one token each, so choose words that are"
    with pytest.raises(InputError, match=said):
        judged(corpora, "three", "sampled").train()
    with pytest.raises(InputError, match=f"sampled is to start from tuned, and {said}"):
        judged(corpora, "three", "tuned").train()
    assert not corpora.names(judged(corpora, "three", "tuned").key())
    # as they come they are read by all of their tokens
    _write(root, {**alike, "family": "base"})
    judge = judged(corpora, "three", "tuned")
    judge.train()
    runs = judge.corpus.split("cal").head(3)
    assert judge.score_runs(runs)[0]["score"].abs().gt(0).all()


def test_a_start_that_is_not_trained_is_named_with_its_command(corpora: Store) -> None:
    judge = judged(corpora, "three", "grpo")
    with pytest.raises(InputError, match=r"run `certify judge train three --judge sft` first\.$"):
        judge.train()
