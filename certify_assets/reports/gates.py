"""Gates in words: a symbol, a word and a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, GateResult

_NAMES = {
    "judge_can_learn": "judge can learn",
    "sft_not_saturated": "fine-tuning not saturated",
    "enough_samples": "enough samples",
}


@dataclass(frozen=True)
class GateMark:
    """One gate for a reader."""

    symbol: str
    words: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.symbol} {self.words}: {self.name}. {self.reason}"


def gate_mark(gate: GateResult) -> GateMark:
    """Return a gate in words."""
    return GateMark(*_look(gate.passed), _NAMES[gate.name], gate.reason)


def gates_markdown(certificate: Certificate, scores: Any, outcomes: Any, tasks: Any) -> str:
    """Return the three gates of a score table as a Markdown list."""
    from certify_assets.certificates import table_gates

    # the level tells among how many thresholds, chains and candidates δ is shared
    gates = table_gates(
        scores,
        outcomes,
        tasks,
        alpha=certificate.alpha,
        delta=certificate.delta,
        grid=round(certificate.delta / certificate.level),
        seed=certificate.seed,
    )
    return "\n".join(f"- {gate_mark(gate)}" for gate in gates)


def profile_markdown(gates: Sequence[Mapping[str, Any]]) -> str:
    """Return the gates of a corpus profile, which knows no judge, as a Markdown list."""
    lines = []
    for gate in gates:
        symbol, words = _look(bool(gate["possible"]) and bool(gate["enough_samples"]))
        lines.append(f"- {symbol} {words}: α = {gate['alpha']:g}. {gate['reason']}")
    return "\n".join(lines)


def _look(passed: bool | None) -> tuple[str, str]:
    """Symbol and words."""
    if passed is None:
        return "?", "unknown"
    return ("●", "passed") if passed else ("○", "not passed")
