"""The two corpora that come with the package: scripted agents on MiniWoB++ pages (see NOTICE)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.corpora.schema import read_trajectories
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


EMBEDDED = ("miniwob_mixed", "miniwob_weak")
# SFT's tasks at seed 42 of the profile "certify": the compact model is pretrained on their runs, so
# they are SFT's at every seed
# fmt: off
PRETRAINING_TASKS: tuple[str, ...] = (
    "circle-center", "click-checkboxes-large", "click-checkboxes-transfer", "click-color",
    "click-test", "click-test-transfer", "copy-paste-2", "count-shape", "drag-box", "drag-cube",
    "draw-line", "email-inbox", "email-inbox-delete", "email-inbox-important", "email-inbox-reply",
    "enter-text", "focus-text", "guess-number", "highlight-text-2", "hot-cold", "login-user",
    "odd-or-even", "phone-book", "resize-textarea", "right-angle", "scroll-text-2",
    "sign-agreement", "social-media", "stock-market", "tic-tac-toe", "use-autocomplete",
)
# fmt: on


def embedded_path(name: str) -> Path:
    """Return the Parquet file of an embedded corpus."""
    if name not in EMBEDDED:
        raise InputError(
            f"{name!r} does not come with the package; the embedded corpora are "
            f"{', '.join(EMBEDDED)}."
        )
    return Path(__file__).with_name(f"{name}.parquet")


def load_embedded(name: str) -> pd.DataFrame:
    """Return the trajectories of an embedded corpus."""
    return read_trajectories(embedded_path(name))


def pretraining_tasks(corpus: str) -> tuple[str, ...]:
    """Return the tasks of a corpus that the compact model was pretrained on."""
    return PRETRAINING_TASKS if corpus in EMBEDDED else ()
