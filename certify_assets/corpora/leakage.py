"""Leak checks: fields, phrases, lengths and agents that predict the outcome without the run."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.config import complete_thresholds
from certify_assets.corpora.rendering import render_frame
from certify_assets.documents import Document

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
#: by its name the pattern of a phrase, and words of which every occurrence has one: most texts have
#: none, which is found out fast
VERDICT_PHRASES: Mapping[str, tuple[str, str]] = {
    "correct_flag": (
        r"\"correct\"\s*:\s*(?:true|false)|<correct>\s*\w+\s*</correct>",
        "correct",
    ),
    "reward_value": (
        r"\b(?:reward|raw_reward)\b[\"']?(?:\s*[:=]\s*|\s+(?:is|of)?\s*)-?\d+(?:\.\d+)?",
        "reward",
    ),
    "resolved_flag": (r"\b(?:is_)?resolved[\"']?\s*[:=]\s*(?:true|false)", "resolved"),
    "score_value": (
        r"\b(?:final_|total_)?score\b[\"']?\s*[:=]\s*-?\d+(?:\.\d+)?",
        "score",
    ),
    "success_flag": (
        r"\bsuccess(?:ful)?[\"']?\s*[:=]\s*(?:true|false|\d+(?:\.\d+)?)",
        "success",
    ),
    "task_verdict": (
        r"\b(?:task|episode|challenge)\s+(?:was\s+|is\s+)?"
        r"(?:solved|failed|passed|completed successfully)\b",
        "task episode challenge",
    ),
    "test_summary": (r"\b\d+ (?:passed|failed)\b(?:, \d+ \w+)*", "passed failed"),
    "verdict_word": (r"\bverdict\s*[:=]\s*\w+", "verdict"),
}
_PHRASES = {
    name: (re.compile(text, re.IGNORECASE), parts.split())
    for name, (text, parts) in VERDICT_PHRASES.items()
}
# a key as JSON and Python write it, also where the record is quoted in a text itself
_KEY = re.compile(r"""["'](\w{1,64})\\*["']\s*:""")
# what a phrase says: its number where it ends in one, else no where it has one of these words, else
# yes
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_NO = re.compile(
    r"false|(?<!\b0 )fail|incorrect|unsolved|unresolved|wrong|reject|\bno\b", re.IGNORECASE
)
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]
_HALVINGS = 10
_SEED = 0
_EXAMPLES = 2
_AROUND = 60


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
    """The evidence of the checks: agents and phrases."""

    agents: tuple[AgentRate, ...]
    phrases: tuple[PhraseEvidence, ...]


class LeakChecks(Document):
    """How well the outcome can be predicted without reading the run; None if it does not vary."""

    TITLE = "document of leak checks"
    SCHEMA = "certify_assets/leak_checks/2"

    # AUROC of the uncut rendering's length and of the number of steps, in the better direction (at
    # least .5)
    length_auroc: float | None
    step_auroc: float | None
    agent_auroc: float | None
    # AUROC of a verdict phrase's presence or of what it says last, whichever is larger: "reward: 0"
    # and "reward: 1" at the end of every run are in all of them alike
    phrases: dict[str, float | None]
    thresholds: dict[str, float]
    # checks at or over their threshold
    over: tuple[str, ...]
    # the reason for which a structural leak is accepted; every certificate carries it
    accepted: str | None
    evidence: LeakEvidence
    # of what they were measured on; empty where that is not stored
    manifest_sha256: str = ""
    trajectories_sha256: str = ""

    @property
    def passed(self) -> bool:
        """Whether the corpus may proceed: no structural leak, or an accepted one."""
        return not self.over or bool(self.accepted)

    @property
    def measured(self) -> dict[str, float | None]:
        """AUROC of every check, None where all outcomes are equal."""
        return {
            "length": self.length_auroc,
            "steps": self.step_auroc,
            "agent": self.agent_auroc,
            **{f"phrase {name}": value for name, value in self.phrases.items()},
        }

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


def check_leaks(
    frame: pd.DataFrame,
    *,
    thresholds: Mapping[str, float] | None = None,
    accept_structural_leak: str | None = None,
) -> LeakChecks:
    """Measure how well length, steps, agent and verdict phrases predict the outcome."""
    limits = complete_thresholds(thresholds or {})
    lengths = np.array([item.length for item in render_frame(frame)], dtype=np.float64)
    labelled = frame["outcome"].notna().to_numpy()
    rows = frame[labelled]
    outcomes = rows["outcome"].to_numpy(dtype=np.int64)
    phrases = {name: places for name in _PHRASES if any(places := _occurrences(name, rows))}
    # what is known of every run without reading it; the better of several readings counts
    controls = {
        "length": [lengths[labelled]],
        "steps": [rows["steps"].map(len).to_numpy(dtype=np.float64)],
        **{f"phrase {name}": _marks(places) for name, places in phrases.items()},
    }
    found = {
        name: max(_either_way(values, outcomes) for values in readings)
        for name, readings in controls.items()
    }
    found["agent"] = _agent_auroc(rows, outcomes)
    values = {name: None if math.isnan(area) else area for name, area in found.items()}
    return LeakChecks(
        length_auroc=values["length"],
        step_auroc=values["steps"],
        agent_auroc=values["agent"],
        phrases={name: values[f"phrase {name}"] for name in phrases},
        thresholds=limits,
        over=tuple(name for name, area in found.items() if area >= limits[_limit(name)]),
        accepted=accept_structural_leak,
        evidence=LeakEvidence(
            agents=_agent_rates(rows, outcomes),
            phrases=tuple(
                _phrase_evidence(name, places, rows, outcomes) for name, places in phrases.items()
            ),
        ),
    )


