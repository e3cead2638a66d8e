"""Python answers what the command answers."""

from pathlib import Path

import pandas as pd
import pytest

from certify_assets import InputError, certify
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Call


def test_the_default_is_that_of_the_command(call: Call, tmp_path: Path) -> None:
    score_rows(tasks=80, attempts=4).to_csv(tmp_path / "s.csv", index=False)
    table = pd.read_csv(tmp_path / "s.csv")
    found = certify(table)
    assert found.to_dict() == call(f"certificate {tmp_path}/s.csv --json").json
    assert {item.side for item in found.certificates} == {"reject", "release"}
    arrays = certify(
        table["score"],
        table["outcome"],
        table["task_id"],
        candidates=2,
        selection="the better one",
        provenance={"judge": "mine"},
    )
    for item in arrays.certificates:
        assert (item.selection, item.provenance) == ("the better one", {"judge": "mine"})


def test_a_pool_is_scores_and_tasks() -> None:
    table, pool = score_rows(tasks=80, attempts=4), score_rows(tasks=40, seed=1)
    pool["task_id"] = "new-" + pool["task_id"]
    assert "pool" in certify(table, pool=(pool["score"], pool["task_id"])).certificates[0].inputs
    for columns in (["score", "task_id"], ["task_id", "score", "agent"]):
        with pytest.raises(InputError, match=r"pool is a DataFrame; give pool=\(scores, tasks\)"):
            certify(table, pool=pool[columns])
