"""The pool of language models: who is in it from the start, and who enters once it loads one."""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs.assets import AssetStep, Made, asset
from certify_assets.defs.operations.assets import operation_assets
from certify_assets.defs.pool import POOL
from certify_assets.evaluation.audit import audit_judge
from certify_assets.evaluation.certification import certify_judge
from certify_assets.operations.layout import batch_names, decisions_of
from certify_assets.operations.rollout import deploy
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.defs.running import configured, materialize
from certify_assets_tests.operations_builders import deliver
from certify_assets_tests.paths import REPOSITORY

INCOMING, DECISIONS = (dg.AssetKey(["operations", name]) for name in ("incoming_runs", "decisions"))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with configured(tmp_path / "home", "c") as opened:
        yield opened


def hold(instance: dg.DagsterInstance) -> str:
    """Take the one place of the pool as another run would."""
    storage, other = instance.event_log_storage, str(uuid.uuid4())
    storage.initialize_concurrency_limit_to_default(POOL)
    assert storage.claim_concurrency_slot(POOL, other, "judges__sft__model.train").is_claimed
    return other


def claimed(instance: dg.DagsterInstance) -> list[str]:
    info = instance.event_log_storage.get_concurrency_info(POOL)
    return [slot.step_key for slot in info.claimed_slots]


def _ops(node: dg.OpDefinition | dg.GraphDefinition, name: str) -> Iterator[tuple[str, object]]:
    if isinstance(node, dg.GraphDefinition):
        for part, inner in node.node_dict.items():
            yield from _ops(inner.definition, f"{name}.{part}")  # type: ignore[arg-type]
    else:
        yield name, node


def test_every_op_is_in_the_pool_or_enters_it_with_the_first_model_that_it_loads() -> None:
    outside, entering = set(), set()
    for made in defs.resolve_all_asset_specs():
        node = defs.resolve_asset_graph().get(made.key)
        if not node.is_materializable:
            continue
        for name, op in _ops(node.assets_def.node_def, made.key.to_user_string()):
            assert isinstance(op, dg.OpDefinition)
            if op.pool is not None:
                assert op.pool == POOL and "dagster-ray/config" in op.tags
                continue
            function = op.compute_fn.decorated_fn  # type: ignore[union-attr]
            wrapped = function.__qualname__.startswith("_called_by_dagster.")
            (entering if wrapped else outside).add(name)
    # ops of graphs, which read and write documents
    assert {name.rpartition(".")[2] for name in outside} == {"prepare", "register", "record"}
    # those whose judge is known only when they run, and what scores by words alone
    assert {
        "operations/decisions",
        "operations/recertification",
        "operations/automatic_deployment",
        "corpora/agent_disjoint",
        "judges/lexical/scores",
    } <= entering


