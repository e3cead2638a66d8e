"""What a command shows of its run: a bar, or the end of each step, once."""

import dagster as dg
import pytest

from certify_assets.defs.execution import say_not_passed
from certify_assets.defs.progress import progress_logger
from certify_assets.work import WorkStage, under_way


@dg.asset
def thing(context: dg.AssetExecutionContext) -> None:
    context.log.info("A third is decided.")


@dg.asset_check(asset=thing)
def doubt() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN)


@pytest.mark.parametrize("lines", [True, False])
def test_the_steps_of_a_run_are_counted_once(
    lines: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    job = dg.define_asset_job("all", selection=dg.AssetSelection.all())
    made = dg.Definitions(
        assets=[thing],
        asset_checks=[doubt],
        jobs=[job],
        loggers={"progress": progress_logger},
    )
    config = {"loggers": {"progress": {"config": {"steps": 2, "label": "c: ", "lines": lines}}}}
    with under_way(WorkStage("c", 2)) as stage:
        result = made.resolve_job_def("all").execute_in_process(run_config=config)
    # one count, though Dagster makes a logger for the run and one for its steps
    assert result.success and stage.done == 2
    printed = [line.split("(")[0].split() for line in capsys.readouterr().err.splitlines()]
    steps = [["1/2", "c:", "thing", "done"], ["2/2", "c:", "thing_doubt", "done"]]
    assert printed == ([["c:", "A", "third", "is", "decided."], *steps] if lines else [])
    # a bar has it below
    assert stage.said == ("" if lines else "A third is decided.")


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("severity", dg.AssetCheckSeverity)
def test_a_check_that_did_not_pass_and_stopped_nothing_is_said(
    blocking: bool, severity: dg.AssetCheckSeverity, capsys: pytest.CaptureFixture[str]
) -> None:
    @dg.asset_check(asset=thing, blocking=blocking)
    def alarm() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, severity=severity, description="An alarm.")

    job = dg.define_asset_job("all", selection=dg.AssetSelection.all())
    made = dg.Definitions(assets=[thing], asset_checks=[alarm], jobs=[job])
    result = made.resolve_job_def("all").execute_in_process(raise_on_error=False)
    stopped = blocking and severity == dg.AssetCheckSeverity.ERROR
    assert result.success is not stopped
    capsys.readouterr()
    say_not_passed(result.all_events, "warnings")
    assert capsys.readouterr().err.split() == (
        [] if stopped else ["thing,", "alarm:", "An", "alarm."]
    )
