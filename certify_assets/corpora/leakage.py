"""Does something other than the run speak of its outcome? Fields, phrases, and what length or agent alone predict."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.corpora.auroc import auroc
from certify_assets.corpora.rendering import Rendered, render_frame
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.sources import ADAPTERS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LEAK_FIELDS", "LEAK_KEYS", "VERDICT_PHRASES", "LeakControls", "LeakFinding", "controls", "find_leak_fields"]

LEAK_FIELDS: Mapping[str, tuple[str, ...]] = {name: adapter.leak_fields for name, adapter in ADAPTERS.items()}

# names that only harnesses use, so that an agent which reads a file called "results" or prints an "error" is no leak
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
    "reward_value": r"\b(?:reward|raw_reward)\b[\"']?\s*[:=]\s*-?\d",
    "resolved_flag": r"\b(?:is_)?resolved[\"']?\s*[:=]\s*(?:true|false)",
    "task_verdict": r"\b(?:task|episode|challenge)\s+(?:was\s+|is\s+)?(?:solved|failed|passed|completed successfully)\b",
    "test_summary": r"\b\d+ (?:passed|failed)\b",
    "verdict_word": r"\bverdict\s*[:=]\s*\w+",
}

_THRESHOLD = 0.85
_HALVINGS = 10


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
class LeakControls:
    """How well the outcome is told without reading the run.

    Parameters
    ----------
    length_auroc, step_auroc : float
        AUROC of the length of the uncut rendering and of the number of steps, in the better of the two directions (at least .5).
    longer_succeeds, more_steps_succeed : bool
        That direction.
    agent_auroc : float
        AUROC of the agent's success rate on other tasks.
    phrases : dict of str to float
        For every verdict phrase seen in observations, the AUROC of its presence, in the better direction.
    phrase_trajectories : dict of str to int
        How many trajectories have it.
    threshold : float
        From here on a control is a structural leak.
    over : tuple of str
        Controls at or over the threshold.
    accepted : str or None
        The reason for which a structural leak is accepted.

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
    threshold: float
    over: tuple[str, ...]
    accepted: str | None

    @property
    def passed(self) -> bool:
        """Whether the corpus may proceed: no structural leak, or an accepted one."""
        return not self.over or bool(self.accepted)

    def to_dict(self) -> dict[str, Any]:
        """Return the controls as a JSON object; null where one cannot be measured."""
        document = asdict(self) | {"over": list(self.over), "passed": self.passed}
        return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in document.items()}


def controls(
    frame: pd.DataFrame,
    *,
    rendered: Sequence[Rendered] | None = None,
    threshold: float = _THRESHOLD,
    accept_structural_leak: str | None = None,
    seed: int = 0,
) -> LeakControls:
    """Measure what length, steps, agent and verdict phrases alone tell about the outcome.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trajectories; those without an outcome are left out.
    rendered : sequence of Rendered, optional
        Renderings of the rows, to save rendering them again.
    threshold : float, default .85
        AUROC from which a control is a structural leak.
    accept_structural_leak : str, optional
        The reason why the corpus may be used all the same; goes onto every certificate.
    seed : int
        Of the halvings of tasks behind the agent control.
    """
    texts = render_frame(frame) if rendered is None else rendered
    labelled = frame["outcome"].notna().to_numpy()
    outcomes = frame["outcome"][labelled].to_numpy(dtype=np.int64)
    lengths = np.array([len(item.text) + item.cut_chars for item in texts], dtype=np.float64)[labelled]
    steps = frame["steps"].map(len).to_numpy(dtype=np.float64)[labelled]
    rows = frame[labelled]
    length_auroc, longer = _either_way(lengths, outcomes)
    step_auroc, more = _either_way(steps, outcomes)
    agent_auroc = _agent_auroc(rows["agent"].tolist(), rows["task_id"].tolist(), outcomes, seed)
    presence = _phrases(rows)
    phrases = {name: _either_way(marks, outcomes)[0] for name, marks in presence.items()}
    measured = {"length": length_auroc, "steps": step_auroc, "agent": agent_auroc} | {
        f"phrase {name}": value for name, value in phrases.items()
    }
    return LeakControls(
        length_auroc=length_auroc,
        longer_succeeds=longer,
        step_auroc=step_auroc,
        more_steps_succeed=more,
        agent_auroc=agent_auroc,
        phrases=phrases,
        phrase_trajectories={name: int(marks.sum()) for name, marks in presence.items()},
        threshold=threshold,
        over=tuple(name for name, value in measured.items() if value >= threshold),
        accepted=accept_structural_leak,
    )


