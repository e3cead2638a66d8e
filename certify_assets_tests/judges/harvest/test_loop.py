"""The loop on a corpus of its own.

Rounds, studies, chains, and everything that must close or refuse.
"""

from pathlib import Path

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import GateClosedError, IntegrityError, LeakError, StaleCertificateError
from certify_assets.judges.families.harvest import harvest_violations
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.ledger import ledger_entries, ledger_violations
from certify_assets.research.harvest_learners import learner_maker
from certify_assets.research.harvest_study import HarvestPlan, harvest_rows, run_harvests
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.conftest import copy_world

FIRST = "lexical_harvest_1"


def prepared(folder: Path, *, tasks: int) -> Store:
    store = Store(str(folder / "root"))
    register_runs(store, "c", write_runs(folder / "runs.jsonl", tasks=tasks, attempts=4), rl=True)
    Corpus(store, "c").prepare()
    return store


def made(store: Store, judge: str) -> None:
    judged(store, "c", judge).train()
    judged(store, "c", judge).score()
    certifier.certify_judge(judged(store, "c", judge))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harvest")
    store = prepared(folder, tasks=160)
    made(store, "lexical")
    made(store, FIRST)
    return folder / "root"


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Store:
    return copy_world(template, tmp_path)


@pytest.mark.slow
def test_a_round_trains_on_source_and_harvest_and_is_certified_on_half_b(store: Store) -> None:
    document = store.read_json(f"judges/{FIRST}/c/harvest.json")
    adapter = store.read_json(f"judges/{FIRST}/c/adapter.json")
    assert document["open"] and adapter["harvest"]["size"] == document["size"] > 0
    certificates = certifier.load_certificates(judged(store, "c", FIRST))
    whole = certifier.load_certificates(judged(store))
    assert {item.provenance["split"] for item in certificates} == {"cal_half_b"}
    assert {item.provenance["split"] for item in whole} == {"rl and cal"}
    cal = len(judged(store).corpus.manifest.tasks["cal"])
    assert certificates[0].tasks == cal - cal // 2 < whole[0].tasks
    assert certifier.verify_stored(judged(store, "c", FIRST)) == []
    assert audit_judge(judged(store, "c", FIRST)).entry.kind == "first"
    assert harvest_violations(judged(store, "c", FIRST)) == []


def test_another_start_makes_the_round_stale(store: Store) -> None:
    adapter = store.read_json("judges/lexical/c/adapter.json")
    store.write_json("judges/lexical/c/adapter.json", {**adapter, "adapter_sha256": "0" * 64})
    with pytest.raises(StaleCertificateError, match="began with another lexical judge"):
        certifier.load_certificates(judged(store, "c", FIRST))
    with pytest.raises(IntegrityError):
        judged(store, "c", FIRST).train()


def test_a_smuggled_pseudo_label_is_found(store: Store) -> None:
    key = f"judges/{FIRST}/c/harvest.parquet"
    harvested = store.read_table(key)
    cal = Corpus(store, "c").split("cal")
    harvested.loc[0, ["trajectory_id", "task_id"]] = cal.loc[
        0, ["trajectory_id", "task_id"]
    ].to_numpy()
    store.write_table(key, harvested)
    found = harvest_violations(judged(store, "c", FIRST))
    assert "in CAL" in found[0]
    assert "not the one that its adapter was trained on" in found[1]


def test_a_gate_that_closes_takes_the_judge_of_an_earlier_opening_away(store: Store) -> None:
    cal = Corpus(store, "c").split("cal")
    table = store.read_table("judges/lexical/c/scores.parquet")
    table.loc[table["split"] == "cal", "score"] = 0.0
    sha256 = store.write_table("judges/lexical/c/scores.parquet", table)
    store.write_json(
        "judges/lexical/c/scores.json",
        {**store.read_json("judges/lexical/c/scores.json"), "scores_sha256": sha256},
    )
    with pytest.raises(GateClosedError):
        judged(store, "c", FIRST).train()
    assert len(cal) and not store.exists(f"judges/{FIRST}/c/adapter.json"), (
        "a judge whose gate is closed now must not be used"
    )


@pytest.mark.slow
def test_the_study_sets_gates_and_controls_side_by_side(store: Store) -> None:
    gates = ("guarded_taskboot", "taskboot")
    plan = HarvestPlan(alphas=(0.1,), gates=gates, sides=("reject",), profiles=("certify",))
    corpus = Corpus(store, "c")
    with learner_maker(corpus, "lexical") as make:
        document, again = (run_harvests(corpus, plan, make) for _ in range(2))
    assert document == store.read_json("harvests/c/lexical.json") == again
    kinds = [entry.kind for entry in ledger_entries(corpus) if entry.judge == "harvests of lexical"]
    assert [kind for kind in kinds if kind != "result"] == ["first", "replay"]
    assert not ledger_violations(corpus)
    guarded, taskboot = document["loops"]
    assert [row["round"] for row in taskboot["rounds"]] == [0, 1, 2]
    controls = {control["control"]: control for control in guarded["controls"]}
    named = {"labels_of_half_a", "verdict", "confidence", "lowest_25%", "lowest_50%"}
    assert set(controls) >= named
    own = controls["labels_of_half_a"]
    assert own["trained_on"] == guarded["rounds"][0]["trained_on"] + own["labels"]
    assert all(
        "half_b_coverage" in control for control in controls.values() if control.get("size", 1)
    )
    rows = [row for loop in document["loops"] for row in loop["rounds"]]
    assert document["harvests"] == sum(row.get("harvest", {}).get("size", 0) > 0 for row in rows)
    shown = [row["name"] for row in harvest_rows(document)]
    assert {"guarded 0", "taskboot 2", *controls} <= set(shown)
    assert len(shown) < len(rows) + 2 * len(controls), "a control is shown once for both gates"


def test_a_structural_leak_stops_a_study(store: Store) -> None:
    controls = store.read_json("corpora/c/controls.json")
    store.write_json("corpora/c/controls.json", {**controls, "over": ["length"]})
    corpus = Corpus(store, "c")
    with learner_maker(corpus, "lexical") as make, pytest.raises(LeakError):
        run_harvests(corpus, HarvestPlan(), make)
