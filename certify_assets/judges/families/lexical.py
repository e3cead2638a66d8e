"""Lexical judges: trained on SFT in seconds; the weight on successes may be chosen on CAL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from certify_assets.judges.base import score_table
from certify_assets.judges.configured import WordsEntry
from certify_assets.judges.family import FileFamily, judge_family
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.reading import LEXICAL, JudgeInput
from certify_assets.judges.record import CandidateScore, JudgeRecord, save_files, texts
from certify_assets.judges.selection import certify_candidates
from certify_assets.judges.specs import JudgeSpec
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd


_RULE = (
    "the weight on successes with the largest certified reject coverage on CAL at alpha 0.1 "
    "(at 0.2 where none certifies), the smaller weight on a tie; the level is divided by the "
    "number of candidates"
)


class LexicalSpec(JudgeSpec):
    """A lexical judge."""

    library = "scikitlearn"
    retrainable = True

    family: Literal["lexical"] = "lexical"
    reading: JudgeInput = LEXICAL
    # of several, one is chosen on CAL, and every certificate pays for their number in its level
    success_weights: tuple[float, ...] = (1.0,)

    @property
    def candidates(self) -> int:
        """Number of weights."""
        return len(self.success_weights) or 1

    @property
    def everywhere(self) -> bool:
        """Every corpus gets the one weight; a choice of weights is for comparison."""
        return not self.chooses

    def registration(self) -> object:
        """Return the weights: the oldest registrations of the TEST ledger hold nothing else."""
        return list(self.success_weights)


class LexicalEntry(WordsEntry):
    """A lexical judge, as users write it."""

    family: Literal["lexical"]


@judge_family("lexical")
class LexicalFamily(FileFamily):
    """TF-IDF of words and word pairs, and a logistic regression."""

    position = 0
    kind = LexicalJudge
    entry = LexicalEntry
    judges = (
        LexicalSpec(
            name="lexical", summary="TF-IDF and logistic regression, trained on the SFT split."
        ),
        LexicalSpec(
            name="lexical_weighted",
            summary=(
                "The lexical judge with a weight on successes, picked on CAL by certified reject "
                "coverage and paid for in the level."
            ),
            success_weights=(1.0, 3.0, 10.0, 30.0),
        ),
    )

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Train one candidate a weight, and choose among them on CAL."""
        spec = judge.spec
        assert isinstance(spec, LexicalSpec)
        sft = judge.corpus.split("sft")
        trained = {
            weight: self.fitted(sft, spec.reading, success_weight=weight, seed=spec.seed)
            for weight in spec.success_weights
        }
        selection = _selection(judge, trained) if len(trained) > 1 else []
        coverage = {row["success_weight"]: row["coverage"] for row in selection}
        # the smaller weight on a tie
        chosen = max(trained, key=lambda weight: (coverage.get(weight, 0.0), -weight))
        save_files(judge.store, judge.key("adapter"), trained[chosen])
        return replace(
            judge.record(trained[chosen].adapter_sha256, sft),
            candidates=spec.candidates,
            selection=tuple(selection),
            selection_rule=_RULE if selection else "",
            success_weight=chosen,
        )

    def configure(self, entry: LexicalEntry) -> LexicalSpec:
        """Return the judge of an entry."""
        found = entry.specification()
        read = found["reading"].describe()
        return LexicalSpec(
            **found, summary=f"TF-IDF and logistic regression, trained on SFT; reads {read}."
        )

    def fitted(
        self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int, success_weight: float = 1.0
    ) -> LexicalJudge:
        """Train on what is read of the labelled rows of a table."""
        using, labelled = reading.renderer, rows[rows["outcome"].notna()]
        return LexicalJudge.train(
            texts(labelled, using),
            labelled["outcome"].to_numpy(dtype=np.int8),
            success_weight=success_weight,
            seed=seed,
            renderer_sha256=using.sha256,
        )

    def made(
        self, judge: JudgedCorpus, rows: pd.DataFrame, *, run: str, report: Report
    ) -> tuple[LexicalJudge, Mapping[str, Any]]:
        """Train with the weight 1 and store the judge; there are no checkpoints."""
        model = self.fitted(rows, judge.spec.reading, seed=judge.spec.seed)
        save_files(judge.store, judge.key("adapter"), model)
        return model, {}


def _selection(judge: JudgedCorpus, trained: Mapping[float, LexicalJudge]) -> list[CandidateScore]:
    """Certified coverage of each candidate on CAL, each at the level that pays for all of them."""
    cal = judge.corpus.split("cal")
    cal = cal[cal["outcome"].notna()]
    using = judge.spec.reading.renderer
    tables = {f"w{weight:g}": score_table(model, cal, using) for weight, model in trained.items()}
    rows = certify_candidates(tables, judge.corpus.config)
    return [{**row, "success_weight": weight} for row, weight in zip(rows, trained, strict=True)]
