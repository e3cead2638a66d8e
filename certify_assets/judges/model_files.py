"""Judges that are trained in seconds: their files, JSON and arrays without pickle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.documents import Document
from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes, write_atomic
from certify_assets.judges.base import JudgeProvenance, KnowingJudge


class Fold(NamedTuple):
    """Places of training rows: of most tasks, and of the tasks held out."""

    known: NDArray[np.int64]
    held: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class KnownRuns:
    """The features of a corpus's runs for judges of one kind, computed once for all."""

    # row of a run, by its id
    rows: Mapping[str, int]
    # ``features[rows]`` is what is read of some runs
    features: Any

    @classmethod
    def named(cls, names: Iterable[str], features: Any) -> Self:
        """Return features of runs by the ids of the runs."""
        return cls({name: row for row, name in enumerate(names)}, features)

    def of(self, names: Iterable[str]) -> Any:
        """Return the features of runs of the corpus, by their ids."""
        return self.features[np.array([self.rows[name] for name in names], int)]


@runtime_checkable
class Refittable(KnowingJudge, Protocol):
    """A judge whose features can train judges on any of the runs."""

    def refitted(self, features: Any, labels: NDArray[np.int64]) -> Self:
        """Train a judge with the same settings on other runs."""


class FileJudge(ABC):
    """A judge that consists of files; their content decides every score."""

    FILES: ClassVar[tuple[str, ...]]
    ENGINE: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the judge."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Return the files of the judge by name, in the order of `FILES`."""

    @classmethod
    @abstractmethod
    def parsed(cls, files: Mapping[str, bytes]) -> Self:
        """Read the judge from files whose hash has been checked."""

    def made(self, renderer_sha256: str, settings: Mapping[str, Any]) -> JudgeProvenance:
        """Return the provenance of a judge with these settings."""
        return JudgeProvenance(
            judge=self.name,
            adapter_sha256=self.adapter_sha256,
            renderer_sha256=renderer_sha256,
            engine=self.ENGINE,
            dtype="float64",
            settings=settings,
        )

    @cached_property
    def adapter_sha256(self) -> str:
        """Hash of the files that `save` writes."""
        return _hash(self.files())

    def save(self, folder: Path) -> str:
        """Write the files in their order; return the adapter hash."""
        for name, data in self.files().items():
            write_atomic(folder / name, data)
        return self.adapter_sha256

    @classmethod
    def load(cls, folder: Path, *, expected_sha256: str) -> Self:
        """Read a judge that `save` wrote; refuse any but the expected one."""
        files = {name: (folder / name).read_bytes() for name in cls.FILES}
        found = _hash(files)
        if found != expected_sha256:
            raise IntegrityError(
                f"{folder} holds adapter {found[:12]}, not {expected_sha256[:12]}; use the "
                "judge that was certified."
            )
        return cls.parsed(files)


@dataclass(frozen=True, eq=False)
class ArrayJudge(FileJudge):
    """A judge of some arrays and one document; `FILES` names their files in this order."""

    ABOUT: ClassVar[type[Document]]

    about: Any
    arrays: Mapping[str, NDArray[Any]]

    def files(self) -> dict[str, bytes]:
        """Return the file of the arrays and that of the document."""
        from safetensors.numpy import save

        return dict(zip(self.FILES, (save(dict(self.arrays)), self.about.to_json()), strict=True))

    @classmethod
    def parsed(cls, files: Mapping[str, bytes]) -> Self:
        """Read the judge from its files."""
        from safetensors.numpy import load

        arrays, about = (files[name] for name in cls.FILES)
        return cls(cls.ABOUT.from_json(about), load(arrays))


def _hash(files: Mapping[str, bytes]) -> str:
    """Hash files by name, as `files_sha256` does those of a stored judge."""
    return sha256_bytes(canonical_json({name: sha256_bytes(data) for name, data in files.items()}))


def training_labels(outcomes: ArrayLike) -> NDArray[np.int64]:
    """Return the outcomes of training runs; refuse runs with one outcome only."""
    labels = np.asarray(outcomes, dtype=np.int64)
    if np.unique(labels).size < 2:
        raise InputError(
            f"all {labels.size} training runs have one outcome; a judge needs successes and "
            "failures to learn from."
        )
    return labels