def test_a_step_waits_for_its_place_when_it_loads_a_language_model(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    seen: dict[str, object] = {}

    @asset("corpora", "corpora")
    def loads(step: AssetStep) -> Made:
        from certify_assets.judges.lm.judge import load_base

        seen["asked"] = time.time()
        for _ in range(2):
            load_base("compact")
        seen["during"] = claimed(instance)
        return dg.MaterializeResult()

    @asset("corpora", "corpora")
    def reads(step: AssetStep) -> Made:
        seen["meanwhile"] = claimed(instance)
        return dg.MaterializeResult()

    other = hold(instance)
    freed: list[float] = []

    def end() -> None:
        while "asked" not in seen:
            time.sleep(0.05)
        freed.append(time.time())
        instance.event_log_storage.free_concurrency_slots_for_run(other)

    # another step does not wait for the place that is taken
    assert materialize([reads], tmp_path / "root", instance=instance).success
    assert seen["meanwhile"] == ["judges__sft__model.train"]
    thread = threading.Thread(target=end)
    thread.start()
    assert materialize([loads], tmp_path / "root", instance=instance).success
    thread.join()
    assert freed and seen["during"] == ["corpora__loads"]
    assert claimed(instance) == []


def test_a_step_that_fails_gives_its_place_back(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    @asset("corpora", "corpora")
    def fails(step: AssetStep) -> Made:
        from certify_assets.judges.lm.models import load_model

        load_model(str(tmp_path / "nothing"))
        return dg.MaterializeResult()

    result = materialize([fails], tmp_path / "root", instance=instance, raise_on_error=False)
    assert not result.success and claimed(instance) == []
    info = instance.event_log_storage.get_concurrency_info(POOL)
    assert info.slot_count == 1 and not info.pending_steps


def _decide(instance: dg.DagsterInstance, store: Store) -> dg.ExecuteInProcessResult:
    deliver(store.local_path("inbox/c") / "a.jsonl", tasks=5)
    return materialize(
        operation_assets(),
        store,
        instance=instance,
        selection=dg.AssetSelection.assets(INCOMING, DECISIONS),
    )


def test_decisions_of_a_judge_of_words_wait_for_no_place(
    instance: dg.DagsterInstance, operated: Store
) -> None:
    deploy(judged(operated), track=False)
    hold(instance)
    result = _decide(instance, operated)
    (made,) = result.asset_materializations_for_node("operations__decisions")
    assert made.metadata["dagster/row_count"].value == 20
    assert claimed(instance) == ["judges__sft__model.train"]


@pytest.mark.slow
def test_decisions_of_a_language_model_hold_a_place(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from certify_assets.judges.judged import JudgedCorpus

    store = Store(str(tmp_path / "root"))
    runs = write_runs(tmp_path / "runs.jsonl", tasks=60, attempts=3)
    # nearly every share of failures is within the budget: the judge is of no matter here
    register_runs(store, "c", runs, rl=False, alphas=(0.6,))
    Corpus(store, "c").prepare()
    judged(store, judge="base").train()
    judged(store, judge="base").score()
    certify_judge(judged(store, judge="base"))
    audit_judge(judged(store, judge="base"))
    deploy(judged(store, judge="base"), track=False)
    held = []
    score = JudgedCorpus.score_runs

    def seen(judge: JudgedCorpus, *given: object, **more: object) -> object:
        found = score(judge, *given, **more)  # type: ignore[arg-type]
        held.append(claimed(instance))
        return found

    monkeypatch.setattr(JudgedCorpus, "score_runs", seen)
    assert _decide(instance, store).success
    (name,) = batch_names(Corpus(store, "c"))
    assert decisions_of(Corpus(store, "c"), name)["score"].notna().all()
    assert held == [["operations__decisions"]] and claimed(instance) == []


@pytest.mark.slow
def test_where_steps_are_ray_jobs_and_a_judge_needs_a_gpu_its_decisions_ask_for_one(
    tmp_path: Path,
) -> None:
    code = (
        "from certify_assets.defs.operations.assets import decisions, recertification\n"
        "from certify_assets.defs.research.assets import agent_disjoint\n"
        "for made in (decisions, recertification, agent_disjoint):\n"
        "    print(made.op.pool, made.op.tags.get('dagster-ray/config'))\n"
    )

    def settings(executor: str) -> set[str]:
        environment = {
            **os.environ,
            "CERTIFY_ROOT": str(tmp_path),
            "CERTIFY_EXECUTOR": executor,
            "PYTHONPATH": str(REPOSITORY),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return set(done.stdout.splitlines())

    assert settings("ray") == {"None None"}, "two cores suffice for the platform's own models"
    (tmp_path / "judges.yaml").write_text(
        "judges: [{name: mine, family: base, model: org/large, revision: " + "a" * 40 + "}]",
        encoding="utf-8",
    )
    assert settings("ray") == {f'{POOL} {{"num_cpus": 4, "num_gpus": 1}}'}
    assert settings("in_process") == {"None None"}