def find_leak_fields(frame: pd.DataFrame, keys: Sequence[str] = LEAK_KEYS) -> list[LeakFinding]:
    """Look for columns that no trajectory has, and for keys of harness records in instructions and steps.

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
    found = [LeakFinding("column", str(name), len(ids), first) for name in frame.columns if name not in COLUMNS]
    pattern = re.compile(rf"""\\*["']({"|".join(map(re.escape, keys))})\\*["']\s*:""")
    seen: dict[str, list[str]] = {}
    for identity, instruction, steps in zip(ids, frame["instruction"], frame["steps"], strict=True):
        parts = (instruction, *(text for step in steps for text in (step["action"], step["observation"])))
        for name in {match for part in parts for match in pattern.findall(part)}:
            seen.setdefault(name, []).append(identity)
    return found + [LeakFinding("key", name, len(where), where[0]) for name, where in sorted(seen.items())]


def _either_way(values: NDArray[np.float64], outcomes: NDArray[np.int64]) -> tuple[float, bool]:
    area = auroc(values, outcomes)
    return max(area, 1.0 - area), not area < 0.5


def _agent_auroc(agents: Sequence[str], tasks: Sequence[str], outcomes: NDArray[np.int64], seed: int) -> float:
    """AUROC of the agent's success rate, estimated on one half of the tasks and read on the other, averaged over halvings.

    Leaving out one task at a time would order trajectories of one agent by their own outcomes, backwards.
    """
    codes = np.unique(np.asarray(agents, dtype=object), return_inverse=True)[1]
    areas: list[float] = []
    for halving in range(_HALVINGS):
        names = sorted(set(tasks), key=lambda task: hashlib.sha256(f"{seed}\0{halving}\0{task}".encode()).digest())
        half = set(names[: len(names) // 2])
        inside = np.array([task in half for task in tasks], dtype=np.bool_)
        areas += [_transferred(codes, outcomes, fitted, ~fitted) for fitted in (inside, ~inside)]
    measured = [area for area in areas if not math.isnan(area)]
    return float(np.mean(measured)) if measured else float("nan")


def _transferred(codes: NDArray[Any], outcomes: NDArray[np.int64], fitted: NDArray[np.bool_], read: NDArray[np.bool_]) -> float:
    if not fitted.any() or not read.any():
        return float("nan")
    width = int(codes.max()) + 1
    runs = np.bincount(codes[fitted], minlength=width)
    right = np.bincount(codes[fitted], weights=outcomes[fitted], minlength=width)
    rates = np.where(runs > 0, right / np.maximum(runs, 1), outcomes[fitted].mean())
    return auroc(rates[codes[read]], outcomes[read])


def _phrases(frame: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Mark, for every verdict phrase that occurs, the trajectories whose observations have it."""
    observed = ["\n".join(step["observation"] for step in steps) for steps in frame["steps"]]
    marks: dict[str, NDArray[np.float64]] = {}
    for name, phrase in VERDICT_PHRASES.items():
        pattern = re.compile(phrase, re.IGNORECASE)
        present = np.array([pattern.search(text) is not None for text in observed], dtype=np.float64)
        if present.any():
            marks[name] = present
    return marks
