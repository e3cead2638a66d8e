"""The rows of harvests as they are stored: gate, harvest, measured judge, round, control, loop."""

from __future__ import annotations

from typing import Any, TypedDict, final


class GateRow(TypedDict):
    """A gate on half A."""

    open: bool
    reason: str
    tasks: int
    needed: int
    threshold: float | None
    coverage: float
    certificate_sha256: str


class ContaminationRow(TypedDict):
    """Size of a harvest and how many of its pseudo-labels are wrong."""

    size: int
    pool: int
    unscored: int
    contamination: float | None
    lower_bound: float | None
    verdict: str | None


class SkewRow(TypedDict):
    """Distances between a harvest and its pool."""

    agents: float
    tasks: float
    tasks_in_it: int
    tasks_in_pool: int
    effective_tasks: float
    length_distance: float
    length_ratio: float


class HarvestRow(ContaminationRow):
    """What a gate let through."""

    gate: GateRow
    skew: SkewRow | None


class GateDocument(GateRow):
    """A gate and what it let through, as a harvest judge stores them."""

    settings: dict[str, float | str]
    certificate: dict[str, Any]
    pseudo_label: int
    size: int
    pool: int
    skew: SkewRow | None
    start: str
    start_adapter_sha256: str
    start_scores_sha256: str
    manifest_sha256: str


class AuditedRow(TypedDict):
    """A certificate of half B and its audit on TEST."""

    half_b_coverage: float
    threshold: float | None
    test_coverage: float | None
    test_error: float | None
    test_own_coverage: float | None
    verdict: str | None


class MeasuredRow(TypedDict):
    """A judge on half B and TEST, certified with several procedures."""

    adapter_sha256: str
    auroc_half_b: float | None
    auroc_test: float | None
    certificates: dict[str, AuditedRow]


class _TrainedRound(MeasuredRow):
    round: int
    trained_on: int
    pseudo_labels: int


@final
class FirstRound(_TrainedRound):
    """Round 0: the judge before any harvest."""


@final
class HarvestedRound(_TrainedRound):
    """A judge that learned from a harvest."""

    harvest: HarvestRow


@final
class SkippedRound(TypedDict):
    """A round in which nothing was harvested, and why."""

    round: int
    skipped: str
    harvest: HarvestRow


RoundRow = FirstRound | HarvestedRound | SkippedRound


class _Cut(TypedDict):
    control: str
    size: int
    pool: int
    contamination: float | None


@final
class UntrainedCut(_Cut):
    """Rows taken without a certificate; a training of them is costly, or there are none."""


@final
class TrainedCut(_Cut, MeasuredRow):
    """A judge that learned from rows taken without a certificate."""


@final
class SpentLabels(MeasuredRow):
    """A judge that learned from the labels of half A."""

    control: str
    trained_on: int
    labels: int


ControlRow = UntrainedCut | TrainedCut | SpentLabels


class RankedRound(TypedDict):
    """Coverage of a round on half B and on TEST."""

    round: int
    half_b: float
    test: float


class RankingRow(TypedDict):
    """The rounds in the order of half B and of TEST."""

    rounds: list[RankedRound]
    order_half_b: list[int]
    order_test: list[int]
    agree: bool


class HalvesRow(TypedDict):
    """The halves of CAL."""

    seed: int
    tasks_a: int
    tasks_b: int


class LoopRow(TypedDict):
    """A loop: its rounds and controls."""

    learner: str
    start: str
    side: str
    alpha: float
    gate: str
    halves: HalvesRow
    rounds: list[RoundRow]
    controls: list[ControlRow]
    ranking: dict[str, RankingRow] | None
    profile: str


class PlanRow(TypedDict):
    """What a study of harvests runs."""

    learner: str
    alphas: list[float]
    gates: list[str]
    sides: list[str]
    profiles: list[str]
    rounds: int


class HarvestDocument(TypedDict):
    """The stored study of harvests of a corpus."""

    corpus: str
    plan: PlanRow
    halves_seed: int
    loops: list[LoopRow]
    harvests: int
    within_budget: int
    beyond_chance: int
    gates_closed: int
