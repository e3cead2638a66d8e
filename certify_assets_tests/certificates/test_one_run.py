"""one_run and average: golden values, what is refused, and whether the promises hold."""

import itertools
import math
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from certify_assets.certificates import Settings, certify, evaluate, observe
from certify_assets.certificates.inputs import UNCLEAR, UNLABELLED
from certify_assets.certificates.one_run import rows_until_stop, stop_limit
from certify_assets.certificates.path_limits import path_limits, path_probability
from certify_assets.errors import InputError
from certify_assets_tests.paths import REPOSITORY, benchmark

#: rows, α → the fewest rows with 0, 1, … errors, λ*, the path probability, most errors of any width
LIMITS = {
    (20, 0.1): ((), 0.0, 0.0, -1),
    (20, 0.2): ((14,), 0.04398047, 0.04398047, 0),
    (30, 0.1): ((29,), 0.04710129, 0.04710129, 0),
    (30, 0.2): ((16, 24), 0.03305657, 0.04703696, 1),
    (40, 0.1): ((29,), 0.04710129, 0.04710129, 0),
    (40, 0.2): ((17, 25, 33), 0.02738973, 0.04934907, 2),
    (63, 0.1): ((33, 50), 0.03378586, 0.04980033, 1),
    (63, 0.2): ((18, 28, 36, 43, 50, 57), 0.01857003, 0.04949828, 5),
    (100, 0.1): ((37, 55, 71, 87), 0.02231317, 0.04875855, 3),
    (100, 0.2): ((20, 29, 37, 45, 53, 60), 0.01357122, 0.04981037, 11),
    (126, 0.1): ((39, 57, 74, 89, 104, 119), 0.01819920, 0.04950617, 5),
    (126, 0.2): ((20, 30, 38, 46, 53, 61), 0.01178814, 0.04902505, 14),
    (200, 0.1): ((41, 61, 78, 93, 109, 123), 0.01345932, 0.04992553, 10),
    (200, 0.2): ((21, 31, 40, 48, 55, 62), 0.00922337, 0.04968138, 26),
}
#: 40 tasks in the order of their scores, with errors at six places
PLACES = np.arange(1.0, 41.0)
WRONG = np.isin(PLACES, [17, 29, 30, 36, 37, 39]).astype(int)
#: 30 tasks, six each at five scores
TIED = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 6)
TIED_WRONG = np.concatenate([[1] * k + [0] * (6 - k) for k in (0, 0, 1, 2, 4)])
SAMPLE = {"count": 60, "attempts": 1, "estimand": "tasks", "most": 1, "seed": 7, "sha256": "0" * 64}
NAMES = [f"task-{place}" for place in range(40)]


@pytest.mark.parametrize(("rows", "alpha"), LIMITS)
def test_golden_limits(rows: int, alpha: float) -> None:
    fewest, level, path, most = LIMITS[rows, alpha]
    found = path_limits(rows, alpha, 0.05)
    shown = [int(np.argmax(found.most >= errors)) for errors in range(min(6, found.stop + 1))]
    assert (tuple(shown), found.stop) == (fewest, most)
    assert (round(found.level, 8), round(found.path, 8)) == (level, path)


@given(st.integers(1, 9), st.sampled_from([0.1, 0.3, 0.5]), st.integers(0, 1_000))
@settings(max_examples=30, deadline=None)
def test_the_path_probability_is_that_of_all_walks(rows: int, alpha: float, seed: int) -> None:
    rising = np.maximum.accumulate(np.random.default_rng(seed).integers(-1, 4, rows + 1))
    limits = np.minimum(np.arange(rows + 1) - 1, rising)
    limits[0] = -1
    met = 0.0
    for walk in itertools.product((0, 1), repeat=rows):
        sums = np.cumsum(walk)
        if (sums <= limits[1:]).any():
            met += math.prod(alpha if step else 1 - alpha for step in walk)
    assert path_probability(limits, alpha) == pytest.approx(met)


