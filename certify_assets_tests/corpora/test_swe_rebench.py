from pathlib import Path

from certify_assets.corpora.trajectory import Step
from certify_assets_tests.corpora.builders import from_frame, reader
from certify_assets_tests.corpora.swe_builders import (
    ISSUE,
    rebench_row,
    save_parquet,
    swe_agent_row,
)

read = reader("swe_rebench")


def test_rows_of_openhands(tmp_path: Path) -> None:
    rows = [rebench_row("org__name-1", 1, 0), rebench_row("org__name-1", 0, 1)]
    first, second = from_frame(read(save_parquet(tmp_path / "a.parquet", rows)).frame)
    assert (first.task_id, first.trajectory_id) == ("org__name-1", "chat-org__name-1-0")
    assert first.agent == "OpenHands Qwen3-Coder-480B-A35B-Instruct"
    assert first.instruction == ISSUE
    assert first.steps == (
        Step('I look, 0.\nexecute_bash({"command": "ls"})', "tool execute_bash: sums.py"),
        Step("Fixed.", ""),
    )
    assert [(run.attempt, run.outcome) for run in (first, second)] == [(0, 1), (1, 0)]


def test_rows_of_swe_agent(tmp_path: Path) -> None:
    rows = [swe_agent_row("org__name-1", target) for target in (True, False, None)]
    imported = read(save_parquet(tmp_path / "a.parquet", rows))
    first, second = from_frame(imported.frame)
    assert imported.dropped == {"no_label": 1}, "equal rows are runs of their own"
    steps = (Step("I look, 0.\n```\nls\n```", "user: sums.py"), Step("submit", ""))
    assert first.steps == second.steps == steps
    assert (first.agent, first.instruction) == ("small-model", ISSUE)
    assert (first.attempt, second.attempt) == (0, 1)
