"""Both sides of a judge: what they decide, of each row and in all, and the δ that they share."""

from __future__ import annotations

import numpy as np
import pytest

from certify_assets.certificates import (
    Certificate,
    Certifier,
    Settings,
    Sides,
    certify,
    decide,
    evaluate,
    observe,
    verify,
)
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.ladder import issue
from certify_assets.certificates.procedures import DEFAULT
from certify_assets.errors import InputError
from certify_assets.research.populations import Sample
from certify_assets_tests.populations import paper_process

DELTA, SEED = 0.05, 20261122


def sample(tasks: int) -> Sample:
    return paper_process(tasks, 0.5, 0)


def test_the_shares_are_those_of_the_decided_rows() -> None:
    data = sample(tasks=80)
    for alpha in (0.4, 0.2, 0.05):
        asked = {"alpha": alpha, "procedure": DEFAULT}
        found = issue(Certifier.of(*data), asked).sides
        counts = decide(found.certificates, data.scores).counts
        rows = np.size(data.scores)
        assert found.shares == pytest.approx({name: n / rows for name, n in counts.items()})
        assert found.decided == pytest.approx(1 - counts["human"] / rows)
        assert (found.overlap > 0) == (alpha > 0.1)


def test_of_each_side_the_strictest_budget_that_certifies_is_taken() -> None:
    data = sample(tasks=80)
    made = {
        side: [certify(*data, side=side, alpha=alpha) for alpha in (0.3, 0.02, 0.1)]
        for side in ("release", "reject")
    }
    every = [item for items in made.values() for item in items]
    found = Sides.strictest(every)
    assert [item.side for item in found.certificates] == ["reject", "release"]
    for item in found.certificates:
        mine = made[item.side]
        assert item.alpha == min([one.alpha for one in mine if one.certified] or [0.02])
    assert found.lead in found.certified
    nothing = Sides.strictest([item for item in every if not item.certified])
    assert not nothing.certified and nothing.decided == 0 and nothing.human == 1


def test_both_sides_together_have_half_of_delta_each() -> None:
    data = sample(tasks=80)
    found = issue(Certifier.of(*data), {"alpha": 0.2, "delta": DELTA}, joint=True)
    assert [item.delta for item in found.certificates] == [DELTA / 2] * 2
    assert "together with 95 % confidence" in str(found.statement)
    assert verify(found, *data) is None


@pytest.mark.statistics
@pytest.mark.parametrize("procedure", ["guarded_taskboot", "pseudo_task"])
def test_where_errors_fill_tasks_a_guard_at_half_of_delta_gives_less_than_it_promises(
    procedure: str,
) -> None:
    # .102 of the tasks are wrong throughout on a side: no threshold of the other half is within .1
    rng, wrong = np.random.default_rng(SEED), 0
    each = [Settings(delta=DELTA / 2, procedure=procedure, side=side) for side in SIDES]
    for _ in range(300):
        tasks = np.repeat(np.arange(50), 8)
        scores = rng.random(tasks.size)
        fooled = rng.random((2, 50)) < 0.102
        upper = scores > 0.5
        outcomes = upper ^ np.where(upper, fooled[1][tasks], fooled[0][tasks])
        observations = observe(scores, outcomes.astype(int), tasks)
        wrong += any(evaluate(observations, asked).chosen is not None for asked in each)
    print(f"{procedure}: a side is wrong in {wrong / 300:.3f} of 300 tables, promised {DELTA}")
    # above δ: each side alone misses its half, see docs/certificates.md, "Both sides"
    assert wrong / 300 <= 2 * DELTA


def both() -> tuple[Certificate, Certificate]:
    data = paper_process(80, 0.5, 1)
    reject, release = certify(*data), certify(*data, side="release")
    assert reject.certified and release.certified
    return reject, release


def nothing(side: str) -> Certificate:
    rng = np.random.default_rng(0)
    return certify(rng.normal(size=200), rng.integers(0, 2, 200), np.arange(200) % 40, side=side)


def test_one_side() -> None:
    reject, release = both()
    low, high = reject.threshold, release.threshold
    decisions, reasons = decide(reject, [low - 1, low, np.nextafter(low, 9), np.nan])
    assert decisions.tolist() == ["reject", "reject", "human", "human"]
    assert reasons.tolist() == ["below_threshold", "below_threshold", "middle", "unscored"]
    found = decide(release, [high, np.nextafter(high, -9), None])
    assert found.decisions.tolist() == ["release", "human", "human"]
    assert found.counts == {"reject": 0, "release": 1, "human": 2}


def test_a_row_in_both_regions_goes_to_people() -> None:
    reject, release = both()
    low, high = sorted([reject.threshold, release.threshold])
    found = decide([reject, release], [low - 1, (low + high) / 2, high + 1])
    middle = "overlap" if release.threshold < reject.threshold else "middle"
    assert found.reasons.tolist() == ["below_threshold", middle, "above_threshold"]
    assert found.decisions.tolist() == ["reject", "human", "release"]


def test_one_score_in_both_regions_is_no_range_of_scores() -> None:
    outcomes = np.arange(400) % 2
    data = np.full(400, 3.0), outcomes, np.arange(400).astype(str)
    made = issue(Certifier.of(*data), {"alpha": 0.7})
    assert "The score 3 (100.0 % of the rows) lies in both regions." in made.statement


def test_where_nothing_is_certified_people_decide() -> None:
    reject, _ = both()
    assert set(decide(nothing("reject"), [0.0, np.nan]).reasons) == {"not_certified", "unscored"}
    found = decide([reject, nothing("release")], [-99.0, 99.0])
    assert found.reasons.tolist() == ["below_threshold", "middle"]


def test_what_cannot_be_decided_is_refused() -> None:
    reject, _ = both()
    for certificates, scores in (
        ([reject, reject], [0.0]),
        ([], [0.0]),
        (reject, [np.inf]),
        (reject, ["high"]),
        (reject, [[0.0]]),
        (reject, [[0.0], [0.0, 1.0]]),
    ):
        with pytest.raises(InputError):
            decide(certificates, scores)
