"""The study as jobs: each asset once, resumed after a kill, failures reported, the same bytes."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.definitions import defs
from certify_assets.defs import research, study
from certify_assets.defs.study import PROFILES
from certify_assets.errors import InputError
from certify_assets.operations.ledger import ledger_entries, ledger_violations
from certify_assets.storage.store import Store
from certify_assets_tests.study_builders import registered, states, studied

pytestmark = pytest.mark.statistics


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    outcomes = studied(registered(folder), ["c", "d"])
    assert set(states(outcomes).values()) == {"done"}
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    shutil.copytree(template / "root", tmp_path / "root")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Store(str(tmp_path / "root"))


def made_by(store: Store) -> Iterator[set[str]]:
    """Assets that each run materialized, the first run first."""
    with dg.DagsterInstance.from_config(str(store.local_path("dagster"))) as instance:
        for run in reversed(instance.get_runs()):
            logs = instance.all_logs(run.run_id)
            events = (entry.dagster_event for entry in logs if entry.dagster_event)
            yield {
                event.asset_key.to_user_string()
                for event in events
                if event.is_step_materialization and event.asset_key is not None
            }


def test_every_asset_is_made_once(store: Store) -> None:
    first = list(made_by(store))
    assert set().union(*first) >= {
        "research/report",
        "corpora/trajectories",
        "judges/lexical/audit",
        "corpora/comparison",
        "research/certifiability",
    }
    assert store.exists("study/study.html") and store.exists("study/tables/main.csv")
    outcomes = studied(store, ["c", "d"])
    assert list(made_by(store)) == first, "a second study makes nothing"
    assert set(states(outcomes).values()) == {"kept"}


def test_test_is_read_through_the_ledger_alone(store: Store) -> None:
    readers = {entry.judge for entry in ledger_entries(Corpus(store, "c")) if entry.kind == "first"}
    assert readers == {"lexical", "real scores"} and not ledger_violations(Corpus(store, "c"))


def test_a_changed_document_or_input_is_made_again(store: Store) -> None:
    good = store.read_bytes("real_scores/c.json")
    store.write_json("real_scores/c.json", {})
    again = states(studied(store, ["c"]))
    assert (
        again["c", "research/real_scores"] == "done" and again["c", "corpora/comparison"] == "kept"
    )
    assert store.read_bytes("real_scores/c.json") == good
    save_config(store, replace(load_config(store, "d"), seed=7))
    again = states(studied(store, ["d"]))
    names = ("corpora/split_manifest", "judges/lexical/audit", "research/real_scores")
    assert {again["d", name] for name in names} == {"done"}


def test_an_asset_that_fails_is_reported_and_the_others_are_made(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> Any:
        raise InputError("the table is empty.")

    def broken(*_: object, **__: object) -> Any:
        raise ValueError("no such thing")

    store.delete("corpora/c/trajectories.parquet")
    store.delete("study/certifiability.json")
    monkeypatch.setattr(Corpus, "import_trajectories", refused)
    monkeypatch.setattr(research.certifiability, "write_certifiability", broken)
    found = {(item.corpus, item.asset): item for item in studied(store, ["c", "d"])}
    assert found["c", "corpora/trajectories"].status == "failed"
    assert found["c", "corpora/trajectories"].reason == "the table is empty."
    assert found["c", "judges/lexical/model"].status == "skipped"
    assert found["c", "judges/lexical/model"].reason == "a step that it needs did not end."
    assert found["d", "judges/lexical/model"].status == "kept"
    assert found["", "research/certifiability"].reason == "ValueError: no such thing"


def test_a_larger_profile_makes_more_trials_and_a_smaller_one_keeps_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def simulated(store: Store, *, trials: int, **_: object) -> None:
        ran.append(trials)
        store.write_json("study/simulation.json", {"trials": trials})

    monkeypatch.setattr(research.simulations, "run_study", simulated)
    for profile, became in (("quick", "done"), ("full", "done"), ("quick", "kept")):
        found = states(studied(store, [], ("research/simulation",), profile=profile))
        assert found["", "research/simulation"] == became
    assert ran == [PROFILES["quick"].trials, PROFILES["full"].trials]


def test_unknown_corpora_and_profiles_are_refused(tmp_path: Path) -> None:
    for corpora, profile, words in ((["nowhere"], "quick", "nowhere"), ([], "long", "long")):
        with pytest.raises(InputError, match=words):
            studied(Store(str(tmp_path)), corpora, profile=profile)


def test_the_jobs_make_what_the_study_needs() -> None:
    in_jobs = {
        name: defs.resolve_job_def(name).asset_layer.executable_asset_keys
        for name in (study.STUDY, study.TABLES)
    }
    assert {key.to_user_string() for key in in_jobs[study.TABLES]} == {
        f"research/{name}" for name in ("main_table", "certifiability", "simulation", "report")
    }
