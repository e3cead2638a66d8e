"""The choice among arms and steps on CAL, and what it costs."""

# A certificate holds for a judge that was fixed before its outcomes were read. The best of several
# on one table is a maximum: certified there at δ it breaks its promise more often than δ. Two rules
# pay for it (`select`): every candidate counted in the level, or half of the tasks for the choice
# alone. What the choice cost is read on TEST afterwards (`bracket`).

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.certificates import issue, observe
from certify_assets.errors import InputError, LedgerError

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, Settings

#: rule → how a certificate words it
RULES = {
    "counted": (
        "the largest certified coverage on CAL among {count} candidates ({names}), each certified "
        "at delta over their number; {baseline} on a tie"
    ),
    "halves": (
        "the largest certified coverage on one half of CAL's tasks (seed {seed}) among {count} "
        "candidates ({names}), {baseline} on a tie; certified on the other half"
    ),
}


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One candidate in the choice."""

    name: str
    # certified on the rows of the choice, at the level of the rule: what is compared
    coverage: float
    # of the certificate that it would get: under "halves" that of the other half
    certified_coverage: float
    # certified on all of CAL as if there were no other candidate: the paper's number, no promise
    uncorrected: float


class SelectionPlan(TypedDict):
    """What has to be registered in the ledger before TEST is read for any candidate."""

    selection_rule: str
    baseline: str
    chosen: str
    # hashes of the certificates
    certificates: dict[str, str]
    controls: dict[str, str]
    # the control that certifies most on CAL
    control: str | None


class SelectionDocument(SelectionPlan):
    """A choice with the figures it was made by."""

    candidates: list[dict[str, str | float]]
    control_coverage: dict[str, float]
    best_on_cal: str
    worst_on_cal: str
    uncorrected_coverage: float
    choosing_tasks: int
    certifying_tasks: int


@dataclass(frozen=True)
class Selection:
    """A choice among candidates."""

    rule: str
    # kept unless a candidate certifies more
    baseline: str
    chosen: str
    rows: tuple[CandidateRow, ...]
    # of every candidate on the rows that certify; only that of the one chosen is a promise, the
    # others are for `bracket`
    certificates: dict[str, Certificate]
    # of the one chosen on all of CAL as if there were no other: no promise
    uncorrected: Certificate
    choosing_tasks: int
    certifying_tasks: int
    # of what the choice is compared with; nothing is chosen among them, so they are not counted
    controls: dict[str, Certificate] = field(default_factory=dict)

    @property
    def certificate(self) -> Certificate:
        """The certificate of the one chosen."""
        return self.certificates[self.chosen]

    def best_and_worst(self) -> tuple[str, str]:
        """Return the candidates of most and least coverage in the choice, the earlier on a tie."""
        by_coverage = attrgetter("coverage")
        return max(self.rows, key=by_coverage).name, min(self.rows, key=by_coverage).name

    def plan(self) -> SelectionPlan:
        """Return what has to be registered in the ledger before TEST is read for any candidate."""
        best = max(self.controls, key=lambda name: self.controls[name].coverage, default=None)
        return {
            "selection_rule": self.rule,
            "baseline": self.baseline,
            "chosen": self.chosen,
            "certificates": {name: item.sha256 for name, item in self.certificates.items()},
            "controls": {name: item.sha256 for name, item in self.controls.items()},
            "control": best,
        }

    def to_dict(self) -> SelectionDocument:
        """Return the choice as JSON values, with its plan."""
        best, worst = self.best_and_worst()
        return {
            **self.plan(),
            "candidates": [asdict(row) for row in self.rows],
            "control_coverage": {name: item.coverage for name, item in self.controls.items()},
            "best_on_cal": best,
            "worst_on_cal": worst,
            "uncorrected_coverage": self.uncorrected.coverage,
            "choosing_tasks": self.choosing_tasks,
            "certifying_tasks": self.certifying_tasks,
        }


def select(
    candidates: Mapping[str, ArrayLike],
    outcomes: ArrayLike,
    tasks: Sequence[Any] | NDArray[Any],
    *,
    settings: Settings,
    baseline: str,
    rule: str = "counted",
    seed: int = 42,
    provenance: Mapping[str, Mapping[str, str]] | None = None,
    controls: Mapping[str, ArrayLike] | None = None,
) -> Selection:
    """Choose one of several judges, arms or steps by certified coverage on CAL, and certify it."""
    given = _checked(candidates, baseline, rule, settings)
    labels, right = list(tasks), np.asarray(outcomes)
    compared_with = {
        name: np.asarray(scores, dtype=np.float64) for name, scores in (controls or {}).items()
    }
    for name, scores in [*given.items(), *compared_with.items()]:
        if scores.shape != (len(labels),) or right.shape != (len(labels),):
            raise InputError(
                f"the candidate {name!r} has {scores.size} scores for {len(labels)} rows of CAL; "
                "give one score a row."
            )
    everything = np.ones(len(labels), dtype=bool)
    choosing = choosing_half(labels, seed) if rule == "halves" else everything
    certifying = ~choosing if rule == "halves" else everything
    counted = replace(settings, candidates=len(given)) if rule == "counted" else settings
    words = RULES[rule].format(
        count=len(given), names=", ".join(given), baseline=baseline, seed=seed
    )
    table = _Table(given, right, labels, words, provenance or {})
    compared = table.certify(choosing, counted)
    certificates = compared if rule == "counted" else table.certify(certifying, counted)
    alone = table.certify(everything, settings)
    rows = tuple(
        CandidateRow(
            name, compared[name].coverage, certificates[name].coverage, alone[name].coverage
        )
        for name in given
    )
    chosen = max(rows, key=lambda row: (row.coverage, row.name == baseline)).name
    return Selection(
        rule=rule,
        baseline=baseline,
        chosen=chosen,
        rows=rows,
        certificates=certificates,
        uncorrected=alone[chosen],
        choosing_tasks=_count(labels, choosing),
        certifying_tasks=_count(labels, certifying),
        controls=replace(table, scores=compared_with).certify(certifying, counted),
    )


def choosing_half(tasks: Sequence[Any], seed: int) -> NDArray[np.bool_]:
    """Return the rows of the half of the tasks that chooses, the smaller one of an odd number."""
    names = sorted({str(task) for task in tasks})
    if len(names) < 2:
        raise InputError(f"CAL has {len(names)} task; the rule of halves needs at least 2.")
    order = np.random.default_rng([seed, len(names)]).permutation(len(names))
    chosen = {names[place] for place in order[: len(names) // 2]}
    return np.array([str(task) in chosen for task in tasks], dtype=bool)


class ArmAudit(TypedDict):
    """A candidate on TEST, as its audit has it."""

    name: str
    # of the threshold of CAL: what is deployed
    coverage: float
    # what TEST's own scores would certify: what the paper's tables seem to show
    own_coverage: float | None
    realized_error: float | None
    verdict: str


class Bracket(TypedDict):
    """The choice on CAL between the best and the worst candidate on TEST."""

    chosen: ArmAudit
    baseline: ArmAudit
    # chosen with TEST's outcomes: reported, never deployed
    oracle: ArmAudit
    worst: ArmAudit
    arms: list[ArmAudit]
    # the one that certifies most on CAL
    control: ArmAudit | None
    controls: list[ArmAudit]
    # coverage of the chosen above the baseline, and of the oracle above the chosen
    gain: float
    regret: float
    # whether another than the baseline was chosen and covers more of TEST
    beats_baseline: bool
    # whether the chosen covers more of TEST than the control; None without a control
    beats_control: bool | None


def bracket(plan: SelectionPlan, audits: Mapping[str, Mapping[str, Any]]) -> Bracket:
    """Put the choice between the best and the worst candidate on TEST."""
    planned = plan["certificates"] | plan.get("controls", {})
    if set(planned) != set(audits):
        odd = ", ".join(sorted(set(planned) ^ set(audits)))
        raise LedgerError(
            f"the audits are not those of the registered candidates: {odd}; register all, and "
            "read TEST for all of them."
        )
    changed = next(
        (name for name, audit in audits.items() if audit["certificate_sha256"] != planned[name]),
        None,
    )
    if changed is not None:
        raise LedgerError(
            f"the audit of {changed} is of another certificate than the one registered; register "
            "the choice again."
        )
    seen = {name: _arm_audit(name, audits[name]) for name in planned}
    arms = [seen[name] for name in plan["certificates"]]
    chosen, baseline = seen[plan["chosen"]], seen[plan["baseline"]]
    oracle = max(arms, key=lambda arm: arm["coverage"])
    control = seen.get(plan.get("control") or "")
    gain = chosen["coverage"] - baseline["coverage"]
    return {
        "chosen": chosen,
        "baseline": baseline,
        "oracle": oracle,
        "worst": min(arms, key=lambda arm: arm["coverage"]),
        "arms": arms,
        "control": control,
        "controls": [seen[name] for name in plan.get("controls", {})],
        "gain": gain,
        "regret": oracle["coverage"] - chosen["coverage"],
        "beats_baseline": chosen["name"] != baseline["name"] and gain > 0,
        "beats_control": None if control is None else chosen["coverage"] > control["coverage"],
    }


def _arm_audit(name: str, audit: Mapping[str, Any]) -> ArmAudit:
    return {
        "name": name,
        "coverage": audit["coverage"],
        "own_coverage": audit["own_coverage"],
        "realized_error": audit["realized_error"],
        "verdict": audit["verdict"],
    }


@dataclass(frozen=True)
class _Table:
    """CAL with the scores of every candidate."""

    scores: Mapping[str, NDArray[np.float64]]
    outcomes: NDArray[Any]
    tasks: Sequence[Any]
    words: str
    provenance: Mapping[str, Mapping[str, str]]

    def certify(self, rows: NDArray[np.bool_], settings: Settings) -> dict[str, Certificate]:
        tasks = [task for task, kept in zip(self.tasks, rows, strict=True) if kept]
        return {
            name: issue(
                observe(scores[rows], self.outcomes[rows], tasks),
                settings,
                provenance=self.provenance.get(name),
                selection=self.words,
            )
            for name, scores in self.scores.items()
        }


def _checked(
    candidates: Mapping[str, ArrayLike], baseline: str, rule: str, settings: Settings
) -> dict[str, NDArray[np.float64]]:
    if rule not in RULES:
        raise InputError(f"rule is {rule!r}; give one of {', '.join(RULES)}.")
    if baseline not in candidates:
        raise InputError(
            f"the baseline {baseline!r} is none of the candidates "
            f"{', '.join(candidates) or '(none)'}; score it on CAL as well."
        )
    if settings.candidates != 1:
        raise InputError(
            f"the settings count {settings.candidates} candidates; give 1, as the candidates "
            "given here are counted."
        )
    return {name: np.asarray(scores, dtype=np.float64) for name, scores in candidates.items()}


def _count(tasks: Sequence[Any], rows: NDArray[np.bool_]) -> int:
    return len({str(task) for task, kept in zip(tasks, rows, strict=True) if kept})
