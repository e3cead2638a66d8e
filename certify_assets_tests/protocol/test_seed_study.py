"""The study over split seeds: registered, resumable, the same bytes again, and frequencies counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from certify_assets.errors import InputError
from certify_assets.protocol import seed_study
from certify_assets.protocol.ledger import ledger_entries, ledger_violations
from certify_assets.protocol.seed_study import SeedPlan, frequencies, run_seeds
from certify_assets.protocol.store import Store
from certify_assets_tests.protocol.harvest.test_loop import prepared

PLAN = SeedPlan(seeds=(1, 2), procedures=("naive", "guarded_taskboot", "betting"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return prepared(tmp_path_factory.mktemp("seeds"), tasks=130)


def test_every_seed_is_split_trained_certified_and_audited(store: Store) -> None:
    document = run_seeds(store, "c", PLAN)
    assert document == store.read_json("seeds/c.json") and len(document["cells"]) == 2 * 2 * 2 * 3
    assert {cell["procedure"] for cell in document["cells"]} == set(PLAN.procedures) and len(set(document["aurocs"])) == 2
    assert not store.exists("seeds/c.partial.jsonl") and not ledger_violations(store, "c")


def test_a_killed_study_goes_on_and_gives_the_same_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_seeds(store, "c", PLAN)
    before, one_seed, seen = store.read_bytes("seeds/c.json"), seed_study._one_seed, []

    def counted(*arguments: object) -> object:
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return one_seed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(seed_study, "_one_seed", counted)
    with pytest.raises(KeyboardInterrupt):
        run_seeds(store, "c", PLAN)
    with Path(store.root, "seeds/c.partial.jsonl").open("ab") as stream:
        stream.write(b'{"plan": "torn')
    run_seeds(store, "c", PLAN)
    assert len(seen) == 3, "the finished seed was not run again"
    assert store.read_bytes("seeds/c.json") == before
    reads = [entry.kind for entry in ledger_entries(store, "c") if entry.judge == "seed study" and entry.kind != "result"]
    assert reads[0] == "first" and set(reads[1:]) == {"replay"}


def test_frequencies_are_counted_by_hand() -> None:
    def cell(certified: bool, coverage: float, error: float | None, verdict: str) -> dict[str, object]:
        where = {"side": "reject", "alpha": 0.1, "procedure": "taskboot"}
        return {**where, "certified": certified, "coverage": coverage, "error": error, "verdict": verdict}

    cells = [cell(True, 0.4, 0.05, "PASS"), cell(True, 0.6, 0.3, "ERROR"), cell(True, 0.2, None, "WARN"), cell(False, 0.0, None, "PASS")]
    (found,) = frequencies(cells)
    assert (found["seeds"], found["certified"], found["valid"], found["beyond_chance"]) == (4, 3, 2, 1)
    assert found["coverage"] == pytest.approx(0.3) and found["error"] == pytest.approx(0.35 / 3)
    assert found["coverage_sd"] == pytest.approx(0.2581988897)


def test_a_plan_without_seeds_or_with_one_twice_is_refused() -> None:
    for seeds in ((), (1, 1)):
        with pytest.raises(InputError, match="each once"):
            SeedPlan(seeds=seeds)
