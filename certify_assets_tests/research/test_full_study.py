"""The study of a data root: stages run once, go on after a kill, report what failed, and give the
same bytes in any number of processes.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.evaluation.ledger import ledger_entries, ledger_violations
from certify_assets.research import full_study
from certify_assets.research.full_study import run_full_study, stage_record_key
from certify_assets.research.study import ALL, PROFILES, RUN_KEY, Outcome, load_outcomes
from certify_assets.research.study_stages import STAGES, Stage
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs

BY_NAME = {stage.name: stage for stage in STAGES}
SHORT = [
    BY_NAME[name]
    for name in ("splits", "lexical", "agents", "base", "real_scores", "comparison", "law")
]


def registered(folder: Path) -> Store:
    store = Store(str(folder / "root"))
    for seed, name in enumerate(("c", "d")):
        register_runs(
            store,
            name,
            write_runs(folder / f"{name}.jsonl", tasks=60, attempts=3, seed=seed),
            rl=True,
            domain=("web", "shell")[seed],
        )
    return store


def states(outcomes: list[Outcome]) -> dict[tuple[str, str], str]:
    return {(item.corpus, item.stage): item.status for item in outcomes}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    store = registered(folder)
    outcomes = run_full_study(store, ["c", "d"], workers=1, stages=SHORT)
    assert set(states(outcomes).values()) == {"done", "skipped"}
    return folder


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    shutil.copytree(template / "root", tmp_path / "root")
    return Store(str(tmp_path / "root"))


def test_every_stage_is_run_once_and_what_a_profile_leaves_out_says_why(store: Store) -> None:
    before = store.read_bytes(RUN_KEY)
    outcomes = run_full_study(store, ["c", "d"], workers=1, stages=SHORT)
    assert {status for (_, stage), status in states(outcomes).items() if stage != "base"} == {
        "kept"
    }
    (left_out, _) = (item for item in outcomes if item.stage == "base")
    assert (
        left_out.status == "skipped"
        and "--profile full" in left_out.reason
        and left_out.command == "certify research study c --profile full"
    )
    assert store.read_bytes(RUN_KEY) == before, "a kept stage is as good as a done one"
    assert [
        replace(item, status="done", seconds=0.0)
        if item.status == "kept"
        else replace(item, seconds=0.0)
        for item in outcomes
    ] == load_outcomes(store)


def test_test_is_read_through_the_ledger_alone(store: Store) -> None:
    readers = {entry.judge for entry in ledger_entries(Corpus(store, "c")) if entry.kind == "first"}
    assert readers == {"lexical", "real scores"} and not ledger_violations(Corpus(store, "c"))


def test_a_changed_document_or_input_is_made_again(store: Store) -> None:
    good = store.read_bytes("real_scores/c.json")
    store.write_json("real_scores/c.json", {})
    again = states(run_full_study(store, ["c"], workers=1, stages=SHORT))
    assert (
        again["c", "real_scores"] == "done"
        and again["c", "comparison"] == "kept"
        and store.read_bytes("real_scores/c.json") == good
    )
    save_config(store, replace(load_config(store, "d"), seed=7))
    again = states(run_full_study(store, ["d"], workers=1, stages=SHORT))
    assert {
        again["d", stage] for stage in ("splits", "lexical", "agents", "real_scores", "comparison")
    } == {"done"}


def test_a_killed_study_goes_on_where_it_was(template: Path, tmp_path: Path) -> None:
    shutil.copytree(template / "root", tmp_path / "root")
    store = Store(str(tmp_path / "root"))
    kept = {
        key: store.read_bytes(key)
        for key in ("real_scores/c.json", "judges/lexical/c/certificates.json")
    }
    store.delete(stage_record_key("c", "real_scores"))
    store.delete("real_scores/c.json")

    def killed(_: object) -> str:
        raise KeyboardInterrupt

    interrupted = [
        replace(stage, run=killed) if stage.name == "real_scores" else stage for stage in SHORT
    ]
    with pytest.raises(KeyboardInterrupt):
        run_full_study(store, ["c"], workers=1, stages=interrupted)
    again = states(run_full_study(store, ["c"], workers=1, stages=SHORT))
    assert again["c", "lexical"] == "kept" and again["c", "real_scores"] == "done"
    assert {key: store.read_bytes(key) for key in kept} == kept


def test_a_stage_that_fails_is_reported_and_the_others_go_on(store: Store) -> None:
    def broken(_: object) -> str:
        raise ValueError("no such thing")

    def refused(_: object) -> str:
        raise InputError("the table is empty.")

    stages = [replace(stage, run={"splits": refused}.get(stage.name, stage.run)) for stage in SHORT]
    stages.append(Stage("odd", 2, broken, lambda _: [], lambda _: {}, "certify odd"))
    store.delete(stage_record_key("c", "splits"))
    outcomes = {
        (item.corpus, item.stage): item
        for item in run_full_study(store, ["c", "d"], workers=1, stages=stages)
    }
    assert (
        outcomes["c", "splits"].status == "failed"
        and outcomes["c", "splits"].reason == "the table is empty."
    )
    assert (
        outcomes["c", "lexical"].status == "skipped"
        and "needs splits, which failed" in outcomes["c", "lexical"].reason
    )
    assert outcomes["d", "lexical"].status == "kept"
    assert outcomes[ALL, "odd"].reason == "ValueError: no such thing"


def test_a_smaller_profile_keeps_what_a_larger_one_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    seeds = replace(
        BY_NAME["seeds"],
        run=lambda work: (
            ran.append(work.profile.name) or (store.write_json("seeds/c.json", {}) and "")
        ),
    )
    monkeypatch.setattr(full_study, "STAGES", [BY_NAME["splits"], seeds])
    run_full_study(store, ["c"], profile="full", workers=1)
    assert states(run_full_study(store, ["c"], profile="quick", workers=1))["c", "seeds"] == "kept"
    store.delete(stage_record_key("c", "seeds"))
    run_full_study(store, ["c"], profile="quick", workers=1)
    assert states(run_full_study(store, ["c"], profile="full", workers=1))["c", "seeds"] == "done"
    assert ran == ["full", "quick", "full"] and list(PROFILES) == ["quick", "full"]


def test_unknown_corpora_and_profiles_are_refused(tmp_path: Path) -> None:
    for corpora, profile, words in ((["nowhere"], "quick", "nowhere"), ([], "long", "long")):
        with pytest.raises(InputError, match=words):
            run_full_study(Store(str(tmp_path)), corpora, profile=profile)


def test_every_stage_needs_only_stages_before_it() -> None:
    names = [stage.name for stage in STAGES]
    assert len(set(names)) == len(names) and [stage.phase for stage in STAGES] == sorted(
        stage.phase for stage in STAGES
    )
    for place, stage in enumerate(STAGES):
        assert set(stage.needs) <= set(names[:place]), stage.name


@pytest.mark.slow
def test_two_processes_give_the_bytes_of_one(tmp_path: Path) -> None:
    names = (
        "splits",
        "lexical",
        "seeds",
        "lexical_transfer",
        "lexical_transfer_strict",
        "harvests_transfer",
        "real_scores",
        "law",
    )
    found = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        store = registered(folder)
        outcomes = run_full_study(
            store, ["c", "d"], workers=workers, stages=[BY_NAME[name] for name in names]
        )
        assert not [item for item in outcomes if item.status == "failed"]
        keys = ["study/run.json", "study/certifiability.json"]
        keys += [
            f"{part}/{corpus}{rest}"
            for corpus in ("c", "d")
            for part, rest in (("seeds", ".json"), ("real_scores", ".json"))
        ]
        keys += [f"judges/lexical_transfer/{corpus}/certificates.json" for corpus in ("c", "d")]
        keys += [f"harvests/{corpus}/lexical_transfer.json" for corpus in ("c", "d")]
        found.append({key: store.read_bytes(key) for key in keys})
    assert found[0] == found[1]
