"""A loop of harvests: the learner, the rows, and the measurement of one judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates import Settings, evaluate, measure_threshold, observe
from certify_assets.files import canonical_json, sha256_bytes, significant
from certify_assets.judges.base import JUDGED_COLUMNS, SCORE_COLUMNS, judge_auroc, score_table
from certify_assets.judges.families.lexical import LexicalFamily
from certify_assets.judges.families.structure import CombinedFamily
from certify_assets.judges.family import FileFamily
from certify_assets.judges.harvest.gate import (
    HALF_A,
    HALVES_SEED,
    LABEL_SOURCE,
    HarvestGate,
    HarvestPool,
    Splits,
    halves,
    open_gate,
    refuse_held_out,
    rendered_lengths,
    withhold,
)
from certify_assets.judges.harvest.rows import AuditedRow, MeasuredRow
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.reading import LEXICAL
from certify_assets.judges.record import columns
from certify_assets.judges.specs import PROCEDURES
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.judges.base import Judge

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Learner:
    """A recipe that is trained from its base on the rows it is given."""

    name: str
    # labelled by reviewers: the target's SFT split (in-domain), or rows of other corpora (transfer)
    source: pd.DataFrame
    # from rows with outcomes, and a name for the place of their checkpoints, to a judge
    train: Callable[[pd.DataFrame, str], Judge]
    score: Callable[[Judge, pd.DataFrame], pd.DataFrame]
    # whether the source has no row of the target, whose SFT split is then in the pool as well
    transfer: bool = False
    # whether a training takes minutes: of the controls then only labels of half A are trained on
    costly: bool = False


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop over rounds: everything that stays the same in it."""

    splits: Splits
    learner: Learner
    # of the gate; half B is certified with the same, and with the other procedures
    settings: Settings
    rounds: int = 1
    say: Say = field(default=lambda _: None)

    @property
    def label(self) -> int:
        """The pseudo-label."""
        return 0 if self.settings.side == "reject" else 1

    def pool(self) -> HarvestPool:
        """Return the unseen RL split, with SFT where the source is of other corpora, unlabelled."""
        import pandas as pd

        parts = [self.splits.sft, self.splits.rl] if self.learner.transfer else [self.splits.rl]
        return withhold(
            pd.concat([part for part in parts if len(part)], ignore_index=True)
            if any(map(len, parts))
            else self.splits.rl
        )


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of one loop: halves of CAL and the pool."""

    half_a: pd.DataFrame
    half_b: pd.DataFrame
    pool: HarvestPool

    @classmethod
    def of(cls, loop: Loop) -> Parts:
        """Cut them from the splits."""
        return cls(*halves(loop.splits.cal, HALVES_SEED), loop.pool())

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Characters of the pool's rendered runs."""
        return rendered_lengths(self.pool.frame)


def gate_of(loop: Loop, parts: Parts, judge: Judge) -> tuple[HarvestGate, pd.DataFrame]:
    """Open or close the gate of a judge on half A; return it with the scores of the pool."""
    import pandas as pd

    frames = [parts.half_a, parts.pool.frame]
    # bets are fixed on the learner's own labels: no task of them is in CAL, and no outcome of the
    # pool is read
    pilot = loop.settings.procedure == "betting"
    scored = loop.learner.score(
        judge, pd.concat([*frames, loop.learner.source] if pilot else frames, ignore_index=True)
    )
    ends = np.cumsum([len(frame) for frame in frames])
    half, pool = scored.iloc[: ends[0]], scored.iloc[ends[0] : ends[1]].reset_index(drop=True)
    return open_gate(half, loop.settings, scored.iloc[ends[1] :] if pilot else None), pool


def measured(loop: Loop, parts: Parts, judge: Judge) -> MeasuredRow:
    """Certify a judge on half B with each procedure, and audit the certificates on TEST."""
    import pandas as pd

    scored = loop.learner.score(
        judge, pd.concat([parts.half_b, loop.splits.test], ignore_index=True)
    )
    half_b, test = scored.iloc[: len(parts.half_b)], scored.iloc[len(parts.half_b) :]
    cells: dict[str, AuditedRow] = {}
    # betting takes a pilot of its own and is a gate here, not what a judge is deployed with
    names = dict.fromkeys(
        [
            *([] if loop.settings.procedure == "betting" else [loop.settings.procedure]),
            *PROCEDURES[:3],
        ]
    )
    half, audited = observe(*columns(half_b)), observe(*columns(test))
    for name in names:
        settings = loop.settings.replace(procedure=name)
        # no certificate: its findings, which nothing reads here, cost most of one
        found = evaluate(half, settings)
        audit = measure_threshold(audited, settings, found.threshold)
        own = evaluate(audited, settings) if audited.scored else None
        cells[name] = {
            "half_b_coverage": significant(found.chosen_coverage),
            "threshold": found.threshold,
            "test_coverage": audit.coverage,
            "test_error": audit.realized_error,
            "test_own_coverage": None if own is None or own.lacks_pilot else own.chosen_coverage,
            "verdict": None if found.threshold is None else audit.verdict,
        }
    return {
        "adapter_sha256": judge.provenance().adapter_sha256,
        "auroc_half_b": judge_auroc(half_b),
        "auroc_test": judge_auroc(test),
        "certificates": cells,
    }


