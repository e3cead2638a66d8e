"""Does something other than the run speak of its outcome? Fields, phrases, and what length or agent
alone predict.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import Ranking
from certify_assets.corpora.config import complete_thresholds
from certify_assets.corpora.formats import FORMATS
from certify_assets.corpora.rendering import Rendered, render_frame
from certify_assets.corpora.schema import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

LEAK_FIELDS: Mapping[str, tuple[str, ...]] = {
    name: adapter.leak_fields for name, adapter in FORMATS.items()
}
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
# what a phrase says: its number where it ends in one, else no where it has one of these words, else
# yes
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_NO = re.compile(
    r"false|(?<!\b0 )fail|incorrect|unsolved|unresolved|wrong|reject|\bno\b", re.IGNORECASE
)
_HALVINGS = 10
_DRAWS = 400
_LEVEL = 0.95
_BINS = 24
_EXAMPLES = 2
_AROUND = 60


@dataclass(frozen=True, slots=True)
class LeakFinding:
    """A column or key that speaks of the outcome, in a table that a judge will read.

    Parameters
    ----------
    kind : {"column", "key"}
        A column that no trajectory has, or a key in the text of instruction or steps.
    name : str
        Its name.
    trajectories : int
        How many trajectories have it.
    example : str
        Id of the first.
    """

    kind: str
    name: str
    trajectories: int
    example: str


@dataclass(frozen=True)
class LeakChecks:
    """How well the outcome can be predicted without reading the run.

    Parameters
    ----------
    length_auroc, step_auroc : float
        AUROC of the length of the uncut rendering and of the number of steps, in the better of the
        two directions (at least .5).
    longer_succeeds, more_steps_succeed : bool
        That direction.
    agent_auroc : float
        AUROC of the agent's success rate on other tasks.
    phrases : dict of str to float
        For every verdict phrase seen in instructions or observations, the AUROC of its presence or
        of what it says last (a number; yes or no), whichever is larger, in the better direction:
        "reward: 0" and "reward: 1" at the end of every run are in all of them alike.
    phrase_trajectories : dict of str to int
        How many trajectories have it.
    intervals : dict of str to (float, float) or None
        95 % percentile interval over resampled tasks of every control in `over`'s words, in the
        direction of the control, so that it may reach below .5; None where it cannot be measured.
    thresholds : dict of str to float
        For length, steps, agent and phrases: from there on a control is a structural leak.
    over : tuple of str
        Controls at or over their threshold.
    accepted : str or None
        The reason for which a structural leak is accepted.
    evidence : LeakEvidence
        What the controls saw, for a reader to judge.

    Notes
    -----
    NaN where all outcomes are equal.
    """

    length_auroc: float
    longer_succeeds: bool
    step_auroc: float
    more_steps_succeed: bool
    agent_auroc: float
    phrases: dict[str, float]
    phrase_trajectories: dict[str, int]
    intervals: dict[str, tuple[float, float] | None]
    thresholds: dict[str, float]
    over: tuple[str, ...]
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
        return self.thresholds["phrases" if name.startswith("phrase ") else name]

    @property
    def leaks(self) -> str:
        """The checks at or over their threshold, each with its AUROC."""
        return ", ".join(
            f"{name} (AUROC {self.measured[name]:.3f}, threshold {self.threshold(name):g})"
            for name in self.over
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the checks as a JSON object; null where one cannot be measured."""
        document = asdict(self) | {
            "over": list(self.over),
            "passed": self.passed,
            "intervals": {n: bound and list(bound) for n, bound in self.intervals.items()},
            "phrases": {name: _known(value) for name, value in self.phrases.items()},
            "evidence": self.evidence.to_dict(),
        }
        return {
            key: _known(value) if isinstance(value, float) else value
            for key, value in document.items()
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LeakChecks:
        """Read stored checks; keys of other documents are passed over."""
        missing: Any = math.nan
        values = {
            name: missing if name.endswith("_auroc") and document[name] is None else document[name]
            for name in cls.__dataclass_fields__
        }
        return cls(
            **values
            | {
                "phrases": {
                    name: math.nan if value is None else value
                    for name, value in document["phrases"].items()
                },
                "intervals": {
                    name: None if bound is None else (bound[0], bound[1])
                    for name, bound in document["intervals"].items()
                },
                "over": tuple(document["over"]),
                "evidence": LeakEvidence.from_dict(document["evidence"]),
            }
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def check_leaks(
    frame: pd.DataFrame,
    *,
    rendered: Sequence[Rendered] | None = None,
    thresholds: Mapping[str, float] | None = None,
    accept_structural_leak: str | None = None,
    seed: int = 0,
) -> LeakChecks:
    """Measure what length, steps, agent and verdict phrases alone tell about the outcome.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trajectories; those without an outcome are left out.
    rendered : sequence of Rendered, optional
        Renderings of the rows, to save rendering them again.
    thresholds : mapping of str to float, optional
        AUROC from which length, steps, agent or phrases is a structural leak; .85 for those that
        are not named.
    accept_structural_leak : str, optional
        The reason why the corpus may be used all the same; goes onto every certificate.
    seed : int
        Of the halvings of tasks behind the agent control, and of the resamples of tasks behind the
        intervals.
    """
    limits = complete_thresholds(thresholds or {})
    texts = render_frame(frame) if rendered is None else rendered
    labelled = frame["outcome"].notna().to_numpy()
    outcomes = frame["outcome"][labelled].to_numpy(dtype=np.int64)
    lengths = np.array([len(item.text) + item.cut_chars for item in texts], dtype=np.float64)[
        labelled
    ]
    steps = frame["steps"].map(len).to_numpy(dtype=np.float64)[labelled]
    rows = frame[labelled]
    phrases = _phrases(rows)
    tasks = _codes(rows["task_id"].tolist())
    weights = _resamples(tasks, seed)
    measured = {
        name: _either_way(values, outcomes, weights)
        for name, values in (("length", lengths), ("steps", steps))
    }
    for name, (presence, said) in phrases.items():
        measured[f"phrase {name}"] = max(
            (_either_way(marks, outcomes, weights) for marks in (presence, said)),
            key=lambda found: found[0],
        )
    agent = _AgentControl(rows["agent"].tolist(), rows["task_id"].tolist(), outcomes, seed)
    values = {name: value for name, (value, _, _) in measured.items()} | {
        "agent": agent(np.ones(len(rows)))
    }
    return LeakChecks(
        length_auroc=values["length"],
        longer_succeeds=measured["length"][1],
        step_auroc=values["steps"],
        more_steps_succeed=measured["steps"][1],
        agent_auroc=values["agent"],
        phrases={name: values[f"phrase {name}"] for name in phrases},
        phrase_trajectories={name: int(presence.sum()) for name, (presence, _) in phrases.items()},
        intervals={name: bound for name, (_, _, bound) in measured.items()}
        | {"agent": _interval(agent, weights)},
        thresholds=limits,
        over=tuple(
            name
            for name, value in values.items()
            if value >= limits["phrases" if name.startswith("phrase ") else name]
        ),
        accepted=accept_structural_leak,
        evidence=leak_evidence(
            rows,
            lengths,
            steps,
            outcomes,
            {name: re.compile(VERDICT_PHRASES[name], re.IGNORECASE) for name in phrases},
        ),
    )


def find_leak_fields(frame: pd.DataFrame, keys: Sequence[str] = LEAK_KEYS) -> list[LeakFinding]:
    """Look for columns that no trajectory has, and for keys of harness records in instructions and
    steps.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trajectories.
    keys : sequence of str
        Names that only a harness writes.

    Returns
    -------
    list of LeakFinding
        Empty where nothing was found.
    """
    ids = [str(identity) for identity in frame["trajectory_id"]]
    first = ids[0] if ids else ""
    found = [
        LeakFinding("column", str(name), len(ids), first)
        for name in frame.columns
        if name not in COLUMNS
    ]
    pattern = re.compile(rf"""\\*["']({"|".join(map(re.escape, keys))})\\*["']\s*:""")
    seen: dict[str, list[str]] = {}
    for identity, instruction, steps in zip(ids, frame["instruction"], frame["steps"], strict=True):
        parts = (
            instruction,
            *(text for step in steps for text in (step["action"], step["observation"])),
        )
        for name in {match for part in parts for match in pattern.findall(part)}:
            seen.setdefault(name, []).append(identity)
    return found + [
        LeakFinding("key", name, len(where), where[0]) for name, where in sorted(seen.items())
    ]


def _codes(names: Sequence[str]) -> NDArray[np.int64]:
    """Number the names in the order of their sorting."""
    return np.unique(np.asarray(names, dtype=object), return_inverse=True)[1].astype(np.int64)


def _resamples(tasks: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return how often every row is in every resample of tasks, shape (draws, rows)."""
    number = int(tasks.max()) + 1 if tasks.size else 0
    if number < 2:
        return np.empty((0, tasks.size))
    drawn = np.random.Generator(np.random.PCG64(seed)).integers(number, size=(_DRAWS, number))
    return np.stack([np.bincount(draw, minlength=number)[tasks] for draw in drawn]).astype(
        np.float64
    )


def _interval(
    measure: Callable[[NDArray[np.float64]], float], weights: NDArray[np.float64]
) -> tuple[float, float] | None:
    """Percentile interval of a measure of weighted rows."""
    found = [value for value in map(measure, weights) if not math.isnan(value)]
    if not found:
        return None
    low, high = np.quantile(found, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
    return low, high


def _either_way(
    values: NDArray[np.float64], outcomes: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[float, bool, tuple[float, float] | None]:
    """Return an AUROC in its better direction, whether that is upwards, and its interval in that
    direction.
    """
    ranking = Ranking.of(values, outcomes)
    area = ranking.auroc(np.ones(values.size))
    if area < 0.5:
        return 1.0 - area, False, _interval(lambda weight: 1.0 - ranking.auroc(weight), weights)
    return area, True, _interval(ranking.auroc, weights)


class _AgentControl:
    """AUROC of the agent's success rate, estimated on one half of the tasks and read on the other,
    averaged over halvings.
    """

    def __init__(
        self, agents: Sequence[str], tasks: Sequence[str], outcomes: NDArray[np.int64], seed: int
    ) -> None:
        self._agents, self._outcomes = _codes(agents), outcomes
        self._halves: list[NDArray[np.bool_]] = []
        for halving in range(_HALVINGS):
            names = sorted(
                set(tasks),
                key=lambda task: hashlib.sha256(f"{seed}\0{halving}\0{task}".encode()).digest(),
            )
            half = set(names[: len(names) // 2])
            inside = np.array([task in half for task in tasks], dtype=np.bool_)
            self._halves += [inside, ~inside]

    def __call__(self, weights: NDArray[np.float64]) -> float:
        """Measure it on weighted rows; NaN where no halving has both outcomes."""
        areas = [self._transferred(weights * fitted, weights * ~fitted) for fitted in self._halves]
        measured = [area for area in areas if not math.isnan(area)]
        return float(np.mean(measured)) if measured else float("nan")

    def _transferred(self, fitted: NDArray[np.float64], read: NDArray[np.float64]) -> float:
        if not fitted.any() or not read.any():
            return float("nan")
        runs = np.bincount(self._agents, weights=fitted)
        right = np.bincount(self._agents, weights=fitted * self._outcomes)
        rates = np.where(runs > 0, right / np.maximum(runs, 1), right.sum() / runs.sum())
        seen = np.bincount(self._agents, weights=read)
        good = np.bincount(self._agents, weights=read * self._outcomes)
        # one row an agent and outcome: the AUROC needs no more
        both = Ranking.of(np.tile(rates, 2), np.repeat([1, 0], rates.size))
        return both.auroc(np.concatenate([good, seen - good]))


def _phrases(frame: pd.DataFrame) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Mark, for every verdict phrase that occurs, the trajectories that have it, and what it says
    last in each.
    """
    texts = [
        "\n".join([instruction, *(step["observation"] for step in steps)])
        for instruction, steps in zip(frame["instruction"], frame["steps"], strict=True)
    ]
    marks: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    for name, phrase in VERDICT_PHRASES.items():
        pattern = re.compile(phrase, re.IGNORECASE)
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
    """A histogram of one quantity by outcome.

    Parameters
    ----------
    edges : tuple of float
        Of the bins, one more than there are bins; logarithmic where the quantity spans more than a
        factor of 10.
    successes, failures : tuple of int
        Trajectories in every bin.
    """

    edges: tuple[float, ...]
    successes: tuple[int, ...]
    failures: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AgentRate:
    """How one agent fared: labelled trajectories, their tasks, the share that succeeded."""

    agent: str
    trajectories: int
    tasks: int
    success_rate: float


@dataclass(frozen=True, slots=True)
class PhraseEvidence:
    """Where a verdict phrase occurs.

    Parameters
    ----------
    name : str
        Key of `VERDICT_PHRASES`.
    trajectories : int
        Labelled trajectories whose instruction or observations have it.
    success_rate_with, success_rate_without : float or None
        Success rate of those and of the others; None where there are none.
    examples : tuple of (str, int, str)
        For a success and a failure, where there are both: trajectory, number of the step (0 is the
        instruction), and the text around the phrase where it occurs last.
    """

    name: str
    trajectories: int
    success_rate_with: float | None
    success_rate_without: float | None
    examples: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class LeakEvidence:
    """What the controls saw: spreads of characters (of the uncut rendering) and steps, agents,
    phrases.
    """

    length: Spread
    steps: Spread
    agents: tuple[AgentRate, ...]
    phrases: tuple[PhraseEvidence, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the evidence as a JSON object."""
        document = asdict(self)
        for part in (document["length"], document["steps"]):
            part |= {name: list(values) for name, values in part.items()}
        phrases = [
            item | {"examples": [list(example) for example in item["examples"]]}
            for item in document["phrases"]
        ]
        return document | {"agents": list(document["agents"]), "phrases": phrases}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LeakEvidence:
        """Read stored evidence."""
        length, steps = (
            Spread(**{name: tuple(values) for name, values in document[part].items()})
            for part in ("length", "steps")
        )
        phrases = tuple(
            PhraseEvidence(**item | {"examples": tuple(tuple(one) for one in item["examples"])})
            for item in document["phrases"]
        )
        return cls(length, steps, tuple(AgentRate(**item) for item in document["agents"]), phrases)


def leak_evidence(
    rows: pd.DataFrame,
    lengths: NDArray[np.float64],
    steps: NDArray[np.float64],
    outcomes: NDArray[np.int64],
    phrases: Mapping[str, re.Pattern[str]],
) -> LeakEvidence:
    """Gather the evidence.

    Parameters
    ----------
    rows : pandas.DataFrame, n rows
        Labelled trajectories.
    lengths, steps : float arrays, shape (n,)
        Characters of the uncut rendering and number of steps.
    outcomes : int array, shape (n,)
        1 = success.
    phrases : mapping of str to compiled pattern
        Those that occur.
    """
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
        phrases=tuple(_phrase(name, pattern, rows, outcomes) for name, pattern in phrases.items()),
    )


def _spread(values: NDArray[np.float64], outcomes: NDArray[np.int64]) -> Spread:
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


def _phrase(
    name: str, pattern: re.Pattern[str], rows: pd.DataFrame, outcomes: NDArray[np.int64]
) -> PhraseEvidence:
    places = [_last(pattern, *run) for run in zip(rows["instruction"], rows["steps"], strict=True)]
    marks = np.array([place is not None for place in places], dtype=np.bool_)
    rates = [float(outcomes[side].mean()) if side.any() else None for side in (marks, ~marks)]
    # one of each outcome says more than two alike
    order = [
        index
        for side in (1, 0)
        for index in np.flatnonzero(marks & (outcomes == side))[:1].tolist()
    ]
    order += [index for index in np.flatnonzero(marks).tolist() if index not in order]
    identities = rows["trajectory_id"].tolist()
    examples = tuple(
        (str(identities[index]), *place)
        for index in order[:_EXAMPLES]
        if (place := places[index]) is not None
    )
    return PhraseEvidence(name, int(marks.sum()), rates[0], rates[1], examples)


def _last(pattern: re.Pattern[str], instruction: str, steps: Any) -> tuple[int, str] | None:
    """Return the number of the last step that has the phrase, 0 for the instruction, and the text
    around it.
    """
    for number, text in reversed(
        [(0, instruction), *((number, step["observation"]) for number, step in enumerate(steps, 1))]
    ):
        matches = list(pattern.finditer(text))
        if matches:
            start, end = (
                max(0, matches[-1].start() - _AROUND),
                min(len(text), matches[-1].end() + _AROUND),
            )
            return (
                number,
                f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}",
            )
    return None
