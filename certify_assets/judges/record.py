"""What a trained judge is: its document, its files, and what every training reads and writes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.judges.base import Judge


class Savable(Protocol):
    """A model that is kept as files."""

    def save(self, folder: Path) -> object:
        """Write the files into a folder."""


@dataclass(frozen=True, kw_only=True)
class JudgeRecord:
    """Document of a trained judge, stored as adapter.json below the judge and the corpus.

    Parameters
    ----------
    judge, corpus : str
    adapter_sha256 : str
        Hash of what was trained, or of what was registered of a server.
    manifest_sha256, renderer_sha256 : str
        Of the splits and the texts that it was trained on.
    seed : int
    candidates : int
        Number of candidates that it was chosen among; the level of certificates is divided by it.
    selection : sequence of mapping
        Certified coverage of every candidate on CAL.
    selection_rule : str
    sft_trajectories, sft_unlabelled, sft_tasks : int
        Rows it was trained on, rows left out without a label, and tasks.
    success_weight : float, optional
        Of a lexical judge.
    details : mapping
        What its family records beyond that.
    """

    SCHEMA: ClassVar[int] = 1

    judge: str
    corpus: str
    adapter_sha256: str
    manifest_sha256: str
    renderer_sha256: str
    seed: int
    candidates: int = 1
    selection: Sequence[Mapping[str, Any]] = ()
    selection_rule: str = ""
    sft_trajectories: int = 0
    sft_unlabelled: int = 0
    sft_tasks: int = 0
    success_weight: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        document: dict[str, Any] = {
            name: getattr(self, name) for name in _COMMON if getattr(self, name) is not None
        }
        return {**document, "selection": [dict(row) for row in self.selection], **self.details}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> JudgeRecord:
        """Take a stored document.

        Raises
        ------
        IntegrityError
            If it is no document of a judge.
        """
        try:
            common = {name: document[name] for name in _COMMON if name in document}
            common["selection"] = tuple(common.get("selection", ()))
            details = {name: value for name, value in document.items() if name not in _COMMON}
            return cls(**common, details=details)
        except (TypeError, AttributeError):
            raise IntegrityError(
                "the document of a judge lacks its hashes or rows; train the judge again."
            ) from None

    def detail(self, name: str) -> Mapping[str, Any]:
        """Return one of the details that is an object; empty where the family records none."""
        found: Mapping[str, Any] = self.details.get(name, {})
        return found

    @property
    def training_rows(self) -> int:
        """Trajectories that the last stage of the training went through."""
        return int(self.detail("training").get("rl_trajectories", self.sft_trajectories))


_COMMON = tuple(item.name for item in fields(JudgeRecord) if item.name != "details")


def sft_rows(sft: pd.DataFrame) -> dict[str, Any]:
    """Return the counts of a record about the rows of SFT."""
    labelled = sft[sft["outcome"].notna()]
    return {
        "sft_trajectories": len(labelled),
        "sft_unlabelled": len(sft) - len(labelled),
        "sft_tasks": int(labelled["task_id"].nunique()),
    }


def renderer() -> Renderer:
    """Return the one renderer of the platform."""
    from certify_assets.corpora.rendering import Renderer

    return Renderer()


def texts(frame: pd.DataFrame, using: Renderer) -> list[str]:
    """Render trajectories as the judge reads them."""
    from certify_assets.corpora.rendering import render_frame

    return [item.text for item in render_frame(frame, using)]


def columns(
    table: pd.DataFrame,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return scores, outcomes and tasks of a labelled score table."""
    return (
        table["score"].to_numpy(np.float64),
        table["outcome"].to_numpy(np.int8),
        table["task_id"].to_numpy(object),
    )


def save_files(store: Store, prefix: str, model: Savable | Judge) -> str:
    """Store a model's files below a key; return the hash of them all."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder))  # type: ignore[union-attr]
        for path in sorted(Path(folder).iterdir()):
            store.write_bytes(f"{prefix}/{path.name}", path.read_bytes())
    return files_sha256(store, prefix)


def files_sha256(store: Store, prefix: str) -> str:
    """Hash the files directly below a key; empty where there are none."""
    found = {name: store.sha256(f"{prefix}/{name}") for name in store.names(prefix)}
    return sha256_bytes(canonical_json(found)) if found else ""


@contextmanager
def stored_folder(store: Store, prefix: str) -> Iterator[Path]:
    """Give a copy of the files directly below a key as a folder."""
    with tempfile.TemporaryDirectory() as folder:
        for name in store.names(prefix):
            (Path(folder) / name).write_bytes(store.read_bytes(f"{prefix}/{name}"))
        yield Path(folder)


@contextmanager
def workplace(store: Store, prefix: str) -> Iterator[Path]:
    """Give a folder for checkpoints: one that stays, where the data root is a folder."""
    if store.is_local:
        folder = store.local_path(prefix)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
