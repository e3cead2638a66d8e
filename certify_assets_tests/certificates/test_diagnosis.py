from typing import Any

import numpy as np
import pytest

from certify_assets.certificates import certify, diagnose, observe, threshold_curve
from certify_assets.certificates.diagnosis import approximate
from certify_assets_tests.certificates.reference import resample_errors
from certify_assets_tests.populations import paper_process


def test_a_blind_judge_is_named() -> None:
    rng = np.random.default_rng(0)
    found = diagnose(rng.normal(size=400), rng.integers(0, 2, 400), np.arange(400) % 50)
    assert (found.stopped_by, found.tasks_needed) == ("judge", None)
    assert "The judge is the limit" in found.sentence
    few = diagnose(rng.normal(size=60), rng.integers(0, 2, 60), np.arange(60) % 6)
    assert few.stopped_by == "few" and "Label at least 20" in few.sentence


def test_few_tasks_are_named_and_so_many_certify() -> None:
    scores, outcomes, tasks = paper_process(20, 0.8, 1)
    guarded = diagnose(scores, outcomes, tasks, procedure="guarded_taskboot")
    assert (guarded.stopped_by, guarded.tasks_needed) == ("guard", None)
    found = diagnose(scores, outcomes, tasks)
    assert found.stopped_by == "tasks" and 20 < found.tasks_needed < 200
    enough = -(-found.tasks_needed // 20) + 1
    shift = np.repeat(np.arange(enough) * 20, tasks.size)
    assert certify(
        np.tile(scores, enough), np.tile(outcomes, enough), np.tile(tasks, enough) + shift
    ).certified


@pytest.mark.parametrize("procedure", ["taskboot", "naive", "deff", "task_hoeffding"])
def test_the_number_of_tasks_is_named(procedure: str) -> None:
    tasks = np.repeat(np.arange(10), 2)
    outcomes = np.tile([0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 2)
    found = diagnose(np.zeros(20), outcomes, tasks, procedure=procedure, alpha=0.2, grid=5)
    assert found.stopped_by == "tasks" and found.tasks_needed > 10
    # the others have no proof, and name no number below that of any validation
    assert procedure == "task_hoeffding" or found.tasks_needed >= 20
    assert f"About {approximate(found.tasks_needed - 10)} more task" in found.sentence


def test_at_the_size_named_about_every_second_sample_passes() -> None:
    passed: dict[int, list[bool]] = {1: [], 2: []}
    for seed in range(12):
        found = diagnose(*paper_process(20, 0.5, [seed, 1]))
        if found.tasks_needed is not None:
            for times in passed:
                again = paper_process(times * found.tasks_needed, 0.5, [seed, times, 7])
                passed[times].append(certify(*again).certified)
    # measured .54 and 1.0 over 96 samples; standard error here about .14
    assert 0.2 < np.mean(passed[1]) < 0.95 and np.mean(passed[2]) > 0.9


@pytest.mark.parametrize("procedure", ["pseudo_task", "guarded_taskboot"])
@pytest.mark.parametrize("side", ["reject", "release"])
def test_curve(side: str, procedure: str) -> None:
    data = paper_process(80, 0.5, 4)
    asked: dict[str, Any] = {"side": side, "procedure": procedure, "alpha": 0.2}
    curve, certificate = threshold_curve(*data, **asked), certify(*data, **asked)
    assert certificate.certified and (np.diff(curve.coverage) >= 0).all()
    assert curve.thresholds.size == certificate.settings["grid"]
    assert np.array_equal(curve.bootstrap_upper <= 0.2, curve.tail <= curve.level)
    (place,) = np.flatnonzero(curve.thresholds == certificate.threshold)
    assert curve.tail[place] == pytest.approx(certificate.tail)
    assert (curve.bootstrap_upper >= curve.selective_error - 5e-4).all()


def test_bootstrap_upper_is_the_quantile_of_many_resamples() -> None:
    data = paper_process(60, 0.5, 4)
    curve = threshold_curve(*data, procedure="guarded_taskboot", delta=0.4)
    from certify_assets.certificates.counts import count_at

    place = 30
    counts = count_at(observe(*data), "reject", curve.thresholds[place : place + 1])
    errors = resample_errors(counts, 100_000, 0)
    assert curve.bootstrap_upper[place] == pytest.approx(np.quantile(errors, 1 - 0.01), abs=0.004)
