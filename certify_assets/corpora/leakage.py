"""Leak checks: fields, phrases, lengths and agents that predict the outcome without the run."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from certify_assets.certificates.auroc import Ranking
from certify_assets.corpora.config import complete_thresholds
from certify_assets.corpora.rendering import Rendered, render_frame
from certify_assets.files import stored_as

if TYPE_CHECKING:
    import pandas as pd

# names that only harnesses use, so that an agent which reads a file called "results" or prints an
# "error" is no leak
LEAK_KEYS: tuple[str, ...] = (
    "correct_diagnosis",
    "cum_reward",
    "cum_raw_reward",
    "evaluation_criteria",
    "gen_tests_correct",
    "gold_patch",
    "is_resolved",
    "max_reward",
    "parser_results",
    "pred_passes_gen_tests",
    "r_actions",
    "r_outputs",
    "rawReward",
    "raw_reward",
    "reward",
    "reward_breakdown",
    "reward_info",
    "test_patch",
    "trajectory_success",
    "verifier_result",
)
VERDICT_PHRASES: Mapping[str, str] = {
    "correct_flag": r"\"correct\"\s*:\s*(?:true|false)|<correct>\s*\w+\s*</correct>",
    "reward_value": r"\b(?:reward|raw_reward)\b[\"']?(?:\s*[:=]\s*|\s+(?:is|of)?\s*)"
    r"-?\d+(?:\.\d+)?",
    "resolved_flag": r"\b(?:is_)?resolved[\"']?\s*[:=]\s*(?:true|false)",
    "score_value": r"\b(?:final_|total_)?score\b[\"']?\s*[:=]\s*-?\d+(?:\.\d+)?",
    "success_flag": r"\bsuccess(?:ful)?[\"']?\s*[:=]\s*(?:true|false|\d+(?:\.\d+)?)",
    "task_verdict": r"\b(?:task|episode|challenge)\s+(?:was\s+|is\s+)?"
    r"(?:solved|failed|passed|completed successfully)\b",
    "test_summary": r"\b\d+ (?:passed|failed)\b(?:, \d+ \w+)*",
    "verdict_word": r"\bverdict\s*[:=]\s*\w+",
}
_PHRASES = {name: re.compile(text, re.IGNORECASE) for name, text in VERDICT_PHRASES.items()}
# a key as JSON and Python write it, also where the record is quoted in a text itself
_KEY = re.compile(r"""["'](\w{1,64})\\*["']\s*:""")
# what a phrase says: its number where it ends in one, else no where it has one of these words, else
# yes
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_NO = re.compile(
    r"false|(?<!\b0 )fail|incorrect|unsolved|unresolved|wrong|reject|\bno\b", re.IGNORECASE
)
# null in JSON where it cannot be measured
_Area = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]
_HALVINGS = 10
_DRAWS = 400
_SEED = 0
_LEVEL = 0.95
_BINS = 24
_EXAMPLES = 2
_AROUND = 60