@pytest.mark.parametrize(
    ("scores", "wrong", "procedure", "alpha", "threshold"),
    [
        (PLACES, WRONG, "one_run", 0.1, None),
        (PLACES, WRONG, "one_run", 0.2, 28),
        (PLACES, WRONG, "average", 0.1, 28),
        (PLACES, WRONG, "average", 0.2, 40),
        (TIED, TIED_WRONG, "one_run", 0.1, None),
        (TIED, TIED_WRONG, "one_run", 0.2, None),
        (TIED, TIED_WRONG, "average", 0.1, None),
        (TIED, TIED_WRONG, "average", 0.2, 4),
    ],
)
def test_golden_certificates(
    scores: NDArray[np.float64],
    wrong: NDArray[np.int64],
    procedure: str,
    alpha: float,
    threshold: float | None,
) -> None:
    asked = {"procedure": procedure, "alpha": alpha, "planned_share": 1}
    names = NAMES[: scores.size]
    found = certify(scores, wrong, names, **asked)
    assert found.threshold == threshold
    mirrored = certify(-scores, 1 - wrong, names, side="release", **asked)
    assert mirrored.threshold == (None if threshold is None else -threshold)
    assert mirrored.coverage == found.coverage and mirrored.tail == found.tail


def test_the_promise_is_named_and_said() -> None:
    proved = certify(PLACES, WRONG, NAMES, procedure="one_run", alpha=0.2, sample=SAMPLE)
    average = certify(PLACES, WRONG, NAMES, procedure="average", alpha=0.2)
    assert [item.promise for item in (proved, average)] == ["proved", "average"]
    assert "With 95 % confidence at most 20 % of the decided runs are wrong" in proved.statement
    assert "with 95 % confidence this one is below 40 %" in average.statement
    assert certify(PLACES, WRONG, NAMES).promise == "confident"


@pytest.mark.parametrize(
    ("alpha", "procedure", "read"),
    [(0.1, "one_run", 17), (0.2, "one_run", 30), (0.1, "average", 36), (0.2, "average", 40)],
)
def test_golden_numbers_of_labels(alpha: float, procedure: str, read: int) -> None:
    limit = stop_limit(procedure, 40, alpha=alpha, level=0.05, share=1)
    assert rows_until_stop(WRONG == 1, limit) == read


