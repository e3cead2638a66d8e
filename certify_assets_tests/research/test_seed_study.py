"""The study over split seeds: registered, resumable, the same bytes again, and frequencies counted
by hand.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import load_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import plan_splits
from certify_assets.errors import InputError
from certify_assets.evaluation.ledger import ledger_entries, ledger_violations
from certify_assets.research import seed_study
from certify_assets.research.harvest_study import HarvestPlan, run_harvests
from certify_assets.research.seed_study import SeedCell, SeedPlan, SeedStudy, frequencies, run_seeds
from certify_assets.storage.store import Store
from certify_assets_tests.judges.harvest.test_loop import prepared

pytestmark = pytest.mark.slow

PLAN = SeedPlan(seeds=(1, 2), procedures=("pseudo_task", "naive", "betting"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return prepared(tmp_path_factory.mktemp("seeds"), tasks=130)


def test_every_seed_is_split_trained_certified_and_audited(store: Store) -> None:
    study = run_seeds(Corpus(store, "c"), PLAN)
    assert study == SeedStudy.from_dict(store.read_json("seeds/c.json"))
    # betting has bets from RL, and certifies on CAL alone
    assert len(study.cells) == 2 * 2 * 2 * (2 + 3) and len(set(study.aurocs)) == 2
    assert {cell.rows for cell in study.cells} == {"rl and cal", "cal"}
    assert {(item.procedure, item.rows) for item in study.deciding} == {
        ("pseudo_task", "rl and cal")
    }
    assert {cell.procedure for cell in study.cells} == set(PLAN.procedures)
    assert not store.exists("seeds/c.partial.jsonl") and not ledger_violations(Corpus(store, "c"))


def test_a_killed_study_resumes_and_gives_the_same_bytes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_seeds(Corpus(store, "c"), PLAN)
    before, once, seen = store.read_bytes("seeds/c.json"), seed_study.certify_splits, []

    def counted(*arguments: object) -> object:
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(seed_study, "certify_splits", counted)
    with pytest.raises(KeyboardInterrupt):
        run_seeds(Corpus(store, "c"), PLAN)
    with Path(store.root, "seeds/c.partial.jsonl").open("ab") as stream:
        stream.write(b'{"plan": "torn')
    run_seeds(Corpus(store, "c"), PLAN)
    assert len(seen) == 3, "the finished seed was not run again"
    assert store.read_bytes("seeds/c.json") == before
    reads = [
        entry.kind
        for entry in ledger_entries(Corpus(store, "c"))
        if entry.judge == "seed study" and entry.kind != "result"
    ]
    assert reads[0] == "first" and set(reads[1:]) == {"replay"}


def test_frequencies_are_counted_by_hand() -> None:
    def cell(certified: bool, coverage: float, error: float | None, verdict: str) -> SeedCell:
        return SeedCell(
            seed=1,
            side="reject",
            alpha=0.1,
            procedure="taskboot",
            certified=certified,
            coverage=coverage,
            error=error,
            verdict=verdict,
        )

    cells = [
        cell(True, 0.4, 0.05, "PASS"),
        cell(True, 0.6, 0.3, "ERROR"),
        cell(True, 0.2, None, "WARN"),
        cell(False, 0.0, None, "PASS"),
    ]
    (found,) = frequencies(cells)
    assert (found.seeds, found.certified, found.valid, found.beyond_chance) == (4, 3, 2, 1)
    assert found.coverage == pytest.approx(0.3) and found.error == pytest.approx(0.35 / 3)
    assert found.coverage_sd == pytest.approx(0.2581988897)
    more = [cell(True, 0.8, 0.0, "PASS"), replace(cells[0], rows="rl and cal")]
    assert [(item.rows, item.seeds) for item in frequencies([*cells, *more])] == [
        ("cal", 5),
        ("rl and cal", 1),
    ]


def test_a_plan_without_seeds_or_with_one_twice_is_refused() -> None:
    for seeds in ((), (1, 1)):
        with pytest.raises(InputError, match="each once"):
            SeedPlan(seeds=seeds)


def test_outcomes_of_the_pool_change_no_certificate(tmp_path: Path) -> None:
    store, plan = prepared(tmp_path, tasks=60), SeedPlan(seeds=(1,), procedures=("pseudo_task",))
    before = run_seeds(Corpus(store, "c"), plan)
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text("utf-8").splitlines()]
    tasks = {row["task_id"] for row in rows}
    test = plan_splits(replace(load_config(store, "c"), seed=1), tasks).tasks["test"]
    lines = [
        json.dumps({**row, "outcome": row["outcome"] ^ (row["task_id"] in test)}) for row in rows
    ]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    Corpus(store, "c").prepare()
    after = run_seeds(Corpus(store, "c"), plan)
    assert [cell.coverage for cell in after.cells] == [cell.coverage for cell in before.cells]
    assert any(cell.coverage for cell in after.cells)
    assert [cell.error for cell in after.cells] != [cell.error for cell in before.cells]


def test_seeds_whose_training_rows_have_one_outcome_certify_nothing_and_are_named(
    tmp_path: Path,
) -> None:
    store = prepared(tmp_path, tasks=40)
    assignment = store.read_json("corpora/c/splits/manifest.json")["assignment"]
    fail = min(task for task, split in assignment.items() if split == "sft")
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text("utf-8").splitlines()]
    lines = [json.dumps({**row, "outcome": int(row["task_id"] != fail)}) for row in rows]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    Corpus(store, "c").prepare()
    study = run_seeds(
        Corpus(store, "c"), SeedPlan(seeds=(42, 1, 2, 3, 4, 5), procedures=("naive",))
    )
    assert 42 not in study.untrained and study.untrained and None in study.aurocs
    found = next(item for item in study.deciding if (item.side, item.alpha) == ("reject", 0.1))
    assert found.seeds == 6 and found.certified <= 6 - len(study.untrained)
    plan = HarvestPlan(
        alphas=(0.2,),
        gates=("guarded_taskboot",),
        sides=("release",),
        profiles=("certify",),
        rounds=1,
    )
    loops = run_harvests(Corpus(store, "c"), plan)["loops"]
    assert loops[0]["rounds"][0]["auroc_half_b"] is None, "half B has one outcome"
