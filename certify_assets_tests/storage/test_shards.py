"""Shards give the same bytes on every engine: answers, a synthetic study, scores."""

import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError, MissingToolError, StaleCertificateError
from certify_assets.research import simulation_study as study
from certify_assets.storage.shards import ENGINE_VARIABLE, chosen_engine, run_shards
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.killing import left_by_a_kill
from certify_assets_tests.services import ray_cluster

QUESTION = study.SimulationPlan(
    trials=60, tasks=(20,), rhos=(0.5,), procedures=("taskboot", "guarded_taskboot"), workers=2
)
OTHERS = [
    pytest.param("processes", marks=pytest.mark.slow),
    pytest.param("ray", marks=pytest.mark.slow),
]


def square(number: int) -> int:
    if number < 0:
        raise InputError(f"{number} is below 0.")
    return number * number


def end_at_once(number: int) -> int:
    import os

    os._exit(number)


@pytest.fixture(scope="module")
def _cluster() -> Iterator[str]:
    with ray_cluster() as cluster:
        yield cluster.address


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of a case; Ray with a real cluster."""
    if request.param == "ray":
        monkeypatch.setenv("RAY_ADDRESS", request.getfixturevalue("_cluster"))
    return str(request.param)


def test_the_engine_is_the_variables_or_follows_from_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)
    assert [chosen_engine(workers) for workers in (1, 2)] == ["inline", "processes"]
    monkeypatch.setenv(ENGINE_VARIABLE, "ray")
    assert chosen_engine() == "ray"
    monkeypatch.setenv(ENGINE_VARIABLE, "dask")
    with pytest.raises(
        InputError, match="CERTIFY_SHARDS is 'dask'; give one of inline, processes, ray"
    ):
        chosen_engine()
    with pytest.raises(InputError, match="no engine 'threads'"):
        list(run_shards(square, [1], engine="threads"))


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingToolError, match=r"install certify_assets\[ray\]"):
        list(run_shards(square, [1], engine="ray"))


@pytest.mark.parametrize("engine", ["inline", *OTHERS], indirect=True)
def test_every_shard_is_answered_once_and_an_error_is_the_functions_own(engine: str) -> None:
    for fresh in (False, True):
        assert sorted(run_shards(square, range(11), engine=engine, workers=2, fresh=fresh)) == [
            (place, place**2) for place in range(11)
        ]
    assert list(run_shards(square, [], engine=engine, workers=2)) == []
    with pytest.raises(InputError, match=r"-3 is below 0\."):
        list(run_shards(square, [1, -3, 2], engine=engine, workers=2))


@pytest.mark.parametrize("engine", OTHERS, indirect=True)
def test_a_worker_that_ends_is_told(engine: str) -> None:
    with pytest.raises(CertifyError, match="ended before it answered"):
        list(run_shards(end_at_once, [1, 2], engine=engine, workers=2))


SLEEPERS = """
import time
from certify_assets.storage.shards import run_shards
if __name__ == "__main__":
    list(run_shards(time.sleep, [600, 600, 600], engine="processes", workers=2, fresh={fresh}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked for in /proc")
@pytest.mark.parametrize("fresh", [False, True])
def test_no_worker_outlives_a_parent_that_was_killed(fresh: bool) -> None:
    def at_work(children: Sequence[str]) -> bool:
        return sum("spawn_main" in words for words in children) == 2

    # killed while the workers begin, and while they work
    for settle in (0, 4):
        command = [sys.executable, "-c", SLEEPERS.format(fresh=fresh)]
        assert left_by_a_kill(command, at_work, settle=settle) == []


def test_workers_outlive_the_thread_that_asked_first() -> None:
    answers = run_shards(abs, range(7), engine="processes", workers=2)
    first: list[tuple[int, int]] = []
    asking = threading.Thread(target=lambda: first.append(next(answers)))
    asking.start()
    asking.join()
    assert sorted([*first, *answers]) == [(place, place) for place in range(7)]


def devices_of_worker(_: int) -> tuple[str, int]:
    import os

    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.getpid()


@pytest.mark.slow
def test_a_shard_asks_ray_for_a_gpu_and_its_worker_answers_further_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ray_cluster(gpus=1) as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        answers = [
            answer for _, answer in run_shards(devices_of_worker, range(5), engine="ray", gpus=1)
        ]
    assert {devices for devices, _ in answers} == {"0"}, "one GPU, and every shard on it"
    assert len({process for _, process in answers}) == 1, "what it loaded stays loaded"


@pytest.mark.slow
def test_a_cluster_without_a_free_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("certify_assets.storage.shards._GPU_PATIENCE_S", 3.0)
    with ray_cluster() as cluster:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        with pytest.raises(CertifyError, match="no GPU of the Ray cluster was free"):
            list(run_shards(square, [1], engine="ray", gpus=1))


@pytest.mark.slow
def test_no_cluster_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        list(run_shards(square, [1], engine="ray"))


@pytest.mark.parametrize("engine", OTHERS, indirect=True)
def test_the_synthetic_study_has_the_same_bytes_and_goes_on_after_an_interrupt(
    engine: str, tmp_path: Path
) -> None:
    alone, spread = Store(str(tmp_path / "alone")), Store(str(tmp_path / "spread"))
    study.run_study(alone, replace(QUESTION, engine="inline"), lambda *_: None)

    def stop(cell: object, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run_study(spread, replace(QUESTION, engine=engine), stop)
    kept: list[int] = []
    study.run_study(
        spread, replace(QUESTION, engine=engine), lambda cell, done, total: kept.append(done)
    )
    key = study.SIMULATION_KEY
    assert len(kept) == 14 and spread.read_bytes(key) == alone.read_bytes(key)


@pytest.fixture(scope="module")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    store = Store(str(folder / "root"))
    register_runs(
        store, "small", write_runs(folder / "runs.jsonl", tasks=60, attempts=8, seed=0), rl=True
    )
    Corpus(store, "small").prepare_splits()
    judged(store, "small", "base").train()
    judged(store, "small", "base").score()
    return folder / "root"


@pytest.mark.parametrize("engine", OTHERS, indirect=True)
def test_scores_of_a_language_model_have_the_same_bytes_and_what_was_kept_stays(
    engine: str, _trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Store(str(_trained))
    shutil.copytree(_trained, tmp_path / "root")
    store = Store(str(tmp_path / "root"))
    kept = {
        path.name: path.read_bytes()
        for path in (tmp_path / "root/judges/base/small/shards").iterdir()
    }
    assert len(kept) >= 4, "several shares, or nothing is spread"
    first = sorted(kept)[0]
    for name in kept:
        if name != first:
            store.delete(f"judges/base/small/shards/{name}")
    monkeypatch.setenv(ENGINE_VARIABLE, engine)
    judged(store, "small", "base").score()
    assert {
        path.name: path.read_bytes()
        for path in (tmp_path / "root/judges/base/small/shards").iterdir()
    } == kept
    for name in ("scores.parquet", "scores.json"):
        assert store.read_bytes(f"judges/base/small/{name}") == alone.read_bytes(
            f"judges/base/small/{name}"
        )


@pytest.mark.slow
def test_a_worker_with_other_packages_is_refused(_trained: Path) -> None:
    from certify_assets.judges.lm.judge import CausalJudge
    from certify_assets.judges.lm.scoring import ScoringConfig, engine_fingerprint

    adapter = judged(Store(str(_trained)), "small", "base").artifact
    judge = judged(Store(str(_trained)), "small", "base").load(
        expected_sha256=adapter.adapter_sha256
    )
    assert isinstance(judge, CausalJudge)
    fingerprint = engine_fingerprint(judge.language, "", ScoringConfig.suited(judge.language))
    group = [judge.encoder.encode_texts(["a run"])]
    assert judge.answer(group, fingerprint).log_probs.shape == (1, 2)
    with pytest.raises(StaleCertificateError, match="another engine than the run that asks it"):
        judge.answer(group, replace(fingerprint, engine="another"))
