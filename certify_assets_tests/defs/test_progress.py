"""What a command shows of its run: the end of each step, and the checks that do not pass."""

import dagster as dg
import pytest

from certify_assets.defs import progress


@dg.asset
def thing() -> None: ...


@dg.asset_check(asset=thing)
def doubt() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN)


@dg.asset_check(asset=thing)
def trust() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)


def test_steps_and_checks_that_did_not_pass_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    job = dg.define_asset_job("all", selection=dg.AssetSelection.all())
    made = dg.Definitions(
        assets=[thing],
        asset_checks=[doubt, trust],
        jobs=[job],
        loggers={"progress": progress.progress_logger},
    )
    config = {"loggers": {"progress": {"config": {"steps": 3, "label": "c: "}}}}
    assert made.resolve_job_def("all").execute_in_process(run_config=config).success
    shown = capsys.readouterr().err.splitlines()
    # one count of the steps, though Dagster makes a logger for the run and one for its steps
    assert [line.split("(")[0].split() for line in shown[:-1]] == [
        ["1/3", "c:", "thing", "done"],
        ["2/3", "c:", "thing_doubt", "done"],
        ["3/3", "c:", "thing_trust", "done"],
    ]
    assert shown[-1] == "  c: checks not passed: thing: doubt"
    assert not progress._handlers
