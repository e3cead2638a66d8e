"""What follows from a device, and that a fast engine stands behind a comparison."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.lm import judge as module
from certify_assets.judges.lm.contract import Hardware
from certify_assets.judges.lm.judge import CausalJudge, engine_limits, load_base
from certify_assets.judges.lm.scoring import ScoringConfig
from certify_assets_tests.judges.lm import models

TEXTS = [f"USER: task {place}\n" + "TOOL: step\n" * place for place in range(12)]


@pytest.fixture(scope="module")
def compact() -> CausalJudge:
    return CausalJudge("base", *load_base("compact"))


def test_a_cpu_keeps_to_the_reference() -> None:
    cpu = Hardware.of(models.tiny_qwen3())
    assert cpu == Hardware("cpu", "float32")
    assert not cpu.accelerated
    assert not cpu.half
    assert cpu.fused is None
    assert ScoringConfig.suited(models.judge(models.tiny_qwen3())).is_reference
    cuda = Hardware("cuda", "bfloat16")
    assert cuda.half and cuda.fused is True and not Hardware("cuda", "float32").half


def test_a_fast_engine_is_compared_before_it_scores(
    compact: CausalJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, provenance = compact.score(TEXTS).score, compact.provenance()
    assert "parity" not in provenance.settings and not provenance.engine.endswith("packed")
    monkeypatch.setattr(
        ScoringConfig, "suited", classmethod(lambda *_: ScoringConfig(padding="packed"))
    )
    checks: list[Any] = []
    real = module.engine_parity

    def seen(*arguments: Any, **keywords: Any) -> Any:
        checks.append(real(*arguments, **keywords))
        return checks[-1]

    monkeypatch.setattr(module, "engine_parity", seen)
    np.testing.assert_allclose(compact.score(TEXTS).score, plain, atol=1e-4)
    assert len(checks) == 1 and checks[0].passed and checks[0].rows == 12
    fast = compact.provenance()
    assert fast.engine.endswith("cpu, packed") and fast.sha256 != provenance.sha256
    assert fast.settings["parity"] == engine_limits(compact.language)
    assert fast.settings["merged"] is False
    monkeypatch.setattr(
        module, "engine_parity", lambda *_, **__: replace(checks[0], max_difference=1.0)
    )
    with pytest.raises(
        StaleCertificateError,
        match=r"engine transformers .* packed differs from the reference on 12 rows",
    ):
        compact.score(TEXTS)
