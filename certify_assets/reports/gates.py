"""Gates as lamps: a symbol, a word and a reason, so that nothing hangs on colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, GateResult
    from certify_assets.reports.certificate_source import PageSource

_NAMES = {
    "judge_can_learn": "judge can learn",
    "sft_not_saturated": "fine-tuning not saturated",
    "enough_samples": "enough samples",
}


@dataclass(frozen=True)
class GateMark:
    """One gate for a reader; ``kind`` names the icon of a page."""

    kind: str
    symbol: str
    words: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.symbol} {self.words}: {self.name}. {self.reason}"


def gate_mark(gate: GateResult) -> GateMark:
    """Return a gate as a gate_mark."""
    return GateMark(*_look(gate.passed), _NAMES[gate.name], gate.reason)


def gate_marks(source: PageSource) -> list[GateMark]:
    """Return the three gates of a page, from its CAL scores alone, at the headline's budget."""
    return [
        gate_mark(gate)
        for gate in _gates(
            source.headline, source.cal.scores, source.cal.outcomes, source.cal.tasks
        )
    ]


def gates_markdown(certificate: Certificate, scores: Any, outcomes: Any, tasks: Any) -> str:
    """Return the three gates of a score table as a Markdown list."""
    return "\n".join(
        f"- {gate_mark(gate)}" for gate in _gates(certificate, scores, outcomes, tasks)
    )


def profile_markdown(gates: Sequence[Mapping[str, Any]]) -> str:
    """Return the gates of a corpus profile, which knows no judge, as a Markdown list."""
    lines = []
    for gate in gates:
        _, symbol, words = _look(bool(gate["possible"]) and bool(gate["enough_samples"]))
        lines.append(f"- {symbol} {words}: α = {gate['alpha']:g}. {gate['reason']}")
    return "\n".join(lines)


def _look(passed: bool | None) -> tuple[str, str, str]:
    """Icon, symbol and words."""
    if passed is None:
        return "NONE", "?", "unknown"
    return ("PASS", "●", "passed") if passed else ("ERROR", "○", "not passed")


def _gates(
    certificate: Certificate, scores: Any, outcomes: Any, tasks: Any
) -> tuple[GateResult, GateResult, GateResult]:
    from certify_assets.certificates import table_gates

    # the level tells among how many thresholds, chains and candidates δ is shared
    shares = round(certificate.delta / certificate.level)
    return table_gates(
        scores,
        outcomes,
        tasks,
        alpha=certificate.alpha,
        delta=certificate.delta,
        grid=shares,
        seed=certificate.seed,
    )
