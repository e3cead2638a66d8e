"""What follows from a device, and that a fast engine stands behind a comparison."""

from dataclasses import replace

import numpy as np
import pytest

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.lm import parity as module
from certify_assets.judges.lm.judge import CausalJudge, load_base
from certify_assets.judges.lm.parity import engine_limits
from certify_assets.judges.lm.score import ScoringConfig

TEXTS = [f"USER: task {place}\n" + "TOOL: step\n" * place for place in range(12)]


@pytest.fixture(scope="module")
def compact() -> CausalJudge:
    return CausalJudge("base", *load_base("compact"))


def test_a_fast_engine_is_compared_before_it_scores(
    compact: CausalJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, provenance = compact.score(TEXTS).score, compact.provenance()
    assert "parity" not in provenance.settings and "cpu" in provenance.engine
    padded = ScoringConfig()
    monkeypatch.setattr(ScoringConfig, "suited", classmethod(lambda *_: padded))
    np.testing.assert_allclose(compact.score(TEXTS).score, plain, atol=1e-4)
    fast = compact.provenance()
    assert fast.sha256 != provenance.sha256
    assert fast.settings["parity"] == engine_limits(compact.language)
    real = module.engine_parity
    monkeypatch.setattr(
        module,
        "engine_parity",
        lambda *args, **more: replace(real(*args, **more), max_difference=1.0),
    )
    said = r"engine transformers .* differs from the reference on 12 rows"
    with pytest.raises(StaleCertificateError, match=said):
        compact.score(TEXTS)
