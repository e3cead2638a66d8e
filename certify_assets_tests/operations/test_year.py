"""A scripted year of weekly deliveries on a real benchmark, next to the outcomes that it withholds."""

from pathlib import Path

import pytest

from certify_assets_tests.paths import assert_painted, benchmark, shared_data


@pytest.mark.slow
def test_a_year_of_deliveries_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shared_data("swebench_lite_acr").parent
    for name in ("CERTIFY_ROOT", "DAGSTER_HOME"):
        monkeypatch.setenv(name, str(tmp_path))  # the year sets its own; restored afterwards
    script = benchmark("year")
    calendar = script.Calendar(52)
    source = script.Source.read(data, "swebench_lite_acr", calendar, 0)
    year = script.Year(script.Platform(tmp_path), source, calendar, 0)
    year.start()
    year.run()
    table = script.outcome_table(year)
    summary = script.Summary.of(year, table)
    print(table.to_string(index=False), summary, sep="\n")
    assert list(table["week"]) == list(range(1, 53))
    assert summary.runs == sum(map(len, source.weekly))
    # the seeds of the draws are by chance: each certified batch is above with at most .05, so more
    # than a quarter and two of 14 to 30 have a chance below .001
    assert summary.certified >= 5
    assert summary.above <= 2 + summary.certified / 4
    assert summary.batch_error <= script.ALPHA
    assert summary.corpus_error <= script.ALPHA
    assert summary.disputed > 0, "the careless reviewer is seen where runs are read twice"
    notes = table["notes"]
    assert notes[calendar.tampered - 1].startswith("altered table refused")
    assert all("labelled runs added" in notes[week - 1] for week in calendar.labelled)
    assert year.deployed >= 2, "new certificates were deployed with nobody asked"
    script.draw(table, calendar, script.ALPHA, tmp_path / "year.png")
    assert_painted(tmp_path / "year.png")