@given(st.integers(0, 10_000), st.sampled_from(["one_run", "average"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_threshold_is_that_of_all_labels(seed: int, procedure: str, release: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=60), 1)
    wrong = (rng.random(60) < 1 / (1 + np.exp(2 - 2 * scores))).astype(int)
    asked = {"procedure": procedure, "alpha": 0.2, "sample": SAMPLE}
    side, turned = ("release", -1) if release else ("reject", 1)
    outcomes = 1 - wrong if release else wrong
    limit = stop_limit(procedure, 60, alpha=0.2, level=0.05, share=0.6)
    order = np.argsort(scores, kind="stable")
    read = rows_until_stop(wrong[order] == 1, limit)
    partly = outcomes.copy()
    partly[order[read:]] = UNLABELLED
    names = [f"t{place}" for place in range(60)]
    whole = certify(turned * scores, outcomes, names, side=side, **asked)
    found = certify(turned * scores, partly, names, side=side, **asked)
    assert (found.threshold, found.coverage) == (whole.threshold, whole.coverage)
    if read < 60:
        # the last row that was read is needed
        partly[order[read - 1]] = UNLABELLED
        with pytest.raises(InputError, match="needs more labels"):
            certify(turned * scores, partly, names, side=side, **asked)


@pytest.mark.parametrize("side", ["reject", "release"])
def test_an_unclear_label_counts_as_wrong(side: str) -> None:
    outcomes = np.full(40, int(side == "release"))
    scores = PLACES if side == "reject" else -PLACES
    unclear, wrong = outcomes.copy(), outcomes.copy()
    unclear[:3], wrong[:3] = UNCLEAR, 1 - outcomes[:3]
    asked = {"side": side, "procedure": "average", "alpha": 0.2, "sample": SAMPLE}
    one, other = (certify(scores, each, NAMES, **asked) for each in (unclear, wrong))
    assert one.errors == other.errors == 3 and one.threshold == other.threshold
    assert one.success_rate == int(side == "release")


@pytest.mark.parametrize(
    ("procedure", "alpha", "least"),
    [("one_run", 0.1, 29), ("one_run", 0.2, 14), ("average", 0.1, 14), ("average", 0.2, 6)],
)
def test_too_few_tasks_are_refused(procedure: str, alpha: float, least: int) -> None:
    asked = {"procedure": procedure, "alpha": alpha}
    scores, right = np.arange(float(least)), np.zeros(least, dtype=int)
    found = certify(scores, right, NAMES[:least], **asked)
    # a proof does not rest on the bootstrap
    assert found.certified and all(item["code"] != "few_tasks" for item in found.findings)
    with pytest.raises(InputError, match=f"needs at least {least} tasks"):
        certify(scores[1:], right[1:], NAMES[1:least], **asked)


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"looks": 3}, "looks are for one_run"),
        ({"procedure": "one_run", "looks": 2, "look": 3}, "look is 3"),
        ({"procedure": "average", "candidates": 2}, "average does not hold"),
        ({"procedure": "average", "alpha": 0.5}, "leaves no cap"),
    ],
)
def test_plans_without_a_proof_are_refused(settings_: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings(**settings_)


def test_looks_share_delta_and_grow() -> None:
    levels = [Settings(procedure="one_run", looks=4, look=look).level(40) for look in (1, 2, 3, 4)]
    assert levels == pytest.approx([0.005, 0.01, 0.015, 0.02])


def test_several_runs_a_task_are_used() -> None:
    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(60), 8)
    scores = rng.normal(size=480)
    wrong = (scores > 0.5) & (rng.random(480) < 0.9)
    found = certify(scores, wrong, tasks, procedure="one_run", alpha=0.2)
    assert found.certified and found.promise == "proved" and found.trajectories == 480
    assert found.tail is not None and found.tail <= found.level
    with pytest.raises(InputError, match="needs one drawn run of each task"):
        certify(scores, wrong, tasks, procedure="average", alpha=0.2)


@pytest.mark.parametrize("procedure", ["one_run", "average"])
def test_runs_without_a_label_that_were_left_out_prove_nothing(procedure: str) -> None:
    with pytest.raises(InputError, match=r"drawn runs, and 9 runs have none[^-]*its file.$"):
        certify(PLACES, WRONG, NAMES, procedure=procedure, alpha=0.2, left_out=9)
    assert certify(PLACES, 1 - WRONG, NAMES, left_out=9).promise == "confident"


def test_a_draw_of_a_run_without_a_score_covers_nothing() -> None:
    # of wrong tasks all runs have a score, of others one: over .3 of the decided runs are wrong
    tasks = np.repeat(np.arange(60), 8)
    wrong = tasks < 4
    scores = np.where(wrong | (np.arange(480) % 8 == 0), np.arange(480.0), np.nan)
    found = certify(scores, wrong, tasks, procedure="one_run", alpha=0.25)
    assert not found.certified and found.trajectories == 480 and found.tasks == 60
    assert "have a clear label" not in found.findings[-1]["message"], "all scored runs have one"
    (said,) = [item["message"] for item in found.findings if item["code"] == "unscored_rows"]
    assert said.startswith("392 of 480 rows have no score. They are counted as never decided")


def test_coverage_is_of_all_drawn_runs() -> None:
    scores = np.append(PLACES, np.full(20, np.nan))
    outcomes = np.append(WRONG, np.full(20, UNLABELLED))
    names = [f"t{place}" for place in range(60)]
    found = certify(scores, outcomes, names, procedure="one_run", alpha=0.2, sample=SAMPLE)
    assert (found.trajectories, found.tasks, found.success_rate) == (60, 60, 0.15)
    assert found.coverage == pytest.approx(found.covered_trajectories / 60)
    (said,) = [item["message"] for item in found.findings if item["code"] == "unscored_rows"]
    assert said.startswith("20 of 60 rows have no score")


