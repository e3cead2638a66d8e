"""Mixtures of tasks: the true error is that of a large draw, and no threshold escapes it."""

import numpy as np
import pytest

from certify_assets.errors import InputError
from certify_assets.research.designs import check_truth
from certify_assets.research.mixtures import MIXTURES, Kind, Mixture, mixture
from certify_assets.research.populations import draw_sizes, pilot_of, size_law


@pytest.mark.parametrize("name", MIXTURES)
def test_the_truth_is_that_of_a_large_draw(name: str) -> None:
    design = mixture(name, 50, 0.102)
    found = check_truth([design], tasks=30_000)
    assert found and max(check.distance for check in found) < 4.5
    assert design.true_error(np.linspace(-6, 6, 200)).min() == pytest.approx(0.102, rel=1e-3)
    sample = design.draw(np.random.default_rng(0))
    assert np.bincount(sample.tasks).max() <= design.cap
    assert pilot_of(design, 7, np.random.default_rng(1)).tasks.tolist()[0] == 50


@pytest.mark.parametrize("law", ["one", "two", "geometric", "pareto", "sixteen"])
def test_sizes_follow_their_law(law: str) -> None:
    size, mass = size_law(law)
    drawn = draw_sizes(law, 50_000, np.random.default_rng(0))
    assert mass.sum() == pytest.approx(1.0)
    spread = np.sqrt(mass @ np.square(size - mass @ size) / drawn.size)
    assert abs(drawn.mean() - mass @ size) < 4.5 * spread + 1e-12


def test_what_is_no_design_is_refused() -> None:
    with pytest.raises(InputError, match="give one of wrong_heavy_tails"):
        mixture("hidden", 20, 0.1)
    with pytest.raises(InputError, match="strictly between"):
        mixture("hidden_larger", 20, 1.0)
    plain = Mixture(name="plain", tasks=4, kinds=(Kind(share=1.0, error=0.25),), sizes="one")
    assert plain.true_error([0.0], "release").tolist() == [0.75]