def _limit(check: str) -> str:
    return "phrases" if check.startswith("phrase ") else check


def quoted_keys(frame: pd.DataFrame) -> list[str]:
    """Return the sorted keys of records quoted in instructions and steps."""
    found = set[str]()
    for instruction, steps in zip(frame["instruction"], frame["steps"], strict=True):
        texts = (text for step in steps for text in (step["action"], step["observation"]))
        found.update(chain.from_iterable(map(_KEY.findall, (instruction, *texts))))
    return sorted(found)


def _either_way(values: _Floats, outcomes: _Ints) -> float:
    """Return an AUROC in its better direction."""
    area = auroc(values, outcomes.astype(np.float64))
    return max(area, 1.0 - area)


def _agent_auroc(rows: pd.DataFrame, outcomes: _Ints) -> float:
    """AUROC of the agent's success rate on other tasks, averaged over random halves of the tasks.

    NaN if no half has both outcomes.
    """
    of_agent, of_task = (
        rows[name].astype("category").cat.codes.to_numpy() for name in ("agent", "task_id")
    )
    agents = rows["agent"].nunique()
    areas = []
    # rates are estimated on one half of the tasks and read on the other
    for half in _halves(sorted(set(rows["task_id"]))):
        here = half[of_task]
        seen = np.bincount(of_agent[here], minlength=agents)
        won = np.bincount(of_agent[here], outcomes[here], agents)
        if seen.sum():
            rates = np.where(seen > 0, won / np.maximum(seen, 1), won.sum() / seen.sum())
            areas.append(auroc(rates[of_agent[~here]], outcomes[~here]))
    measured = [area for area in areas if not math.isnan(area)]
    return float(np.mean(measured)) if measured else math.nan


def _halves(tasks: Sequence[str]) -> Iterator[NDArray[np.bool_]]:
    """Iterate over both halves of several random splits of the tasks."""
    for halving in range(_HALVINGS):
        drawn = sorted(
            tasks,
            key=lambda task: hashlib.sha256(f"{_SEED}\0{halving}\0{task}".encode()).digest(),
        )
        half = set(drawn[: len(drawn) // 2])
        inside = np.array([task in half for task in tasks], dtype=np.bool_)
        yield inside
        yield ~inside


class _Occurrence(NamedTuple):
    """The last place of a phrase in a run, and the outcome that it states."""

    # number of the step; 0 is the instruction
    step: int
    around: str
    # its number, or 1 for yes and 0 for no
    says: float


def _occurrences(phrase: str, rows: pd.DataFrame) -> list[_Occurrence | None]:
    """Return the last occurrence of a phrase in every run, or None."""
    return [
        _last(phrase, [instruction, *(step["observation"] for step in steps)])
        for instruction, steps in zip(rows["instruction"], rows["steps"], strict=True)
    ]


def _last(phrase: str, texts: Sequence[str]) -> _Occurrence | None:
    pattern, parts = _PHRASES[phrase]
    for step, text in reversed([*enumerate(texts)]):
        # a pattern that ignores case takes some letters beyond ASCII for these
        lower = text.lower() if text.isascii() else ""
        if lower and not any(part in lower for part in parts):
            continue
        if matches := list(pattern.finditer(text)):
            words, (start, end) = matches[-1][0], matches[-1].span()
            number = _NUMBER.search(words)
            before = f"…{text[start - _AROUND : start]}" if start > _AROUND else text[:start]
            after = text[end : end + _AROUND] + "…" * (end + _AROUND < len(text))
            says = float(number[0]) if number else float(_NO.search(words) is None)
            return _Occurrence(step, f"{before}{words}{after}", says)
    return None


def _marks(places: Sequence[_Occurrence | None]) -> list[_Floats]:
    """Mark which runs have a phrase, and the outcome that it states last."""
    said = np.array([math.nan if place is None else place.says for place in places])
    present = ~np.isnan(said)
    # a run without the phrase is placed between those that it speaks well and badly of
    middle = (said[present].min() + said[present].max()) / 2
    return [present.astype(np.float64), np.where(present, said, middle)]


def _agent_rates(rows: pd.DataFrame, outcomes: _Ints) -> tuple[AgentRate, ...]:
    return tuple(
        AgentRate(
            str(agent), len(part), int(part["task_id"].nunique()), float(part["outcome"].mean())
        )
        for agent, part in rows.assign(outcome=outcomes).groupby("agent")
    )


def _phrase_evidence(
    name: str, places: Sequence[_Occurrence | None], rows: pd.DataFrame, outcomes: _Ints
) -> PhraseEvidence:
    marks = np.array([place is not None for place in places], dtype=np.bool_)
    rates = [float(outcomes[side].mean()) if side.any() else None for side in (marks, ~marks)]
    having = rows.assign(outcome=outcomes, place=places)[marks]
    # a success, a failure and so on: one of each outcome says more than two alike
    turn = having.groupby("outcome").cumcount()
    shown = having.assign(turn=turn, failure=1 - having["outcome"]).sort_values(["turn", "failure"])
    examples = tuple(
        (str(run), place.step, place.around)
        for run, place in zip(shown["trajectory_id"], shown["place"], strict=True)
    )
    return PhraseEvidence(name, int(marks.sum()), rates[0], rates[1], examples[:_EXAMPLES])
