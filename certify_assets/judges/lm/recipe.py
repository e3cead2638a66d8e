"""How a language model is trained."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

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

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as in documents."""
        return asdict(self)

    @property
    def pooled(self) -> Recipe:
        """The same settings for SFT splits of several corpora, which are read once."""
        # an epoch of them is four of a home corpus's SFT split, and the paper's own number
        return replace(self, epochs=1.0)

    def drawn(self, rows: pd.DataFrame, seed: int) -> pd.DataFrame:
        """Return at most `runs` rows: one of every task, then a second of every task."""
        return rows if self.runs is None else draw_in_turn(rows, self.runs, seed)


def place_of(seed: int, *parts: str) -> bytes:
    """Return the sort key of names in a draw: SHA-256 of the seed and the names."""
    return hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()


def draw_in_turn(rows: pd.DataFrame, number: int, seed: int) -> pd.DataFrame:
    """Return at most `number` rows: one of every task, then a second of every task."""
    if len(rows) <= number:
        return rows
    seen: dict[tuple[str, str], int] = {}
    keys = []
    runs = zip(rows["corpus"], rows["task_id"], rows["trajectory_id"], strict=True)
    shuffled = sorted(enumerate(runs), key=lambda run: place_of(seed, *run[1]))
    for place, (corpus, task, _) in shuffled:
        turn = seen[corpus, task] = seen.get((corpus, task), -1) + 1
        keys.append((turn, place_of(seed, corpus, task), place))
    return rows.iloc[sorted(place for *_, place in sorted(keys)[:number])]