def test_what_a_draw_counts_is_what_every_procedure_says() -> None:
    found = certify(PLACES, PLACES > 36, NAMES, alpha=0.2, sample=SAMPLE)
    assert found.estimand == "task" and "averaged over tasks" in found.statement
    runs = certify(
        PLACES, PLACES > 36, NAMES, alpha=0.2, sample={**SAMPLE, "estimand": "runs", "most": 8}
    )
    assert runs.estimand == "trajectory" and "no task counting as more than 8" in runs.statement
    with pytest.raises(InputError, match="Drawn tasks have from 1 to 2 runs"):
        certify(PLACES, PLACES > 36, [NAMES[1], *NAMES[1:]], alpha=0.2, sample=SAMPLE)


def _labels(
    kind: str, scores: NDArray[np.float64], alpha: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw errors: just above α everywhere, most where the judge is surest, or rising."""
    rate = np.full(scores.size, 1.02 * alpha)
    if kind == "falling":
        rate = np.where(scores < 0.1, 2.2 * alpha, 1.02 * alpha)
    if kind == "rising":
        rate = alpha * (0.6 + scores)
    return (rng.random(scores.size) < rate).astype(np.int64)


@pytest.mark.statistics
@pytest.mark.parametrize("kind", ["flat", "falling", "rising", "ties"])
@pytest.mark.parametrize("rows", [20, 30, 50, 100, 200])
@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_promises_hold_in_simulated_tables(kind: str, rows: int, alpha: float) -> None:
    # 2,000 tables: the standard error of a rate of .05 is .005, of the mean ratio below .01
    trials, rng = 2_000, np.random.default_rng(rows)
    wrong_share: dict[str, list[float]] = {"one_run": [], "average": []}
    broken = dict.fromkeys(wrong_share, 0)
    names = [str(place) for place in range(rows)]
    for _ in range(trials):
        scores = rng.random(rows)
        # five scores only
        seen = np.ceil(scores * 5) / 5 if kind == "ties" else scores
        table = observe(seen, _labels(kind, seen, alpha, rng), names)
        for procedure in wrong_share:
            asked = Settings(procedure=procedure, alpha=alpha)
            found = evaluate(table, asked).threshold
            if found is None:
                wrong_share[procedure].append(0.0)
                continue
            error = _true_error(kind, found, alpha)
            broken[procedure] += error > (alpha if procedure == "one_run" else 2 * alpha)
            claimed = np.count_nonzero(seen <= found) / (rows + 1)
            wrong_share[procedure].append(error * found / claimed)
    limit = 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)
    assert broken["one_run"] / trials <= limit and broken["average"] / trials <= limit
    ratios = np.array(wrong_share["average"])
    assert ratios.mean() <= alpha + 2 * ratios.std() / math.sqrt(trials)


def _true_error(kind: str, threshold: float, alpha: float) -> float:
    """Error among scores up to a threshold; scores are uniform."""
    if kind == "falling":
        first = min(threshold, 0.1)
        return alpha * (2.2 * first + 1.02 * (threshold - first)) / threshold
    return alpha * (0.6 + threshold / 2) if kind == "rising" else 1.02 * alpha


def _promises() -> ModuleType:
    """Import the benchmark, which imports another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(REPOSITORY / "benchmarks")
        return benchmark("promises")


promises = _promises()


@pytest.mark.statistics
@pytest.mark.parametrize("design", sorted(set(promises.ALL) - set(promises.OUTSIDE)))
def test_no_design_breaks_the_proof(design: str) -> None:
    # 2,000 tables at an error of 1.02 α: the standard error of a rate of .05 is .005. Three of them,
    # since there are some 70 rates. Four tasks in a group count as one
    trials, alpha, tasks = 2_000, 0.2, 200 if "as groups" in design else 50
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    one, several, cap, ratio, error = promises.broken(design, tasks, alpha, trials, 200)
    assert 0 < one <= limit and several <= limit and cap <= limit
    assert ratio <= 1 + 2 * error
    if design in promises.MOST:
        assert promises.thinned(design, 500, alpha, trials) <= limit