@dataclass(frozen=True)
class LeakChecks:
    """How well the outcome can be predicted without reading the run; NaN where it cannot vary."""

    # AUROC of the uncut rendering's length and of the number of steps, in the better direction (at
    # least .5), and whether that direction is upwards
    length_auroc: _Area
    longer_succeeds: bool
    step_auroc: _Area
    more_steps_succeed: bool
    agent_auroc: _Area
    # AUROC of a verdict phrase's presence or of what it says last, whichever is larger: "reward: 0"
    # and "reward: 1" at the end of every run are in all of them alike
    phrases: dict[str, _Area]
    phrase_trajectories: dict[str, int]
    # 95 % percentile intervals over resampled tasks, in the direction of the check, so that they
    # may reach below .5
    intervals: dict[str, tuple[float, float] | None]
    thresholds: dict[str, float]
    # checks at or over their threshold
    over: tuple[str, ...]
    # the reason for which a structural leak is accepted; every certificate carries it
    accepted: str | None
    evidence: LeakEvidence

    @property
    def passed(self) -> bool:
        """Whether the corpus may proceed: no structural leak, or an accepted one."""
        return not self.over or bool(self.accepted)

    @property
    def measured(self) -> dict[str, float | None]:
        """AUROC of every check, None where all outcomes are equal."""
        values = {
            "length": self.length_auroc,
            "steps": self.step_auroc,
            "agent": self.agent_auroc,
            **{f"phrase {name}": value for name, value in self.phrases.items()},
        }
        return {name: _known(value) for name, value in values.items()}

    def threshold(self, name: str) -> float:
        """Return the threshold of a check."""
        return self.thresholds[_limit(name)]

    @property
    def leaks(self) -> str:
        """The checks at or over their threshold, each with its AUROC."""
        return ", ".join(
            f"{name} (AUROC {self.measured[name]:.3f}, threshold {self.threshold(name):g})"
            for name in self.over
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the checks as a JSON object; null where one cannot be measured."""
        return dict(_plain(asdict(self) | {"passed": self.passed}))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LeakChecks:
        """Read stored checks; keys of other documents are passed over."""
        return stored_as(cls, document)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: lists for tuples, null for NaN."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _known(value) if isinstance(value, float) else value


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def check_leaks(
    frame: pd.DataFrame,
    *,
    rendered: Sequence[Rendered] | None = None,
    thresholds: Mapping[str, float] | None = None,
    accept_structural_leak: str | None = None,
) -> LeakChecks:
    """Measure what length, steps, agent and verdict phrases alone predict of the outcome."""
    limits = complete_thresholds(thresholds or {})
    texts = render_frame(frame) if rendered is None else rendered
    labelled = frame["outcome"].notna().to_numpy()
    outcomes = frame["outcome"][labelled].to_numpy(dtype=np.int64)
    lengths = np.array([item.length for item in texts], dtype=np.float64)[labelled]
    steps = frame["steps"].map(len).to_numpy(dtype=np.float64)[labelled]
    rows = frame[labelled]
    phrases = _phrases(rows)
    tasks = _codes(rows["task_id"].tolist())
    resamples = _resamples(tasks)
    weights = resamples[:, tasks]
    measured = {
        name: _either_way(values, outcomes, weights)
        for name, values in (("length", lengths), ("steps", steps))
    }
    for name, (presence, said) in phrases.items():
        both = [_either_way(marks, outcomes, weights) for marks in (presence, said)]
        measured[f"phrase {name}"] = max(both, key=lambda found: found.auroc)
    agent = _AgentControl(rows["agent"].tolist(), rows["task_id"].tolist(), outcomes)
    values = {name: found.auroc for name, found in measured.items()}
    values["agent"] = float(agent(np.ones((1, agent.tasks)))[0])
    return LeakChecks(
        length_auroc=values["length"],
        longer_succeeds=measured["length"].upwards,
        step_auroc=values["steps"],
        more_steps_succeed=measured["steps"].upwards,
        agent_auroc=values["agent"],
        phrases={name: values[f"phrase {name}"] for name in phrases},
        phrase_trajectories={name: int(presence.sum()) for name, (presence, _) in phrases.items()},
        intervals={name: found.interval for name, found in measured.items()}
        | {"agent": _interval(agent(resamples))},
        thresholds=limits,
        over=tuple(name for name, value in values.items() if value >= limits[_limit(name)]),
        accepted=accept_structural_leak,
        evidence=leak_evidence(rows, lengths, steps, outcomes, list(phrases)),
    )


def _limit(check: str) -> str:
    return "phrases" if check.startswith("phrase ") else check


def quoted_keys(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return the keys that instructions and steps quote as records do, and the runs' ids."""
    seen: dict[str, list[str]] = {}
    for identity, instruction, steps in zip(
        frame["trajectory_id"], frame["instruction"], frame["steps"], strict=True
    ):
        texts = (text for step in steps for text in (step["action"], step["observation"]))
        for name in {match for text in (instruction, *texts) for match in _KEY.findall(text)}:
            seen.setdefault(name, []).append(str(identity))
    return dict(sorted(seen.items()))


def _codes(names: Sequence[str]) -> _Ints:
    return np.unique(np.asarray(names, dtype=object), return_inverse=True)[1].astype(np.int64)


def _resamples(tasks: _Ints) -> _Floats:
    """Return how often every task is in every resample of them, shape (draws, tasks)."""
    number = int(tasks.max()) + 1 if tasks.size else 0
    if number < 2:
        return np.empty((0, number))
    drawn = np.random.Generator(np.random.PCG64(_SEED)).integers(number, size=(_DRAWS, number))
    return np.stack([np.bincount(draw, minlength=number) for draw in drawn]).astype(np.float64)


def _interval(values: _Floats) -> tuple[float, float] | None:
    found = values[~np.isnan(values)]
    if not found.size:
        return None
    low, high = np.quantile(found, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
    return low, high


class _Direction(NamedTuple):
    """An AUROC in its better direction, whether that is upwards, and its interval in it."""

    auroc: float
    upwards: bool
    interval: tuple[float, float] | None


def _either_way(values: _Floats, outcomes: _Ints, weights: _Floats) -> _Direction:
    ranking = Ranking.of(values, outcomes)
    area = ranking.auroc(np.ones(values.size))
    areas = ranking.aurocs(weights) if len(weights) else np.empty(0)
    if area < 0.5:
        return _Direction(1.0 - area, False, _interval(1.0 - areas))
    return _Direction(area, True, _interval(areas))


class _AgentControl:
    """AUROC of the agent's success rate on other tasks, averaged over halvings of the tasks."""

    def __init__(self, agents: Sequence[str], tasks: Sequence[str], outcomes: _Ints) -> None:
        of_agent, of_task = _codes(agents), _codes(tasks)
        names = sorted(set(tasks))
        self.tasks = len(names)
        # by task and agent: a resample takes whole tasks
        self._runs = np.zeros((self.tasks, len(set(agents))))
        self._right = np.zeros_like(self._runs)
        np.add.at(self._runs, (of_task, of_agent), 1.0)
        np.add.at(self._right, (of_task, of_agent), outcomes)
        # rates are estimated on one half of the tasks and read on the other
        self._halves: list[_Bools] = []
        for halving in range(_HALVINGS):
            drawn = sorted(
                names,
                key=lambda task: hashlib.sha256(f"{_SEED}\0{halving}\0{task}".encode()).digest(),
            )
            half = set(drawn[: len(drawn) // 2])
            inside = np.array([task in half for task in names], dtype=np.bool_)
            self._halves += [inside, ~inside]

    def __call__(self, weights: _Floats) -> _Floats:
        """Measure it on weighted tasks, a row each; NaN where no halving has both outcomes."""
        areas = [self._transferred(weights * fitted, weights * ~fitted) for fitted in self._halves]
        measured = [row[~np.isnan(row)] for row in np.stack(areas, axis=1)]
        return np.array([row.mean() if row.size else np.nan for row in measured])

    def _transferred(self, fitted: _Floats, read: _Floats) -> _Floats:
        runs, right = fitted @ self._runs, fitted @ self._right
        good = read @ self._right
        bad = read @ self._runs - good
        overall = right.sum(axis=1) / np.maximum(runs.sum(axis=1), 1)
        rates = np.where(runs > 0, right / np.maximum(runs, 1), overall[:, None])
        won, pairs = _won_pairs(rates, good, bad)
        measured = (pairs > 0) & (runs.sum(axis=1) > 0)
        found = np.full(won.shape, np.nan)
        np.divide(won, pairs, out=found, where=measured)
        return found


def _won_pairs(scores: _Floats, good: _Floats, bad: _Floats) -> tuple[_Floats, _Floats]:
    """Pairs won and all pairs of so many successes and failures at scores of each row's own."""
    # `Ranking` sorts once for all weights; here every resample has other scores
    order = np.argsort(scores, axis=1, kind="stable")
    scores, good, bad = (np.take_along_axis(each, order, axis=1) for each in (scores, good, bad))
    new = np.ones(scores.shape, dtype=np.bool_)
    new[:, 1:] = scores[:, 1:] != scores[:, :-1]
    place = np.arange(scores.shape[1])
    first = np.maximum.accumulate(np.where(new, place, 0), axis=1)
    # failures below each score, and of the same score
    below = np.take_along_axis(np.cumsum(bad, axis=1) - bad, first, axis=1)
    until = np.cumsum(bad, axis=1)
    last = np.ones(scores.shape, dtype=np.bool_)
    last[:, :-1] = new[:, 1:]
    end = np.minimum.accumulate(np.where(last, place, place.size)[:, ::-1], axis=1)[:, ::-1]
    alike = np.take_along_axis(until, end, axis=1) - below
    return (good * (below + alike / 2)).sum(axis=1), good.sum(axis=1) * bad.sum(axis=1)


def _phrases(frame: pd.DataFrame) -> dict[str, tuple[_Floats, _Floats]]:
    """Mark, for every verdict phrase that occurs, which runs have it and what it says last."""
    texts = [
        "\n".join([instruction, *(step["observation"] for step in steps)])
        for instruction, steps in zip(frame["instruction"], frame["steps"], strict=True)
    ]
    marks: dict[str, tuple[_Floats, _Floats]] = {}
    for name, pattern in _PHRASES.items():
        said = np.array([_said(pattern, text) for text in texts], dtype=np.float64)
        present = ~np.isnan(said)
        if present.any():
            # a run without the phrase is placed between those that it speaks well and badly of
            middle = (said[present].min() + said[present].max()) / 2
            marks[name] = (present.astype(np.float64), np.where(present, said, middle))
    return marks


def _said(pattern: re.Pattern[str], text: str) -> float:
    """What the last match says: its number, or 1 for yes and 0 for no; NaN where there is none."""
    matches = [match[0] for match in pattern.finditer(text)]
    if not matches:
        return math.nan
    number = _NUMBER.search(matches[-1])
    return float(number[0]) if number else float(_NO.search(matches[-1]) is None)


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram of one quantity by outcome; bins are logarithmic beyond a factor of 10."""

    # one more than there are bins
    edges: tuple[float, ...]
    successes: tuple[int, ...]
    failures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AgentRate:
    """One agent: labelled trajectories, their tasks, the share that succeeded."""

    agent: str
    trajectories: int
    tasks: int
    success_rate: float


@dataclass(frozen=True, slots=True)
class PhraseEvidence:
    """Where a verdict phrase occurs, with an example of each outcome."""

    name: str
    trajectories: int
    success_rate_with: float | None
    success_rate_without: float | None
    # trajectory, number of the step (0 is the instruction), and the text around the last phrase
    examples: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class LeakEvidence:
    """What the checks saw: characters of the uncut rendering, steps, agents and phrases."""

    length: Spread
    steps: Spread
    agents: tuple[AgentRate, ...]
    phrases: tuple[PhraseEvidence, ...]


def leak_evidence(
    rows: pd.DataFrame,
    lengths: _Floats,
    steps: _Floats,
    outcomes: _Ints,
    phrases: Sequence[str],
) -> LeakEvidence:
    """Gather the evidence of labelled trajectories and the phrases that occur in them."""
    grouped = rows.assign(outcome=outcomes).groupby("agent")
    agents = [
        AgentRate(
            str(agent), len(part), int(part["task_id"].nunique()), float(part["outcome"].mean())
        )
        for agent, part in sorted(grouped)
    ]
    return LeakEvidence(
        length=_spread(lengths, outcomes),
        steps=_spread(steps, outcomes),
        agents=tuple(agents),
        phrases=tuple(_phrase(name, rows, outcomes) for name in phrases),
    )


def _spread(values: _Floats, outcomes: _Ints) -> Spread:
    if not values.size:
        return Spread((0.0, 1.0), (0,), (0,))
    low, high = float(values.min()), float(values.max())
    if np.equal(values, np.round(values)).all() and high - low < 10 * _BINS:
        # equally many whole numbers in every bin, so that none is empty by arithmetic
        wide = int((high - low) // _BINS) + 1
        edges = np.arange(low - 0.5, high + wide, wide)
    elif low > 0 and high > 10 * low:
        edges = np.geomspace(low, high, _BINS + 1)
        edges[0], edges[-1] = low, high
    else:
        edges = np.linspace(low, high, _BINS + 1)
    counts = [np.histogram(values[outcomes == side], edges)[0].tolist() for side in (1, 0)]
    return Spread(tuple(float(edge) for edge in edges), *(tuple(side) for side in counts))


def _phrase(name: str, rows: pd.DataFrame, outcomes: _Ints) -> PhraseEvidence:
    places = [
        _last(_PHRASES[name], *run) for run in zip(rows["instruction"], rows["steps"], strict=True)
    ]
    marks = np.array([place is not None for place in places], dtype=np.bool_)
    rates = [float(outcomes[side].mean()) if side.any() else None for side in (marks, ~marks)]
    # one of each outcome says more than two alike
    firsts = [np.flatnonzero(marks & (outcomes == side))[:1].tolist() for side in (1, 0)]
    order = list(dict.fromkeys([*chain(*firsts), *np.flatnonzero(marks).tolist()]))
    identities = rows["trajectory_id"].tolist()
    examples = tuple(
        (str(identities[index]), *place)
        for index in order[:_EXAMPLES]
        if (place := places[index]) is not None
    )
    return PhraseEvidence(name, int(marks.sum()), rates[0], rates[1], examples)


def _last(pattern: re.Pattern[str], instruction: str, steps: Any) -> tuple[int, str] | None:
    """Return the last step that has the phrase (0: the instruction) and the text around it."""
    texts = [instruction, *(step["observation"] for step in steps)]
    for number, text in reversed([*enumerate(texts)]):
        if matches := list(pattern.finditer(text)):
            start, end = matches[-1].span()
            start, end = max(0, start - _AROUND), min(len(text), end + _AROUND)
            before, after = "…" if start else "", "…" if end < len(text) else ""
            return number, f"{before}{text[start:end]}{after}"
    return None