def quick_learner(
    source: pd.DataFrame, manifest: SplitManifest, name: str = "lexical", *, transfer: bool = False
) -> Learner:
    """Return a learner that is trained in seconds: lexical or combined."""
    made: dict[str, Judge] = {}

    def train(rows: pd.DataFrame, _place: str) -> Judge:
        _refuse(rows, manifest)
        # loops of one study start from the same judge and share a control: each is trained once
        key = _identity(rows)
        if key not in made:
            made[key] = cast("Judge", _QUICK[name].fitted(rows, LEXICAL, seed=42))
        return made[key]

    remembering = _remembering(LEXICAL.renderer)
    return Learner(name, _labelled(source), train, remembering, transfer=transfer)


#: judges that are trained in seconds, by what a learner of them is called
_QUICK: dict[str, FileFamily] = {"lexical": LexicalFamily(), "combined": CombinedFamily()}


def language_learner(
    source: pd.DataFrame,
    manifest: SplitManifest,
    folder: Path,
    *,
    name: str = "sft",
    model: str = "compact",
    transfer: bool = False,
    report: Report = silent,
) -> Learner:
    """Return the learner that fine-tunes a language model from its base in every round."""
    from certify_assets.judges.lm.judge import CausalJudge, load_base
    from certify_assets.judges.lm.sft import fine_tuned

    known = known_model(model)
    reading, recipe = known.reading, known.recipe.pooled if transfer else known.recipe

    def train(rows: pd.DataFrame, place: str) -> Judge:
        _refuse(rows, manifest)
        base = load_base(model, None, reading)
        judge = CausalJudge(place, *base, shards=folder / "shards")
        # by its rows and recipe, which resume alike: another gate's round of that number has other
        # rows, and all share their start
        asked = sha256_bytes(canonical_json([_identity(rows), recipe.to_dict()]))
        checkpoints = folder / asked[:12]
        return fine_tuned(
            judge, rows, checkpoints, model=model, seed=42, report=report, recipe=recipe
        )[0]

    remembering = _remembering(reading.renderer)
    return Learner(name, _labelled(source), train, remembering, transfer, costly=True)


def _identity(rows: pd.DataFrame) -> str:
    return sha256_bytes(rows[["trajectory_id", "outcome"]].to_csv(index=False).encode("utf-8"))


def _remembering(using: Renderer) -> Callable[[Judge, pd.DataFrame], pd.DataFrame]:
    """Score each trajectory once a judge: a score does not depend on the other rows."""
    known: dict[str, dict[str, tuple[float, ...]]] = {}

    def scored(judge: Judge, rows: pd.DataFrame) -> pd.DataFrame:
        mine = known.setdefault(judge.provenance().sha256, {})
        identities = rows["corpus"].str.cat(rows["trajectory_id"], sep="\n")
        fresh = rows[~identities.isin(list(mine)).to_numpy()]
        if len(fresh):
            table = score_table(judge, fresh, using)
            names = fresh["corpus"].str.cat(fresh["trajectory_id"], sep="\n")
            mine.update(
                zip(
                    names,
                    table[list(JUDGED_COLUMNS)].itertuples(index=False, name=None),
                    strict=True,
                )
            )
        values = np.array([mine[name] for name in identities], dtype=np.float64).reshape(
            -1, len(JUDGED_COLUMNS)
        )
        return (
            rows[[name for name in SCORE_COLUMNS if name not in JUDGED_COLUMNS]]
            .assign(**dict(zip(JUDGED_COLUMNS, values.T, strict=True)))
            .reset_index(drop=True)
        )

    return scored


def _refuse(rows: pd.DataFrame, manifest: SplitManifest) -> None:
    """Refuse rows of tasks that certify or audit."""
    # those of half A are let through where their labels were given up for it
    spent = (
        set(rows.loc[rows[LABEL_SOURCE] == HALF_A, "task_id"]) if LABEL_SOURCE in rows else set()
    )
    refuse_held_out(rows, manifest, what="training", spent=spent)


def _labelled(source: pd.DataFrame) -> pd.DataFrame:
    return source[source["outcome"].notna()].reset_index(drop=True)
