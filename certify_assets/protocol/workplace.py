"""Where a training keeps its checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certify_assets.protocol.store import Store

__all__ = ["workplace"]


@contextmanager
def workplace(store: Store, corpus: str, judge: str, name: str = "training") -> Iterator[Path]:
    """Give a folder for checkpoints: one that stays, where the data root is a folder."""
    if store.is_local:
        folder = store.local_path(f"judges/{judge}/{corpus}/{name}")
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
