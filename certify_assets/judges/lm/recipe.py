"""How a language model is trained."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from certify_assets.errors import require_positive, require_whole

if TYPE_CHECKING:
    import pandas as pd

#: those that users write of a judge
RECIPE_SETTINGS = ("runs", "epochs", "learning_rate")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of a training; by default the paper's for four billion parameters."""

    # most runs that a training reads; None is every labelled one
    runs: int | None = None
    # of fine-tuning
    epochs: float = 1.0
    learning_rate: float = 2e-5
    # of GRPO
    grpo_learning_rate: float = 2e-6
    grpo_steps: tuple[int, ...] = (75, 150)
    # steps between checkpoints
    checkpoint_steps: int = 50

    def __post_init__(self) -> None:
        words = "the {name} of a training"
        if self.runs is not None:
            require_whole(self, words, runs=1)
        require_positive(self, words, "epochs", "learning_rate", "grpo_learning_rate")

    @property
    def pooled(self) -> Recipe:
        """The same on the SFT splits of several corpora, which are read once."""
        # an epoch of them is four of a home corpus's SFT split, and the paper's own number
        return replace(self, epochs=1.0)

    def drawn(self, rows: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return at most so many runs: one of every task, then a second of every task."""
        if self.runs is None or len(rows) <= self.runs:
            return rows

        def order(*parts: str) -> bytes:
            return hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()

        seen: dict[tuple[str, str], int] = {}
        keys = []
        runs = zip(rows["corpus"], rows["task_id"], rows["trajectory_id"], strict=True)
        shuffled = sorted(enumerate(runs), key=lambda run: order(*run[1]))
        for place, (corpus, task, _) in shuffled:
            turn = seen[corpus, task] = seen.get((corpus, task), -1) + 1
            keys.append((turn, order(corpus, task), place))
        return rows.iloc[sorted(place for *_, place in sorted(keys)[: self.runs])]
