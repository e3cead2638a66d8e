"""The record of a trained judge, and the files stored with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol

import numpy as np
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads those of `typing` from 3.12 on

from certify_assets.corpora.rendering import Renderer, render_frame
from certify_assets.documents import CLOSED, Count, Document, JsonObject, Positive
from certify_assets.errors import IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.reading import JudgeInput
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Judge


class Savable(Protocol):
    """A model that can be saved as files."""

    def save(self, folder: Path) -> object:
        """Write the files into a folder."""


class CandidateScore(TypedDict):
    """Certified coverage of a candidate on CAL."""

    name: str
    success_weight: NotRequired[float]
    alpha: float
    coverage: float


class JudgeRecord(Document):
    """The record of a judge's training; further keys are those of its family."""

    model_config = ConfigDict(**{**CLOSED, "extra": "allow"}, frozen=True)

    TITLE = "record of a judge"
    SCHEMA = "certify_assets/judge/1"
    REFUSAL = IntegrityError

    judge: str
    corpus: str
    # of what was trained, or of what was registered of a server
    adapter_sha256: str
    # of the splits and the texts that it was trained on
    manifest_sha256: str
    renderer_sha256: str
    # what it was trained to read of a run
    reads: JudgeInput
    seed: int
    # specification of a judge that is not the platform's
    registered: JsonObject | None = None
    # judges that the training began with, with their adapters
    starts: dict[str, str] = Field(default_factory=dict)
    # the level of certificates is divided by their number
    candidates: Positive = 1
    selection: tuple[CandidateScore, ...] = ()
    selection_rule: str = ""
    sft_trajectories: Count = 0
    # rows that were left out without a label
    sft_unlabelled: Count = 0
    sft_tasks: Count = 0
    # of a lexical judge
    success_weight: float | None = None

    @property
    def details(self) -> JsonObject:
        """The keys that its family records besides the common fields."""
        return self.model_extra or {}

    def detail(self, name: str) -> JsonObject:
        """Return a detail that is an object; empty if the family does not record it."""
        found: JsonObject = self.details.get(name, {})
        return found

    @property
    def training_rows(self) -> int:
        """Trajectories that the last stage of the training read."""
        return int(self.detail("training").get("rl_trajectories", self.sft_trajectories))


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


def labelled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with an outcome, numbered from 0."""
    return frame[frame["outcome"].notna()].reset_index(drop=True)


def save_files(store: Store, prefix: str, model: Savable | Judge) -> str:
    """Store a model's files below a key; return their common hash."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder))  # type: ignore[union-attr]
        for path in sorted(Path(folder).iterdir()):
            store.write_bytes(f"{prefix}/{path.name}", path.read_bytes())
    return files_sha256(store, prefix)


def files_sha256(store: Store, prefix: str) -> str:
    """Hash the files directly below a key; empty without files."""
    found = {name: store.sha256(f"{prefix}/{name}") for name in store.names(prefix)}
    return sha256_bytes(canonical_json(found)) if found else ""
