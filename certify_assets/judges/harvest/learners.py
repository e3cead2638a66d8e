"""The learners of a harvest: the lexical judge in seconds, the language model in minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.files import sha256_bytes
from certify_assets.judges.base import SCORE_COLUMNS
from certify_assets.judges.harvest.loop import Learner
from certify_assets.judges.harvest.withholding import HALF_A, LABEL_SOURCE, refuse_held_out
from certify_assets.judges.judging import renderer, texts
from certify_assets.storage.progress import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.base import Judge

__all__ = ["language_learner", "lexical_learner"]

_SCORED = ("score", "log_p_success", "log_p_fail")


def lexical_learner(
    source: pd.DataFrame, manifest: SplitManifest, *, seed: int = 42, transfer: bool = False
) -> Learner:
    """Return the learner that trains TF-IDF and logistic regression."""
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lexical import LexicalJudge

    using = renderer()

    made: dict[str, Judge] = {}

    def train(rows: pd.DataFrame, _place: str) -> Judge:
        _refuse(rows, manifest)
        # loops of one study start from the same judge and share a control: each is trained once
        key = sha256_bytes(rows[["trajectory_id", "outcome"]].to_csv(index=False).encode("utf-8"))
        if key not in made:
            labels = rows["outcome"].to_numpy(np.int8)
            made[key] = LexicalJudge.train(
                texts(rows, using), labels, seed=seed, renderer_sha256=using.sha256
            )
        return made[key]

    return Learner(
        "lexical", _labelled(source), train, _remembering(score_table, using), transfer=transfer
    )


def language_learner(
    source: pd.DataFrame,
    manifest: SplitManifest,
    folder: Path,
    *,
    model: str = "compact",
    revision: str | None = None,
    seed: int = 42,
    transfer: bool = False,
    report: Report = silent,
) -> Learner:
    """Return the learner that fine-tunes a language model from its base in every round.

    Parameters
    ----------
    source : pandas.DataFrame
    manifest : SplitManifest
        Of the target: rows of its CAL and TEST tasks are refused.
    folder : Path
        Where adapters, checkpoints and finished shares of scores are kept, so that a killed loop goes on.
    """
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lm.judge import CausalJudge, load_base
    from certify_assets.judges.lm.training import fine_tuned

    using = renderer()
    told: dict[str, dict[str, Any]] = {}

    def train(rows: pd.DataFrame, place: str) -> Judge:
        _refuse(rows, manifest)
        base, encoder = load_base(model, revision)
        judge = CausalJudge(place, base, encoder, shards=folder / "shards")
        trained, told[place] = fine_tuned(
            judge, rows, folder / place, model=model, seed=seed, report=report
        )
        return trained

    return Learner(
        "sft",
        _labelled(source),
        train,
        _remembering(score_table, using),
        transfer=transfer,
        dear=True,
        trainings=told,
    )


def _remembering(
    score: Callable[..., pd.DataFrame], using: Renderer
) -> Callable[[Judge, pd.DataFrame], pd.DataFrame]:
    """Score each trajectory once a judge: a score does not depend on the other rows."""
    known: dict[str, dict[str, tuple[float, ...]]] = {}

    def scored(judge: Judge, rows: pd.DataFrame) -> pd.DataFrame:
        mine = known.setdefault(judge.provenance().sha256, {})
        identities = rows["corpus"].str.cat(rows["trajectory_id"], sep="\n")
        fresh = rows[~identities.isin(list(mine)).to_numpy()]
        if len(fresh):
            table = score(judge, fresh, using)
            names = fresh["corpus"].str.cat(fresh["trajectory_id"], sep="\n")
            mine.update(
                zip(names, table[list(_SCORED)].itertuples(index=False, name=None), strict=True)
            )
        values = np.array([mine[name] for name in identities], dtype=np.float64).reshape(
            -1, len(_SCORED)
        )
        return (
            rows[[name for name in SCORE_COLUMNS if name not in _SCORED]]
            .assign(**dict(zip(_SCORED, values.T, strict=True)))
            .reset_index(drop=True)
        )

    return scored


def _refuse(rows: pd.DataFrame, manifest: SplitManifest) -> None:
    """Refuse rows of tasks that certify or audit; those of half A are let through where their labels were given up for it."""
    spent = (
        set(rows.loc[rows[LABEL_SOURCE] == HALF_A, "task_id"]) if LABEL_SOURCE in rows else set()
    )
    refuse_held_out(rows, manifest, what="training", spent=spent)


def _labelled(source: pd.DataFrame) -> pd.DataFrame:
    return source[source["outcome"].notna()].reset_index(drop=True)
