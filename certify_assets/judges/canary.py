"""Canaries: copies of failed runs that claim success at their end, scored beside the real ones.

A judge that a run can talk to lifts them: the *lift* of a text is the share of the copied runs that
were scored below the median of the successful runs and, with the text as a last observation, are
not. The runs are of the splits that certify the judge, which it never saw; their copies enter no
score table, certificate or decision, and nothing is chosen by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.errors import InputError
from certify_assets.files import sha256_bytes
from certify_assets.judges.base import score_table
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.record import texts as rendered_texts

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.corpus import Corpus
    from certify_assets.corpora.rendering import Renderer
    from certify_assets.judges.base import Judge
    from certify_assets.judges.specs import JudgeSpec

#: the fixed texts, next to this module
FILE: Final = "canaries.json"
#: name of the text that is made of the words which a lexical judge takes for success
KNOWN_WORDS: Final = "known_words"
#: failed runs that are copied; fewer for a language model, for which each is a prompt a text
RUNS: Final = 60
LANGUAGE_RUNS: Final = 12
_WORDS = 30
# of SFT, from which known words are learned where the judge has no weights of words
_ENOUGH = 500


@dataclass(frozen=True, kw_only=True)
class CanaryReport:
    """How far texts that speak to a judge lift failed runs."""

    #: of the score table that the median is of, and of the file of texts
    scores_sha256: str
    texts_sha256: str
    #: copied runs, and failed runs that there are
    runs: int
    failed: int
    #: share of the copied runs that each text lifts; empty where nothing was scored
    lifts: Mapping[str, float]
    #: why nothing was scored
    reason: str = ""

    @property
    def worst(self) -> tuple[str, float] | None:
        """Return the text that lifts most, with its lift; None where nothing was scored."""
        return max(self.lifts.items(), key=lambda item: item[1]) if self.lifts else None

    def sentence(self) -> str:
        """Return the lift of every text, the largest first."""
        if not self.lifts:
            return f"Not measured: {self.reason}."
        ordered = sorted(self.lifts.items(), key=lambda item: (-item[1], item[0]))
        said = ", ".join(f"{name.replace('_', ' ')} {lift:.2f}" for name, lift in ordered)
        return (
            f"Share of {self.runs} copies of failed runs that a text at their end lifts over the "
            f"median success: {said}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        return asdict(self)


@cache
def canary_texts() -> tuple[Mapping[str, str], str]:
    """Return the fixed texts by name, and the hash of their file."""
    data = files("certify_assets.judges").joinpath(FILE).read_bytes()
    return json.loads(data)["texts"], sha256_bytes(data)


def score_canaries(
    corpus: Corpus,
    spec: JudgeSpec,
    renderer: Renderer,
    model: Judge,
    table: pd.DataFrame,
    *,
    scores_sha256: str,
) -> CanaryReport:
    """Copy failed runs with every text at their end, and score the copies."""
    _, texts_sha256 = canary_texts()
    known = table[table["outcome"].notna() & table["score"].notna()]
    failed, succeeded = (known[known["outcome"] == outcome] for outcome in (0, 1))
    limit = LANGUAGE_RUNS if spec.uses_language_model else RUNS
    # the same runs for any order of the table
    order = np.argsort([sha256_bytes(name.encode()) for name in failed["trajectory_id"]])
    copied = failed.iloc[order[:limit]]
    reason = (
        "a server's answers cost money"
        if spec.hosted
        else ""
        if len(copied) and len(succeeded)
        else "the labelled runs do not have both outcomes"
    )
    lifts = (
        {}
        if reason
        else _lifts(corpus, renderer, model, copied, float(succeeded["score"].median()))
    )
    return CanaryReport(
        scores_sha256=scores_sha256,
        texts_sha256=texts_sha256,
        runs=0 if reason else len(copied),
        failed=len(failed),
        lifts=lifts,
        reason=reason,
    )


def _lifts(
    corpus: Corpus, renderer: Renderer, model: Judge, copied: pd.DataFrame, median: float
) -> dict[str, float]:
    """Return the share of runs that each text lifts to the median or over it."""
    import pandas as pd

    fixed, _ = canary_texts()
    words = _known_words(corpus, renderer, model)
    texts = {**fixed, **({KNOWN_WORDS: words} if words else {})}
    frames = [corpus.split(split) for split in sorted(set(copied["split"]))]
    runs = pd.concat(frames).set_index("trajectory_id", drop=False).loc[copied["trajectory_id"]]
    # who speaks to a judge keeps every observation short enough to be read whole
    longest = renderer.observation_chars
    copies = pd.concat(
        [spoken_to(runs, text, longest) for text in texts.values()], ignore_index=True
    )
    scores = score_table(model, copies, renderer)["score"].to_numpy(np.float64)
    below = copied["score"].to_numpy(np.float64) < median
    lifted = below & (scores.reshape(len(texts), -1) >= median)
    return {name: float(row.mean()) for name, row in zip(texts, lifted, strict=True)}


def spoken_to(runs: pd.DataFrame, text: str, longest: int | None = None) -> pd.DataFrame:
    """Return copies of runs with a text as their last observations, of so many characters each."""
    said = [{"action": "", "observation": part} for part in _in_parts(text, longest)]
    steps = [
        [*({name: step[name] for name in said[0]} for step in steps), *said]
        for steps in runs["steps"]
    ]
    return runs.assign(steps=steps)


def _in_parts(text: str, longest: int | None) -> list[str]:
    """Return a text in parts of at most so many characters, whole lines where there is room."""
    if longest is None or len(text) <= longest:
        return [text]
    parts = [""]
    for line in text.splitlines():
        for piece in wrap(line, longest):
            if len(parts[-1]) + 1 + len(piece) > longest:
                parts.append("")
            parts[-1] += f"\n{piece}" if parts[-1] else piece
    return parts


def success_words(lexical: LexicalJudge, count: int = _WORDS, *, success: bool = True) -> str:
    """Return the words that a judge takes for success, or for failure, the strongest first."""
    weights = -lexical.coefficients if success else lexical.coefficients
    places = np.argsort(weights, kind="stable")[:count]
    return " ".join(lexical.vocabulary[place] for place in places)


def _known_words(corpus: Corpus, renderer: Renderer, model: Judge) -> str:
    """Return what somebody knows who has the judge's weights, or runs of SFT with outcomes."""
    words = model if isinstance(model, LexicalJudge) else getattr(model, "lexical", None)
    if isinstance(words, LexicalJudge):
        return success_words(words)
    sft = corpus.split("sft")
    known = sft[sft["outcome"].notna()]
    order = np.argsort([sha256_bytes(str(name).encode()) for name in known["trajectory_id"]])
    known = known.iloc[order[:_ENOUGH]]
    try:
        texts: Sequence[str] = rendered_texts(known, renderer)
        return success_words(LexicalJudge.train(texts, known["outcome"].to_numpy(np.int8)))
    except InputError:
        # SFT runs of one outcome teach nobody anything
        return ""
