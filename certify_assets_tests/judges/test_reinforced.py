"""Judges of the family grpo in judges.yaml: what is read, refused, recorded, and found stale."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets.errors import InputError, StaleCertificateError
from certify_assets.judges.families.grpo import GrpoSpec
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.reward import ARMS
from certify_assets.judges.specs import JUDGES, judge_problems, judge_spec, judges, upstream
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
    assert (found.model, found.reading.tokens, upstream(found)) == ("compact", 512, "tuned")
    assert (
        found.rewards == tuple(ARMS.values()) and found.candidates == JUDGES["grpo"].candidates == 9
    )
    own = judge_spec("own", _write(tmp_path, {"name": "own", "family": "grpo"}))
    # the platform's, under another name
    assert own.registration() == JUDGES["grpo"].registration()
    assert own.reading == JUDGES["sft"].reading


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"start": "lexical"}, "name one of sft, tuned, or write it above"),
        ({"optimiser": "ppo"}, "input should be 'exact' or 'trl'"),
        ({"steps": [3, 2]}, "give whole numbers from 1, each once and in order"),
        ({"samples": 1}, "samples: input should be greater than or equal to 2"),
        ({"rewards": [{"mu": 3}, {"mu": 3}]}, "each pair of lambda and mu once"),
        ({"rewards": [{"cost": 3}]}, "no setting 'rewards.cost'"),
        ({"model": "compact"}, "no setting 'model'"),
    ],
)
def test_what_cannot_be_trained_is_a_sentence(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    root = _write(tmp_path, TUNED, {**SAMPLED, **settings}, {"name": "later", "family": "sft"})
    assert "tuned" in judges(root) and "sampled" not in judges(root)
    (problem,) = judge_problems(root)
    assert sentence in problem and "judges.yaml, judge 'sampled': " in problem


def test_a_record_of_other_settings_is_stale_and_names_its_optimiser(arms_store: Store) -> None:
    def own(**change: Any) -> JudgedCorpus:
        _write(Path(arms_store.root), {"name": "own", "family": "grpo", "steps": [1], **change})
        return judged(arms_store, CORPUS, "own")

    # the platform's judge under another name, as if this document had asked for it
    document = arms_store.read_json(f"judges/grpo/{CORPUS}/adapter.json")
    judge = own()
    document["registered"] = judge.spec.registration()
    arms_store.write_json(judge.key("adapter.json"), document)
    words = "exact GRPO, the expectation over 8 samples a prompt"
    assert words in judge.family.describe(judge.artifact)
    assert judge.family.provenance(judge.artifact) == {"optimiser": words}
    for name, value in {"optimiser": "trl", "steps": [1, 2], "rewards": [{"mu": 3}]}.items():
        with pytest.raises(StaleCertificateError, match=f"another {name} than judges.yaml"):
            _ = own(**{name: value}).artifact


def test_words_of_several_tokens_are_refused_before_the_start_is_trained(corpora: Store) -> None:
    # they share their first tokens, and neither begins the other
    alike = {**TUNED, "prompt": {"success": " zq1", "fail": " zq2"}}
    _write(Path(corpora.root), alike, SAMPLED)
    said = r"the verdicts are the tokens \(.*GRPO reads one token each, so choose words that are"
    for name in ("sampled", "tuned"):
        with pytest.raises(InputError, match=said):
            judged(corpora, "three", name).train()
    assert not corpora.names(judged(corpora, "three", "tuned").key())
    # as they come they are read by all of their tokens
    _write(Path(corpora.root), {**alike, "family": "base"})
    judge = judged(corpora, "three", "tuned")
    judge.train()
    assert judge.score_runs(judge.corpus.split("cal").head(3))[0]["score"].abs().gt(0).all()


def test_a_start_that_is_not_trained_is_named_with_its_command(corpora: Store) -> None:
    judge = judged(corpora, "three", "grpo")
    with pytest.raises(InputError, match=r"run `certify judge train three --judge sft` first\.$"):
        judge.train()
