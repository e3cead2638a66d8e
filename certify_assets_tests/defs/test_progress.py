"""What a command shows of its run: the end of each step, once."""

import dagster as dg
import pytest

from certify_assets.defs.progress import progress_logger


@dg.asset
def thing() -> None: ...


@dg.asset_check(asset=thing)
def doubt() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN)


def test_the_steps_of_a_run_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    job = dg.define_asset_job("all", selection=dg.AssetSelection.all())
    made = dg.Definitions(
        assets=[thing],
        asset_checks=[doubt],
        jobs=[job],
        loggers={"progress": progress_logger},
    )
    config = {"loggers": {"progress": {"config": {"steps": 2, "label": "c: "}}}}
    result = made.resolve_job_def("all").execute_in_process(run_config=config)
    assert result.success
    # one count, though Dagster makes a logger for the run and one for its steps
    assert [line.split("(")[0].split() for line in capsys.readouterr().err.splitlines()] == [
        ["1/2", "c:", "thing", "done"],
        ["2/2", "c:", "thing_doubt", "done"],
    ]
