"""The study as jobs: each asset once, resumed after a kill, failures reported, the same bytes."""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs.names import CORPORA
from certify_assets.defs.research import assets
from certify_assets.defs.research.study import STAGES, stale
from certify_assets.errors import InputError
from certify_assets.evaluation.ledger import ledger_entries, ledger_violations
from certify_assets.research import real_scores, seed_study
from certify_assets.research.study import (
    ALL,
    COMMANDS,
    PROFILES,
    RUN_KEY,
    load_outcomes,
    run_transfer_harvests,
)
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.defs.running import materialize, partitions
from certify_assets_tests.study_builders import named, registered, states, studied

pytestmark = pytest.mark.slow

SHORT = named("splits", "lexical", "agents", "sft", "real_scores", "comparison", "law")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    outcomes = studied(registered(folder), ["c", "d"], SHORT)
    assert set(states(outcomes).values()) == {"done", "skipped"}
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    shutil.copytree(template / "root", tmp_path / "root")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Store(str(tmp_path / "root"))


def instance_of(store: Store) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(str(store.local_path("dagster")))


def made_by(store: Store) -> Iterator[set[str]]:
    """Assets that each run materialized, the first run first."""
    with instance_of(store) as instance:
        for run in reversed(instance.get_runs()):
            logs = instance.all_logs(run.run_id)
            events = (entry.dagster_event for entry in logs if entry.dagster_event)
            yield {
                event.asset_key.to_user_string()
                for event in events
                if event.is_step_materialization and event.asset_key is not None
            }


def test_every_asset_is_made_once_and_what_a_profile_leaves_out_says_why(store: Store) -> None:
    first = list(made_by(store))
    assert set().union(*first) >= {
        "research/report",
        "corpora/trajectories",
        "judges/lexical/audit",
        "corpora/comparison",
        "research/certifiability",
    }
    with instance_of(store) as instance:
        key = dg.AssetKey(["judges", "lexical", "certificate"])
        assert instance.get_materialized_partitions(key) == {"c", "d"}
        assert set(instance.get_dynamic_partitions(CORPORA)) == {"c", "d"}
    before = store.read_bytes(RUN_KEY)
    outcomes = studied(store, ["c", "d"], SHORT)
    assert list(made_by(store)) == first, "a second study makes nothing"
    assert {status for (_, stage), status in states(outcomes).items() if stage != "sft"} == {"kept"}
    left_out = next(item for item in outcomes if item.stage == "sft")
    assert left_out.status == "skipped" and "--profile full" in left_out.reason
    assert left_out.command == "certify research study c --profile full"
    assert store.read_bytes(RUN_KEY) == before, "a kept stage is as good as a done one"
    kept = [item for item in outcomes if item.status == "kept"]
    assert {replace(item, status="done", seconds=0.0) for item in kept} <= set(load_outcomes(store))
    assert store.exists("study/site/index.html")


def test_test_is_read_through_the_ledger_alone(store: Store) -> None:
    readers = {entry.judge for entry in ledger_entries(Corpus(store, "c")) if entry.kind == "first"}
    assert readers == {"lexical", "real scores"} and not ledger_violations(Corpus(store, "c"))


def test_a_changed_document_or_input_is_made_again(store: Store) -> None:
    good = store.read_bytes("real_scores/c.json")
    store.write_json("real_scores/c.json", {})
    again = states(studied(store, ["c"], SHORT))
    assert again["c", "real_scores"] == "done" and again["c", "comparison"] == "kept"
    assert store.read_bytes("real_scores/c.json") == good
    save_config(store, replace(load_config(store, "d"), seed=7))
    again = states(studied(store, ["d"], SHORT))
    names = ("splits", "lexical", "agents", "real_scores", "comparison")
    assert {again["d", stage] for stage in names} == {"done"}


