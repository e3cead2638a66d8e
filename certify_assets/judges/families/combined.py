"""Combined judges: the mean of a lexical and a structure judge, trained on SFT in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from certify_assets.judges.combined import CombinedJudge
from certify_assets.judges.configured import WordsEntry
from certify_assets.judges.judged import FileFamily, JudgedCorpus, judge_family
from certify_assets.judges.reading import LEXICAL, JudgeInput
from certify_assets.judges.record import JudgeRecord, save_files, texts
from certify_assets.judges.specs import JudgeSpec
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd


class CombinedSpec(JudgeSpec):
    """A judge from the words and the structure of a run."""

    library = "scikitlearn"
    retrainable = True
    explained = True

    family: Literal["combined"] = "combined"
    # of the words; of the steps all are read
    reading: JudgeInput = LEXICAL


class CombinedEntry(WordsEntry):
    """A combined judge, as users write it."""

    family: Literal["combined"]


@judge_family("combined")
class CombinedFamily(FileFamily):
    """The mean of the standardised scores of a lexical and a structure judge."""

    position = 2
    kind = CombinedJudge
    entry = CombinedEntry
    judges = (
        CombinedSpec(
            name="combined",
            summary=(
                "The mean of the standardised scores of the lexical and the structure judge, both "
                "trained on the SFT split."
            ),
        ),
    )

    def train(self, judge: JudgedCorpus, *, report: Report) -> JudgeRecord:
        """Train both parts on SFT; their scales are measured on SFT tasks held out."""
        sft = judge.corpus.split("sft")
        model = train_combined(sft, judge.spec.reading, seed=judge.spec.seed)
        save_files(judge.store, judge.key("adapter"), model)
        return judge.record(model.adapter_sha256, sft)

    def configure(self, entry: CombinedEntry) -> CombinedSpec:
        """Return the judge of an entry."""
        found = entry.specification()
        read = found["reading"].describe()
        return CombinedSpec(
            **found, summary=f"The mean of a lexical and a structure judge; its words read {read}."
        )

    def retrained(self, judge: JudgedCorpus, rows: pd.DataFrame, place: str) -> CombinedJudge:
        """Train on some rows."""
        return train_combined(rows, judge.reading, seed=judge.spec.seed)


def train_combined(rows: pd.DataFrame, reading: JudgeInput, *, seed: int) -> CombinedJudge:
    """Train on the labelled rows of a table, and on what is read of their texts."""
    using, labelled = reading.renderer, rows[rows["outcome"].notna()]
    return CombinedJudge.train(
        labelled,
        texts(labelled, using),
        labelled["outcome"].to_numpy(dtype=np.int8),
        seed=seed,
        renderer_sha256=using.sha256,
    )
