"""Both sides of a judge: what they decide, of each row and in all, and the δ that they share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from certify_assets.certificates import (
    Certificate,
    CertificateSet,
    Observations,
    Settings,
    Sides,
    certify,
    certify_sides,
    decide,
    evaluate,
    observe,
    verify,
)
from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.evidence import Evidence
from certify_assets.certificates.sides import joint_deltas
from certify_assets.errors import InputError
from certify_assets.research.populations import Sample
from certify_assets_tests.populations import paper_process

DELTA, TRIALS, SEED = 0.05, 1000, 20261122


def sample(tasks: int) -> Sample:
    return paper_process(tasks, 0.5, 0)


def test_the_shares_are_those_of_the_decided_rows() -> None:
    data = sample(tasks=80)
    for alpha, guard in ((0.4, "none"), (0.2, "floor"), (0.05, "none")):
        found = certify_sides(*data, alpha=alpha, guard=guard).sides
        assert found is not None
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


def halves(rng: np.random.Generator, rows: int = 400) -> Sample:
    """Runs of their own tasks: .2, then .6 of them succeed.

    At α = .4 rejecting half of them is right, all of them too much by a hair; and so is releasing
    the upper half.
    """
    scores = np.arange(rows) / rows
    outcomes = rng.random(rows) < np.where(scores < 0.5, 0.2, 0.6) - 1e-9
    return Sample(scores, outcomes.astype(int), np.arange(rows))


def wrong(observations: Observations, settings: Settings, delta: float) -> bool:
    """Whether a side is certified beyond the half that its error allows."""
    chosen = evaluate(observations, settings.replace(delta=delta)).chosen
    return chosen is not None and chosen >= (2 if settings.side == "reject" else 1)


def test_the_joint_error_of_both_sides_is_at_most_delta() -> None:
    rng = np.random.default_rng(SEED)
    asked = Settings(procedure="naive", alpha=0.4, delta=DELTA, grid=3)
    each = {side: asked.replace(side=side) for side in ("reject", "release")}
    shared = 0
    for _ in range(TRIALS):
        observations = observe(*halves(rng))
        deltas = joint_deltas(Evidence(observations), asked)
        shared += any(wrong(observations, each[side], deltas[side]) for side in each)
    assert shared / TRIALS <= DELTA + 2 * (DELTA * (1 - DELTA) / TRIALS) ** 0.5


def test_a_side_hands_on_what_its_certified_thresholds_paid() -> None:
    # nothing succeeds below the highest scores, so that every threshold of reject passes
    scores = np.arange(400) / 400
    outcomes = (scores > 0.99).astype(int)
    observations = observe(scores, outcomes, np.arange(400))
    # eight rows prove nothing at a fortieth of it, and what they would have cost is not free
    asked = Settings(procedure="naive", alpha=0.2, delta=DELTA)
    passed = evaluate(observations, asked.replace(delta=DELTA / 2)).passed
    assert not passed[0] and passed[-1]
    assert joint_deltas(Evidence(observations), asked)["release"] == DELTA / 2 * (1 + passed.mean())


def test_what_certifies_nothing_has_spent_its_share() -> None:
    data = sample(tasks=6)
    found = certify_sides(*data, joint=True)
    assert [item.delta for item in found.certificates] == [0.025, 0.025]
    assert found.outline()["decided"] == 0.0


def test_shared_deltas_are_recomputed() -> None:
    data = sample(tasks=80)
    found = certify_sides(*data, alpha=0.2, joint=True)
    assert "together with 95 % confidence" in str(found.statement)
    assert verify(found, *data) is None
    assert "by sharing 0.06" in str(verify(replace(found, joint_delta=0.06), *data))
    # by Bonferroni a part of the grid frees a part of δ/2, which the default only does as a whole
    apart = certify_sides(*data, procedures=["guarded_taskboot"], alpha=0.2, delta=0.025)
    assert "by sharing 0.05" in str(verify(replace(apart, joint_delta=0.05), *data))


def test_only_both_sides_under_the_same_settings_share_delta() -> None:
    data = sample(tasks=80)
    # each at the level that it would have beside its own other side: together above δ
    made = []
    for side, alpha in (("reject", 0.2), ("release", 0.6)):
        deltas = joint_deltas(Evidence(observe(*data)), Settings(alpha=alpha, delta=DELTA))
        made.append(certify(*data, alpha=alpha, delta=deltas[side], side=side))
    assert sum(item.delta for item in made) > DELTA
    for forged in (made, made[:1]):
        found = verify(CertificateSet(tuple(forged), DELTA), *data)
        assert "under the same settings" in str(found)


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
