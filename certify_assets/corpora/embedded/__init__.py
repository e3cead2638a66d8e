"""The two corpora that come with the package: runs of scripted agents on MiniWoB++ pages (see NOTICE in this folder)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certify_assets.corpora.schema import read_trajectories
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EMBEDDED", "embedded_path", "load_embedded"]

EMBEDDED = ("miniwob_mixed", "miniwob_weak")


def embedded_path(name: str) -> Path:
    """Return the Parquet file of an embedded corpus.

    Raises
    ------
    InputError
        If no corpus of that name comes with the package.
    """
    if name not in EMBEDDED:
        raise InputError(f"{name!r} does not come with the package; the embedded corpora are {', '.join(EMBEDDED)}.")
    return Path(__file__).with_name(f"{name}.parquet")


def load_embedded(name: str) -> pd.DataFrame:
    """Return the trajectories of an embedded corpus, as :func:`~certify_assets.corpora.schema.read_trajectories` gives them.

    Raises
    ------
    InputError
        If no corpus of that name comes with the package.
    """
    return read_trajectories(embedded_path(name))
