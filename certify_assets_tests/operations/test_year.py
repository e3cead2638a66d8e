"""A scripted year of weekly deliveries on a real benchmark, next to the outcomes that it withholds."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from certify_assets_tests.paths import REPOSITORY, benchmark, shared_data


@pytest.mark.statistics
def test_a_year_of_deliveries_keeps_its_promises(tmp_path: Path) -> None:
    data = shared_data("swebench_lite_acr").parent
    script = benchmark("year")
    calendar = script.Calendar(52)
    # in a process of its own, whose assets are those of one judge
    command = [sys.executable, script.__file__, "--data", data, "--out", tmp_path]
    subprocess.run(command, check=True, cwd=REPOSITORY)
    table = pd.read_csv(tmp_path / "year.csv", keep_default_na=False)
    summary = script.Summary(**json.loads((tmp_path / "summary.json").read_text("utf-8")))
    assert list(table["week"]) == list(range(1, 53))
    assert summary.runs == summary.rows == table["runs"].sum()
    # the seeds of the draws are by chance: each certified batch is above with at most .05, so more
    # than a quarter and two of 14 to 30 have a chance below .001
    assert summary.certified >= 5
    assert summary.above <= 2 + summary.certified / 4
    assert summary.batch_error <= script.ALPHA
    assert summary.corpus_error <= script.ALPHA
    assert summary.disputed > 0, "the careless reviewer is seen where runs are read twice"
    assert summary.drift_seen >= 2, "the month of wrong verdicts is seen before any label"
    notes = table["notes"]
    assert notes[calendar.tampered - 1].startswith("altered table refused")
    assert all("labelled runs added" in notes[week - 1] for week in calendar.labelled)
    assert summary.deployments >= 2, "new certificates were deployed"
