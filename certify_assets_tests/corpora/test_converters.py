"""Published corpora that the package has no reader for, as their converters make tables of them."""

import hashlib

import pytest

from certify_assets_tests.paths import REPOSITORY, shared_data


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("name", "runs", "tasks", "agents", "rate", "digest"),
    [
        ("agentclinic_whissle", 275, 100, 8, 0.814545, "04eb0d1241c12e81"),
        ("intercode_bash", 1802, 200, 10, 0.286903, "d973854b7b8e2145"),
        ("miniwob_demos", 1683, 60, 935, 0.926916, "ba2d5a822c59a931"),
        ("swebench_lite_acr", 2326, 300, 4, 0.162511, "df25f9b18279ed11"),
    ],
)
def test_tables_hold_the_runs_that_readers_imported(
    name: str,
    runs: int,
    tasks: int,
    agents: int,
    rate: float,
    digest: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    from published import read_published

    frame = read_published(shared_data(name))
    counts = len(frame), frame["task_id"].nunique(), frame["agent"].nunique()
    assert counts == (runs, tasks, agents)
    assert frame["outcome"].mean() == pytest.approx(rate, abs=1e-6)
    told = frame[
        ["task_id", "trajectory_id", "agent", "attempt", "instruction", "steps", "outcome"]
    ]
    text = told.to_json(orient="records").encode()
    assert hashlib.sha256(text).hexdigest()[:16] == digest
