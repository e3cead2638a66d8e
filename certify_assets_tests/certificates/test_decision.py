import numpy as np
import pytest

from certify_assets.certificates import Certificate, certify, decide
from certify_assets.errors import InputError
from certify_assets_tests.populations import paper_process


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
    ):
        with pytest.raises(InputError):
            decide(certificates, scores)
