"""The record and the files of a trained judge."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, Protocol, TypedDict

import numpy as np

from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.reading import JudgeInput
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Judge


class Savable(Protocol):
    """A model that is kept as files."""

    def save(self, folder: Path) -> object:
        """Write the files into a folder."""


class CandidateScore(TypedDict):
    """Certified coverage of a candidate on CAL."""

    name: str
    success_weight: NotRequired[float]
    alpha: float
    coverage: float
    # certified as if there were no other candidate
    uncorrected: NotRequired[float]


@dataclass(frozen=True, kw_only=True)
class JudgeRecord:
    """Document of a trained judge, stored as adapter.json below the judge and the corpus."""

    SCHEMA: ClassVar[int] = 1

    judge: str
    corpus: str
    # of what was trained, or of what was registered of a server
    adapter_sha256: str
    # of the splits and the texts that it was trained on
    manifest_sha256: str
    renderer_sha256: str
    # document of what it reads of a run
    reads: Mapping[str, Any]
    seed: int
    # the level of certificates is divided by their number
    candidates: int = 1
    selection: Sequence[CandidateScore] = ()
    selection_rule: str = ""
    sft_trajectories: int = 0
    # rows that were left out without a label
    sft_unlabelled: int = 0
    sft_tasks: int = 0
    # of a lexical judge
    success_weight: float | None = None
    # what its family records beyond that, next to the other fields of the document
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as it is stored."""
        common = {name: getattr(self, name) for name in _COMMON}
        known = {name: value for name, value in common.items() if value is not None}
        return {**known, "selection": [dict(row) for row in self.selection], **self.details}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> JudgeRecord:
        """Read a stored document; refuse one that is of no judge."""
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
    def reading(self) -> JudgeInput:
        """What the judge was trained to read of a run."""
        return JudgeInput.from_dict(self.reads)

    @property
    def training_rows(self) -> int:
        """Trajectories that the last stage of the training went through."""
        return int(self.detail("training").get("rl_trajectories", self.sft_trajectories))


_COMMON = tuple(item.name for item in fields(JudgeRecord) if item.name != "details")


def texts(frame: pd.DataFrame, using: Renderer) -> list[str]:
    """Render trajectories as the judge reads them."""
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


def runs_are_tasks(table: pd.DataFrame) -> bool:
    """Whether the task of every row is the id of its run."""
    return bool((table["task_id"] == table["trajectory_id"]).all())


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
