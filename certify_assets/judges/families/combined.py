"""Combined judges: the mean of a lexical and a structure judge, trained on SFT in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from certify_assets.judges.combined import CombinedJudge
from certify_assets.judges.configured import WordsEntry
from certify_assets.judges.family import FileFamily, judge_family
from certify_assets.judges.reading import LEXICAL, JudgeInput
from certify_assets.judges.record import texts
from certify_assets.judges.specs import JudgeSpec

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

    def configure(self, entry: CombinedEntry) -> CombinedSpec:
        """Return the judge of an entry."""
        found = entry.specification()
        read = found["reading"].describe()
        return CombinedSpec(
            **found, summary=f"The mean of a lexical and a structure judge; its words read {read}."
        )

    def fitted(self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int) -> CombinedJudge:
        """Train both parts; their scales are measured on tasks held out."""
        using, labelled = reading.renderer, rows[rows["outcome"].notna()]
        return CombinedJudge.train(
            labelled,
            texts(labelled, using),
            labelled["outcome"].to_numpy(dtype=np.int8),
            seed=seed,
            renderer_sha256=using.sha256,
        )
