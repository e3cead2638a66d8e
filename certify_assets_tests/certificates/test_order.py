"""Proposition 1 of the paper: a certificate depends on the order of the scores alone."""

import numpy as np
import pytest

from certify_assets.certificates import certify, decide


@pytest.mark.parametrize("side", ["reject", "release"])
@pytest.mark.parametrize("procedure", ["pseudo_task", "taskboot"])
def test_a_map_that_keeps_the_order_keeps_certificate_and_decisions(
    side: str, procedure: str
) -> None:
    rng = np.random.default_rng(0)
    tasks = np.repeat(np.arange(120), 3)
    outcomes = (rng.random(tasks.size) < rng.beta(0.3, 0.3, 120)[tasks]).astype(int)
    scores = 3.0 * outcomes + rng.normal(size=tasks.size)
    settings = {"side": side, "alpha": 0.2, "procedure": procedure}
    plain = certify(scores, outcomes, tasks, **settings)
    assert plain.certified
    # a temperature, Platt scaling with its probabilities, and a map that is not linear
    for mapped in (scores / 7, 1 / (1 + np.exp(-0.5 * scores - 2)), np.exp(scores)):
        found = certify(mapped, outcomes, tasks, **settings)
        assert (found.coverage, found.selective_error, found.tail, found.level) == (
            plain.coverage,
            plain.selective_error,
            plain.tail,
            plain.level,
        )
        assert (decide(found, mapped).decisions == decide(plain, scores).decisions).all()
