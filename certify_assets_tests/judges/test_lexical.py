from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.splits import make_manifest, select
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.families.lexical import LexicalJudge
from certify_assets_tests.corpora.builders import corpus

FRAME = corpus(tasks=60)
TEXTS = [item.text for item in render_frame(FRAME)]
OUTCOMES = FRAME["outcome"].to_numpy(dtype=int)
JUDGE = LexicalJudge.train(TEXTS, OUTCOMES, renderer_sha256="r")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    JUDGE.save(tmp_path / "judge")
    return tmp_path / "judge"


def test_learns_words_that_tasks_it_has_not_seen_share() -> None:
    def part(split: str) -> tuple[list[str], np.ndarray]:
        rows = select(FRAME, make_manifest(FRAME["task_id"], "made"), split)
        texts = [item.text for item in render_frame(rows)]
        return texts, rows["outcome"].to_numpy(dtype=int)

    judge, (texts, outcomes) = LexicalJudge.train(*part("sft")), part("test")
    assert auroc(judge.score(texts).score, outcomes) > 0.75
    words = [judge.about.vocabulary[place] for place in np.argsort(judge.arrays["coefficients"])]
    assert any("refused" in word for word in words[:5])
    assert any("granted" in word for word in words[-5:])


def test_features_are_the_textbook_ones() -> None:
    reference = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(TEXTS)
    assert JUDGE.about.vocabulary == tuple(reference.get_feature_names_out())
    texts = [*TEXTS[:50], "none of these"]
    expected = reference.transform(texts) @ JUDGE.arrays["coefficients"] + JUDGE.arrays["intercept"]
    np.testing.assert_allclose(JUDGE.score(texts).score, expected, atol=1e-12)


def test_a_score_does_not_depend_on_the_other_texts() -> None:
    together = JUDGE.score(TEXTS).score
    np.testing.assert_array_equal(together[::-1], JUDGE.score(TEXTS[::-1]).score)
    assert [float(JUDGE.score([text]).score[0]) for text in TEXTS[:10]] == together[:10].tolist()
    assert np.isfinite(JUDGE.score(["", "word of no training text"]).score).all()


def test_the_weight_of_successes_moves_the_judge() -> None:
    means = []
    for weight in (1.0, 3.0, 10.0, 30.0):
        judge = LexicalJudge.train(TEXTS, OUTCOMES, success_weight=weight)
        means.append(float(judge.score(TEXTS).score.mean()))
        assert judge.name == ("lexical" if weight == 1 else f"lexical_w{weight:g}")
        assert judge.provenance().settings["success_weight"] == weight
    assert means == sorted(means) and means[0] < means[-1]


def test_a_judge_comes_back_as_it_was(folder: Path) -> None:
    again = LexicalJudge.load(folder, expected_sha256=JUDGE.adapter_sha256)
    np.testing.assert_array_equal(again.score(TEXTS).score, JUDGE.score(TEXTS).score)
    assert again.provenance() == JUDGE.provenance()
    assert again.about == JUDGE.about
    assert sorted(path.name for path in folder.iterdir()) == ["judge.json", "weights.safetensors"]
    assert again.save(folder) == JUDGE.adapter_sha256


def test_the_adapter_hash_is_that_of_the_files(folder: Path) -> None:
    hashes = {path.name: sha256_bytes(path.read_bytes()) for path in folder.iterdir()}
    sha256 = sha256_bytes(canonical_json(hashes))
    assert sha256 == JUDGE.adapter_sha256 == JUDGE.provenance().adapter_sha256
    again, other = (
        LexicalJudge.train(TEXTS, OUTCOMES, seed=seed, renderer_sha256="r") for seed in (42, 1)
    )
    assert again.adapter_sha256 == sha256 != other.adapter_sha256
    with pytest.raises(IntegrityError, match="use the judge that was certified"):
        LexicalJudge.load(folder, expected_sha256="0" * 64)


@pytest.mark.parametrize(
    ("texts", "outcomes", "words"),
    [
        (["a b", "c d"], [1, 1], "one outcome; a judge needs"),
        (["aa bb", "cc dd"], [1, 0], "no word occurs in 2"),
        (["!", "?"], [1, 0], "have no word"),
    ],
)
def test_what_teaches_nothing_is_refused(texts: list[str], outcomes: list[int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        LexicalJudge.train(texts, outcomes)
