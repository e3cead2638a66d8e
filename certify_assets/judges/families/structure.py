"""Structure judges: boosted trees on the steps of a run, trained on SFT in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from certify_assets.judges.family import FileFamily, judge_family
from certify_assets.judges.reading import WHOLE, JudgeInput
from certify_assets.judges.specs import JudgeSpec
from certify_assets.judges.structure import StructureJudge

if TYPE_CHECKING:
    import pandas as pd


class StructureSpec(JudgeSpec):
    """A judge from the structure of a run."""

    library = "scikitlearn"
    retrainable = True
    explained = True

    family: Literal["structure"] = "structure"
    # of the steps, whose features it reads
    reading: JudgeInput = WHOLE

    @property
    def everywhere(self) -> bool:
        """Every corpus gets it as half of `combined`."""
        return False


@judge_family("structure")
class StructureFamily(FileFamily):
    """Gradient boosting on features of steps, errors, repetitions and endings."""

    position = 1
    kind = StructureJudge
    judges = (
        StructureSpec(
            name="structure",
            summary=(
                "Gradient-boosted trees on steps, lengths, errors, repetitions and endings of a "
                "run, trained on the SFT split."
            ),
        ),
    )

    def fitted(self, rows: pd.DataFrame, reading: JudgeInput, *, seed: int) -> StructureJudge:
        """Train on the labelled rows of a table."""
        labelled = rows[rows["outcome"].notna()]
        return StructureJudge.train(
            labelled,
            labelled["outcome"].to_numpy(dtype=np.int8),
            seed=seed,
            renderer_sha256=reading.renderer.sha256,
        )
