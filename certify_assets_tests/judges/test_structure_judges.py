"""Judges that read the structure of a run: features, trees, files, and the whole platform line."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier

from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.families.structure import (
    CombinedFamily,
    CombinedJudge,
    Scale,
    StructureFamily,
    StructureJudge,
)
from certify_assets.judges.families.structure.features import FEATURES, structure_features
from certify_assets.judges.families.structure.trees import BoostedTrees
from certify_assets.judges.reading import LEXICAL
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.deciding import decide_ready
from certify_assets.operations.decisions import first_decisions_of
from certify_assets.operations.deploying import deploy
from certify_assets.operations.receiving import receive
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.conftest import copy_world, prepared_world
from certify_assets_tests.corpora.builders import corpus, trajectory
from certify_assets_tests.operations_builders import deliver

FRAME = corpus(tasks=60)
TEXTS = [item.text for item in render_frame(FRAME)]
OUTCOMES = FRAME["outcome"].to_numpy(dtype=int)


@cache
def structure() -> StructureJudge:
    return StructureFamily().fitted(FRAME, LEXICAL, seed=42)


@cache
def combined() -> CombinedJudge:
    return CombinedFamily().fitted(FRAME, LEXICAL, seed=42)


@pytest.fixture(params=[structure, combined], ids=["structure", "combined"])
def judge(request: pytest.FixtureRequest) -> StructureJudge | CombinedJudge:
    made: StructureJudge | CombinedJudge = request.param()
    return made


def features(instruction: str = "", *steps: tuple[str, str], **changes: Any) -> dict[str, float]:
    run = trajectory(instruction=instruction, steps=tuple(Step(*step) for step in steps), **changes)
    return dict(zip(FEATURES, structure_features(to_frame([run]))[0].tolist(), strict=True))


def test_features_say_what_their_names_say() -> None:
    found = features(
        "Order the red lamp",
        ("open shop", "Welcome"),
        ("open shop", "Error: no such page"),
        ("open shop", "Welcome"),
        ("search red lamp?\n`done`", "order confirmed"),
    )
    expected = {
        "steps": 4,
        "share of repeated actions": 1 - 2 / 4,
        "share of actions repeated at once": 2 / 3,
        "longest repetition of an action": np.log1p(2),
        "share of repeated observations": 1 - 3 / 4,
        "steps with errors": np.log1p(1),
        "errors in the last three steps": 1,
        "steps since the last error": np.log1p(2),
        "last action length": np.log1p(23),
        "words of completion in the last action": np.log1p(1),
        "words of success in the last observation": np.log1p(1),
        "code ticks in the last action": np.log1p(2),
        "share of the task's words in the last action": 2 / 4,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_features_are_of_a_run_alone_and_finite() -> None:
    together = structure_features(FRAME)
    assert together.dtype == np.float32 and together.shape == (len(FRAME), len(FEATURES))
    np.testing.assert_array_equal(together[::-1], structure_features(FRAME[::-1]))
    long = features("word " * 9999, ("x" * 10**6, "error " * 10**5), ("", ""))
    assert np.isfinite([*features().values(), *long.values()]).all()


def made_trees(depth: int, rows: int = 240) -> tuple[BoostedTrees, Any, NDArray[np.float32]]:
    rng = np.random.default_rng(depth)
    read = rng.normal(size=(rows, 6)).astype(np.float32).round(1)
    labels = (read[:, 0] + read[:, 1] * read[:, 2] + rng.normal(size=rows) > 0).astype(int)
    model = GradientBoostingClassifier(
        n_estimators=40, max_depth=depth, subsample=0.7, min_samples_leaf=8, random_state=1
    ).fit(read, labels)
    return BoostedTrees.fitted(model), model, read


@pytest.mark.parametrize(("depth", "rows"), [(1, 240), (3, 240), (3, 12), (5, 240)])
def test_trees_decide_as_those_of_scikit_learn(depth: int, rows: int) -> None:
    trees, model, read = made_trees(depth, rows)
    # bit by bit: the same sums in the same order; on the thresholds too
    edges = np.resize(model.estimators_[0, 0].tree_.threshold, read.shape).astype(np.float32)
    for values in (read, edges):
        np.testing.assert_array_equal(trees.decision(values), model.decision_function(values))
    again = BoostedTrees(**trees._asdict())
    np.testing.assert_array_equal(again.decision(read), trees.decision(read))


def files_hash(folder: Path) -> str:
    hashes = {path.name: sha256_bytes(path.read_bytes()) for path in folder.iterdir()}
    return sha256_bytes(canonical_json(hashes))


def test_a_judge_comes_back_as_it_was(
    judge: StructureJudge | CombinedJudge, tmp_path: Path
) -> None:
    judge.save(tmp_path)
    again = type(judge).load(tmp_path, expected_sha256=judge.adapter_sha256)
    scores = judge.score_runs(FRAME, TEXTS).score
    np.testing.assert_array_equal(again.score_runs(FRAME, TEXTS).score, scores)
    np.testing.assert_array_equal(again.score_runs(FRAME[::-1], TEXTS[::-1]).score, scores[::-1])
    assert float(again.score_runs(FRAME[:1], TEXTS[:1]).score[0]) == scores[0]
    assert again.provenance() == judge.provenance()
    made = structure.__wrapped__() if judge is structure() else combined.__wrapped__()
    assert made.adapter_sha256 == judge.adapter_sha256 == files_hash(tmp_path)
    with pytest.raises(IntegrityError, match="use the judge that was certified"):
        type(judge).load(tmp_path, expected_sha256="0" * 64)


def test_the_combined_score_is_the_mean_of_two_standardised_ones() -> None:
    words, steps = combined().lexical.score(TEXTS).score, structure().score_runs(FRAME).score
    one, other = combined().scales.lexical, combined().scales.structure
    expected = ((words - one.mean) / one.deviation + (steps - other.mean) / other.deviation) / 2
    np.testing.assert_allclose(combined().score_runs(FRAME, TEXTS).score, expected, atol=1e-12)
    # scales are those of runs that a part was not fitted to, which it spreads less
    assert one.deviation < words.std() and other.deviation < steps.std()
    assert Scale.held_out([], words) == Scale.of(words)
    assert Scale.of(np.ones(3)).deviation == 1


@pytest.fixture(
    scope="session", params=[pytest.param("structure", marks=pytest.mark.slow), "combined"]
)
def _finished(
    request: pytest.FixtureRequest, _operated: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    def prepare(root: Path) -> None:
        judge = judged(Store(str(shutil.copytree(_operated, root))), "c", request.param)
        judge.train()
        judge.score()
        certifier.certify_judge(judge)
        audit_judge(judge)

    return prepared_world(tmp_path_factory, f"finished_{request.param}", prepare), request.param


@pytest.fixture
def finished(_finished: tuple[Path, str], tmp_path: Path) -> tuple[Store, str]:
    """A data root on whose corpus `c` one of the judges is certified and audited."""
    world, name = _finished
    return copy_world(world, tmp_path), name


def test_a_judge_goes_from_training_to_decisions(
    finished: tuple[Store, str], tmp_path: Path
) -> None:
    store, name = finished
    judge = judged(store, "c", name)
    assert certifier.verify_stored(judge) == []
    assert judge.calibration[0]["score"].tolist() == judge.rescored().tolist()
    assert judge.family.fingerprint(judge, judge.artifact) == judge.artifact.adapter_sha256
    made = deploy(judge, accepted=["chosen_among_judges"], track=False)
    # it decides by what it names, whatever is trained since
    store.remove_tree(f"judges/{name}/c/adapter")
    batch = receive(judge.corpus, [str(deliver(tmp_path / "new.jsonl"))]).batch
    decide_ready(judged(store, "c", name).corpus)
    rows = first_decisions_of(judged(store, "c", name).corpus, batch)
    assert made.judge == name and np.isfinite(rows["score"]).all()
    assert (rows["decision"] == "reject").any()
