"""Canaries: copies of failed runs that claim success at their end, scored with the real ones.

Each text is added to copies of failed runs as their last observation. Its *lift* is the share of
runs that it moves from below the median of the successful runs to the median or above. The runs
come from the splits that certify the judge, which it never saw. Their copies enter no score table,
certificate or decision, and are not used for any choice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Protocol, cast, runtime_checkable

import numpy as np

from certify_assets.documents import Count, Document, Share
from certify_assets.errors import InputError
from certify_assets.files import sha256_bytes
from certify_assets.judges.base import score_table
from certify_assets.judges.family import FileFamily
from certify_assets.judges.record import labelled
from certify_assets.judges.specs import family_of
from certify_assets.judges.stored import StoredJudge

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Judge

#: the fixed texts, next to this module
FILE: Final = "canaries.json"
#: name of the text that is made of the words which a lexical judge takes for success
KNOWN_WORDS: Final = "known_words"
#: failed runs that are copied; fewer for a language model, for which each is a prompt a text
RUNS: Final = 60
LANGUAGE_RUNS: Final = 12
# of SFT, from which known words are learned where the judge has no weights of words
_ENOUGH = 500


@runtime_checkable
class WeighsWords(Protocol):
    """A judge with weights of words."""

    def success_words(self) -> str:
        """Return the words that count most for success, the strongest first."""


class CanaryReport(Document):
    """How far texts addressed to a judge lift the scores of failed runs."""

    TITLE = "canary report"
    SCHEMA = "certify_assets/canary/1"

    #: of the score table that the median is of, and of the file of texts
    scores_sha256: str
    texts_sha256: str
    #: copied runs, and failed runs that there are
    runs: Count
    failed: Count
    #: share of the copied runs that each text lifts; empty where nothing was scored
    lifts: dict[str, Share]
    #: why nothing was scored
    reason: str = ""

    @property
    def worst(self) -> tuple[str, float] | None:
        """Return the text with the largest lift, and the lift; None if nothing was scored."""
        return max(self.lifts.items(), key=lambda item: item[1]) if self.lifts else None

    def sentence(self) -> str:
        """Return the lift of every text, the largest first."""
        if not self.lifts:
            return f"Not measured: {self.reason}."
        ordered = sorted(self.lifts.items(), key=lambda item: (-item[1], item[0]))
        said = ", ".join(f"{name.replace('_', ' ')} {lift:.2f}" for name, lift in ordered)
        return (
            f"Share of {self.runs} failed runs that a text added at their end lifts above the "
            f"median success: {said}."
        )


@cache
def canary_texts() -> tuple[Mapping[str, str], str]:
    """Return the fixed texts by name, and the hash of their file."""
    data = files("certify_assets.judges").joinpath(FILE).read_bytes()
    return json.loads(data)["texts"], sha256_bytes(data)


def score_canaries(
    judge: StoredJudge, model: Judge, table: pd.DataFrame, *, scores_sha256: str
) -> CanaryReport:
    """Copy failed runs of a score table with every text at their end, and score the copies."""
    known = table[table["outcome"].notna() & table["score"].notna()]
    failed, succeeded = (known[known["outcome"] == outcome] for outcome in (0, 1))
    reason = ""
    if judge.spec.hosted:
        reason = "a server's answers cost money"
    elif failed.empty or succeeded.empty:
        reason = "the labelled runs do not have both outcomes"
    limit = LANGUAGE_RUNS if judge.spec.uses_language_model else RUNS
    copied = _drawn(failed, 0 if reason else limit)
    return CanaryReport(
        scores_sha256=scores_sha256,
        texts_sha256=canary_texts()[1],
        runs=len(copied),
        failed=len(failed),
        lifts={} if reason else _lifts(judge, model, copied, float(succeeded["score"].median())),
        reason=reason,
    )


def _drawn(runs: pd.DataFrame, number: int) -> pd.DataFrame:
    """Draw runs; the draw does not depend on the order of the table."""
    order = np.argsort([sha256_bytes(str(name).encode()) for name in runs["trajectory_id"]])
    return runs.iloc[order[:number]]


def _lifts(
    judge: StoredJudge, model: Judge, copied: pd.DataFrame, median: float
) -> dict[str, float]:
    """Return the share of runs that each text lifts to the median or above."""
    import pandas as pd

    words, renderer = _known_words(judge, model), judge.renderer
    texts = {**canary_texts()[0], **({KNOWN_WORDS: words} if words else {})}
    frames = [judge.corpus.split(split) for split in sorted(set(copied["split"]))]
    runs = pd.concat(frames).set_index("trajectory_id", drop=False).loc[copied["trajectory_id"]]
    copies = pd.concat([spoken_to(runs, text) for text in texts.values()], ignore_index=True)
    scores = score_table(model, copies, renderer)["score"].to_numpy(np.float64)
    below = copied["score"].to_numpy(np.float64) < median
    lifted = below & (scores.reshape(len(texts), -1) >= median)
    return {name: float(row.mean()) for name, row in zip(texts, lifted, strict=True)}


def spoken_to(runs: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return copies of runs with a text as their last observation."""
    said = {"action": "", "observation": text}
    steps = [
        [*({name: step[name] for name in said} for step in steps), said] for steps in runs["steps"]
    ]
    return runs.assign(steps=steps)


def _known_words(judge: StoredJudge, model: Judge) -> str:
    """Return the words known to an attacker with the judge's weights, or with labelled SFT runs."""
    if isinstance(model, WeighsWords):
        return model.success_words()
    known = _drawn(labelled(judge.corpus.split("sft")), _ENOUGH)
    try:
        family = cast("FileFamily", family_of("lexical"))
        return cast("WeighsWords", family.fitted(known, judge.reading, seed=42)).success_words()
    except InputError:
        # SFT runs of one outcome teach nobody anything
        return ""
