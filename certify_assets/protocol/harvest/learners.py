"""The learners of a harvest: the lexical judge in seconds, the language model in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.protocol.harvest.loop import Learner
from certify_assets.protocol.harvest.withholding import LABEL_SOURCE, Splits, refuse_held_out
from certify_assets.protocol.judging import renderer, texts

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Judge

__all__ = ["language_learner", "lexical_learner"]


def lexical_learner(source: pd.DataFrame, *, seed: int = 42, transfer: bool = False) -> Learner:
    """Return the learner that trains TF-IDF and logistic regression."""
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lexical import LexicalJudge

    using = renderer()

    def train(rows: pd.DataFrame, _place: str) -> Judge:
        labels = rows["outcome"].to_numpy(np.int8)
        return LexicalJudge.train(texts(rows, using), labels, seed=seed, renderer_sha256=using.sha256)

    return Learner("lexical", _labelled(source), train, lambda judge, rows: score_table(judge, rows, using), transfer=transfer)


def language_learner(
    source: pd.DataFrame, folder: Path, *, model: str = "compact", revision: str | None = None, seed: int = 42, transfer: bool = False
) -> Learner:
    """Return the learner that fine-tunes a language model from its base in every round.

    Parameters
    ----------
    source : pandas.DataFrame
    folder : Path
        Where adapters, checkpoints and finished shares of scores are kept, so that a killed loop goes on.
    """
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lm.judge import CausalJudge, load_base
    from certify_assets.protocol.language_training import fine_tuned

    using = renderer()

    def train(rows: pd.DataFrame, place: str) -> Judge:
        base, encoder = load_base(model, revision)
        judge = CausalJudge(place, base, encoder, shards=folder / "shards")
        return fine_tuned(judge, rows, folder / place, model=model, seed=seed)[0]

    return Learner("sft", _labelled(source), train, lambda judge, rows: score_table(judge, rows, using), transfer=transfer, dear=True)


def _labelled(source: pd.DataFrame) -> pd.DataFrame:
    return source[source["outcome"].notna()].reset_index(drop=True)
