"""Gates in words: a symbol, a word and a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, GateResult

_NAMES = {
    "judge_can_learn": "judge can learn",
    "sft_not_saturated": "fine-tuning not saturated",
    "enough_samples": "enough samples",
}


def gate_sentence(gate: GateResult) -> str:
    """Return a gate in words: a symbol, whether it passed, its name and the reason."""
    return f"{_look(gate.passed)}: {_NAMES[gate.name]}. {gate.reason}"


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
        grid=certificate.delta / certificate.level,
        seed=certificate.seed,
    )
    return "\n".join(f"- {gate_sentence(gate)}" for gate in gates)


def profile_markdown(gates: Sequence[Mapping[str, Any]]) -> str:
    """Return the gates of a corpus profile, which knows no judge, as a Markdown list."""
    lines = []
    for gate in gates:
        look = _look(bool(gate["possible"]) and bool(gate["enough_samples"]))
        lines.append(f"- {look}: α = {gate['alpha']:g}. {gate['reason']}")
    return "\n".join(lines)


def _look(passed: bool | None) -> str:
    """A symbol and words."""
    return {None: "? unknown", True: "● passed", False: "○ not passed"}[passed]
