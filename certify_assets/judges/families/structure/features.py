"""Features of a run's structure: steps, errors, repetitions, and how it ends."""

# They are computed from the normalised trajectory and of each run alone, so a score does not depend
# on the other runs. Neither agent nor task enters. Texts are untrusted: patterns have no nested
# repetition, and of a long text they read its two ends.

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

#: changes with what any feature means; part of a judge's engine
VERSION: Final = 1
_END_CHARS = 4000
_RECENT = 3
_WORDS: Final[Mapping[str, re.Pattern[str]]] = {
    "completion": re.compile(
        r"\b(?:done|complete[ds]?|finish(?:ed)?|submit(?:ted)?|final|answer|solved|exit)\b", re.I
    ),
    "negation": re.compile(
        r"\b(?:not|no|cannot|unable|never|none|without)\b|n['\u2019]t\b"
        r"|\b(?:sorry|unfortunately)\b",
        re.I,
    ),
    "error": re.compile(
        r"\b(?:errors?|exceptions?|traceback|fail(?:s|ed|ure|ures)?|invalid|denied|refused|"
        r"timed? ?out|no such|not found|undefined|unknown|unexpected|illegal|abort(?:ed)?)\b"
        r"|\w(?:Error|Exception)\b",
        re.I,
    ),
    "success": re.compile(
        r"\b(?:success(?:ful|fully)?|passed|correct(?:ly)?|works?|fixed|confirm(?:ed)?|ok|great|"
        r"thank(?:s)?)\b",
        re.I,
    ),
}
#: of which every match of the pattern of errors has one
_PARTS_OF_ERRORS: Final = (
    *("error", "exception", "traceback", "fail", "invalid", "denied", "refused", "time"),
    *("no such", "not found", "undefined", "unknown", "unexpected", "illegal", "abort"),
)
_WORD = re.compile(r"\w{3,}")


def structure_features(frame: pd.DataFrame) -> NDArray[np.float32]:
    """Compute the features of trajectories.

    Parameters
    ----------
    frame : DataFrame
        Trajectories, with the columns instruction and steps.

    Returns
    -------
    ndarray of float32, shape (n, len(FEATURES))
        Finite. Lengths are natural logarithms of 1 + characters, shares are from 0 to 1.
    """
    rows = [
        list(_features(instruction, steps).values())
        for instruction, steps in zip(frame["instruction"], frame["steps"], strict=True)
    ]
    return np.array(rows, dtype=np.float32).reshape(len(rows), len(FEATURES))


def _features(instruction: str, steps: Sequence[Mapping[str, str]]) -> dict[str, float]:
    actions = [step["action"] or "" for step in steps]
    observations = [step["observation"] or "" for step in steps]
    found = {"steps": float(len(steps)), "instruction length": _log(len(instruction))}
    found |= _lengths("action", actions) | _lengths("observation", observations)
    found |= _errors(observations) | _repetitions(actions, observations)
    last_action = actions[-1] if actions else ""
    last_observation = observations[-1] if observations else ""
    for name, text in (("action", last_action), ("observation", last_observation)):
        found[f"last {name} length"] = _log(len(text))
        for kind, pattern in _WORDS.items():
            found[f"words of {kind} in the last {name}"] = _log(len(pattern.findall(_ends(text))))
    found["question marks in the last action"] = _log(last_action.count("?"))
    found["code ticks in the last action"] = _log(last_action.count("`"))
    found["lines of the last action"] = _log(last_action.count("\n"))
    wanted = set(_WORD.findall(_ends(instruction).lower()))
    for name, text in (
        ("the last action", _ends(last_action)),
        ("the last observation", _ends(last_observation)),
        ("any action", "\n".join(map(_ends, actions))),
    ):
        known = wanted & set(_WORD.findall(text.lower()))
        found[f"share of the task's words in {name}"] = len(known) / max(1, len(wanted))
    return found


def _lengths(name: str, texts: Sequence[str]) -> dict[str, float]:
    sizes = [len(text) for text in texts]
    ending = sizes[-max(1, len(sizes) // 3) :]
    return {
        f"all {name}s' length": _log(sum(sizes)),
        f"mean {name} length": _log(_mean(sizes)),
        f"longest {name}": _log(max(sizes, default=0)),
        f"mean {name} length in the last third": _log(_mean(ending)),
    }


def _errors(observations: Sequence[str]) -> dict[str, float]:
    marks = [_has_error(_ends(text)) for text in observations]
    since = next((place for place, mark in enumerate(reversed(marks)) if mark), len(marks))
    return {
        "steps with errors": _log(sum(marks)),
        "share of steps with errors": _mean(marks),
        "error in the last step": float(bool(marks) and marks[-1]),
        "errors in the last three steps": float(sum(marks[-_RECENT:])),
        "steps since the last error": _log(since),
    }


def _has_error(text: str) -> bool:
    # most texts have no such part, which is found out in a tenth of the time of the pattern
    lower = text.lower() if text.isascii() else ""
    if lower and not any(part in lower for part in _PARTS_OF_ERRORS):
        return False
    return _WORDS["error"].search(text) is not None


def _repetitions(actions: Sequence[str], observations: Sequence[str]) -> dict[str, float]:
    longest = run = 0
    for one, following in pairwise(actions):
        run = run + 1 if one == following else 0
        longest = max(longest, run)
    said = [text for text in observations if text.strip()]
    return {
        "share of repeated actions": 1 - len(set(actions)) / max(1, len(actions)),
        "share of actions repeated at once": _mean(
            [one == other for one, other in pairwise(actions)]
        ),
        "longest repetition of an action": _log(longest),
        "share of repeated observations": 1 - len(set(said)) / len(said) if said else 0.0,
        "share of empty observations": 1 - len(said) / max(1, len(observations)),
        "last observation seen before": float(bool(said) and said[-1] in said[:-1]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _log(value: float) -> float:
    return math.log1p(value)


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _END_CHARS else f"{text[:_END_CHARS]}\n{text[-_END_CHARS:]}"


#: names of the features, in the order of the columns
FEATURES: Final = tuple(_features("", ()))