def test_a_killed_study_resumes_where_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("real_scores/c.json", "judges/lexical/c/certificates.json")
    kept = {key: store.read_bytes(key) for key in keys}
    store.delete("real_scores/c.json")
    store.delete("comparison/c/comparison.json")

    def killed(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(real_scores, "write_real_scores", killed)
        with pytest.raises(KeyboardInterrupt):
            studied(store, ["c"], SHORT)
    again = states(studied(store, ["c"], SHORT))
    assert again["c", "lexical"] == "kept" and again["c", "real_scores"] == "done"
    assert {key: store.read_bytes(key) for key in kept} == kept


def test_a_stage_that_fails_is_reported_and_the_others_are_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> Any:
        raise InputError("the table is empty.")

    def broken(*_: object, **__: object) -> Any:
        raise ValueError("no such thing")

    store.delete("corpora/c/trajectories.parquet")
    store.delete("study/certifiability.json")
    monkeypatch.setattr(Corpus, "import_trajectories", refused)
    monkeypatch.setattr(assets.certifiability, "write_certifiability", broken)
    found = {(item.corpus, item.stage): item for item in studied(store, ["c", "d"], SHORT)}
    assert found["c", "splits"].status == "failed"
    assert found["c", "splits"].reason == "the table is empty."
    assert found["c", "lexical"].status == "skipped"
    assert "needs splits, which failed" in found["c", "lexical"].reason
    assert found["d", "lexical"].status == "kept"
    assert found[ALL, "law"].reason == "ValueError: no such thing"


def test_a_smaller_profile_keeps_what_a_larger_one_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def seeds(corpus: Corpus, plan: seed_study.SeedPlan, **_: object) -> seed_study.SeedStudy:
        ran.append(len(plan.seeds))
        study = seed_study.SeedStudy(
            corpus=corpus.name, plan=plan, aurocs=(), untrained=(), cells=(), frequencies=()
        )
        corpus.store.write_json(f"seeds/{corpus}.json", asdict(study))
        return study

    monkeypatch.setattr(seed_study, "run_seeds", seeds)
    stages = named("splits", "seeds")
    for profile, became in (("full", "done"), ("quick", "kept")):
        assert states(studied(store, ["c"], stages, profile=profile))["c", "seeds"] == became
    store.delete("seeds/c.json")
    for profile in ("quick", "full"):
        assert states(studied(store, ["c"], stages, profile=profile))["c", "seeds"] == "done"
    quick, full = (PROFILES[name].seeds for name in ("quick", "full"))
    assert ran == [full, quick, full] and list(PROFILES) == ["quick", "full"]


def test_labels_without_runs_are_skipped_with_the_reason(store: Store) -> None:
    document = store.read_json("corpora/c/import.json")
    document["label_facts"] = {"labels_only": 1}
    store.write_json("corpora/c/import.json", document)
    store.delete("corpora/c/splits/manifest.json")
    found = {item.stage: item for item in studied(store, ["c"], named("splits", "lexical"))}
    assert {item.status for item in found.values()} == {"skipped"}
    assert "labels without runs" in found["splits"].reason
    assert found["lexical"].reason == "it needs splits, which was skipped."


def test_unknown_corpora_and_profiles_are_refused(tmp_path: Path) -> None:
    for corpora, profile, words in ((["nowhere"], "quick", "nowhere"), ([], "long", "long")):
        with pytest.raises(InputError, match=words):
            studied(Store(str(tmp_path)), corpora, STAGES, profile=profile)


def test_every_stage_needs_only_stages_before_it_and_has_its_assets_in_a_job() -> None:
    names = [stage.name for stage in STAGES]
    assert len(set(names)) == len(names) and set(names) == set(COMMANDS)
    phases = [stage.phase for stage in STAGES]
    assert phases == sorted(phases)
    in_jobs = {
        name: defs.resolve_job_def(name).asset_layer.executable_asset_keys
        for name in ("research_study", "research_tables")
    }
    for place, stage in enumerate(STAGES):
        assert set(stage.needs) <= set(names[:place]), stage.name
        job = "research_tables" if stage.phase == 3 else "research_study"
        assert set(stage.assets) <= in_jobs[job], stage.name
    trained = {stage.name for stage in STAGES if stage.left_out(PROFILES["quick"], "c", ["c"])}
    assert trained == {"sft", "grpo", "harvests_sft", "transfer", "transfer_strict"}
    assert {key.to_user_string() for key in in_jobs["research_tables"]} == {
        f"research/{name}" for name in ("main_table", "certifiability", "simulation", "report")
    }
    of_stages = {key for stage in STAGES for key in stage.assets}
    assert in_jobs["research_study"] <= of_stages | {dg.AssetKey(["judges", "compact_model"])}


def test_studies_of_a_partition_and_the_report_say_what_was_not_run(corpora: Store) -> None:
    from certify_assets.cli.launching import platform
    from certify_assets.evaluation.audit import audit_judge

    audit_judge(judged(corpora, "three"))
    with partitions("three") as instance, platform(corpora):
        result = materialize(
            [assets.seed_study, assets.real_scores],
            corpora,
            "three",
            instance=instance,
            ops={"research__seed_study": {"seeds": 1}},
        )
        assert result.success
        over_all = materialize([assets.study_report], corpora, None, instance=instance)
        assert stale(instance, [assets.seed_study.key], "three") == set()
    (event,) = result.asset_materializations_for_node("research__seed_study")
    found = next(
        item
        for item in corpora.read_json("seeds/three.json")["frequencies"]
        if (item["side"], item["alpha"], item["procedure"]) == ("reject", 0.2, "pseudo_task")
    )
    assert event.metadata["certified_reject_at_0.2"].value == found["certified"]
    (event,) = result.asset_materializations_for_node("research__real_scores")
    assert event.metadata["judges"].value == 1
    (event,) = over_all.asset_materializations_for_node("research__report")
    assert event.metadata["not_run"].value > 10
    assert str(event.metadata["page"].value).endswith("study/site/index.html")


def test_a_harvest_by_transfer_has_a_reason_where_it_is_not(store: Store) -> None:
    save_config(store, replace(load_config(store, "c"), rl=False))
    assert "without an RL split" in run_transfer_harvests(Corpus(store, "c"), run_id="cli")


def test_two_processes_give_the_bytes_of_one(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # splits and the lexical judge are of the template; three seeds are as good as twenty
    monkeypatch.setitem(PROFILES, "quick", replace(PROFILES["quick"], seeds=3))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    # `studied` leaves MLflow out in this process alone; nothing answers there
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    stages = named(
        "splits",
        "lexical",
        "seeds",
        "lexical_transfer",
        "harvests_transfer",
        "real_scores",
        "law",
    )
    stages_made = ("seeds", "lexical_transfer", "harvests_transfer", "real_scores")
    keys = ["study/run.json", "study/certifiability.json"]
    for corpus in ("c", "d"):
        keys += [f"seeds/{corpus}.json", f"real_scores/{corpus}.json"]
        keys += [f"judges/lexical_transfer/{corpus}/certificates.json"]
        keys += [f"harvests/{corpus}/lexical_transfer.json"]
    found = []
    for workers in (1, 2):
        store = Store(str(shutil.copytree(template / "root", tmp_path / str(workers))))
        for key in keys:
            store.delete(key)
        outcomes = studied(store, ["c", "d"], stages, workers=workers)
        became = states(outcomes)
        # real_scores is made again, because of the judge by transfer
        made = {became[corpus, name] for corpus in ("c", "d") for name in stages_made}
        assert made == {"done"} and "failed" not in became.values(), outcomes
        found.append({key: store.read_bytes(key) for key in keys})
    assert found[0] == found[1]
