"""Judges that are trained in seconds: their files, JSON and arrays without pickle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes, write_atomic
from certify_assets.judges.base import JudgeProvenance, Scores

if TYPE_CHECKING:
    import pandas as pd

_FOLDS, _SALT = 3, 0x5F0D
_Places = NDArray[np.int64]


class Fold(NamedTuple):
    """Rows of a training table: those of most tasks, and those of the tasks held out."""

    known: _Places
    held: _Places


def task_folds(tasks: NDArray[Any], labels: NDArray[np.int64], seed: int) -> list[Fold]:
    """Deal the tasks into folds; without those whose other runs have one outcome."""
    names, code = np.unique(tasks, return_inverse=True)
    dealt = np.random.default_rng([_SALT, seed, names.size]).permutation(names.size) % _FOLDS
    held = [dealt[code] == number for number in range(min(_FOLDS, names.size))]
    folds = [Fold(np.flatnonzero(~rows), np.flatnonzero(rows)) for rows in held]
    return [fold for fold in folds if np.unique(labels[fold.known]).size == 2]


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and standard deviation of a judge's scores."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Scale:
        """Measure it; scores that are all equal keep their unit."""
        return cls(float(scores.mean()), float(scores.std()) or 1.0)

    @classmethod
    def held_out(cls, parts: Sequence[NDArray[np.float64]], fitted: NDArray[np.float64]) -> Scale:
        """Measure it on the scores of folds; where there is none, on those of the training."""
        # a judge spreads the runs that it was fitted to more than others, and a flexible one more
        # so, which would give it less weight in a mean than it deserves
        return cls.of(np.concatenate(parts) if len(parts) else fitted)

    def __call__(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardise scores."""
        return (scores - self.mean) / self.deviation


class FileJudge(ABC):
    """A judge that is its files: what they hold decides every score."""

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
    def parsed(cls, folder: Path, files: Mapping[str, bytes]) -> Self:
        """Read the judge from files whose hash was compared."""

    @abstractmethod
    def features(self, runs: pd.DataFrame, texts: Sequence[str]) -> Any:
        """Return what the judge reads of runs; ``[rows]`` is what it reads of some of them."""

    @abstractmethod
    def refitted(self, features: Any, labels: NDArray[np.int64]) -> Self:
        """Train a judge of the same settings on other runs."""

    @abstractmethod
    def decided(self, features: Any) -> Scores:
        """Judge runs whose features were computed together with those it was trained on."""

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
        """Read a judge that `save` wrote; refuse another than the expected one."""
        files = {}
        for name in cls.FILES:
            path = folder / name
            if not path.is_file():
                raise InputError(
                    f"{path} does not exist; train the judge first or check the folder."
                )
            files[name] = path.read_bytes()
        found = _hash(files)
        if found != expected_sha256:
            raise IntegrityError(
                f"{folder} holds adapter {found[:12]}, not {expected_sha256[:12]}; use the "
                "judge that was certified."
            )
        return cls.parsed(folder, files)


def _hash(files: Mapping[str, bytes]) -> str:
    """Hash files by name, as `files_sha256` does those of a stored judge."""
    return sha256_bytes(canonical_json({name: sha256_bytes(data) for name, data in files.items()}))


def damaged(path: Path, what: str) -> IntegrityError:
    """Return the error of a file that is not as a judge wrote it."""
    return IntegrityError(f"{path} {what}; train the judge again.")


def training_labels(outcomes: ArrayLike) -> NDArray[np.int64]:
    """Return the outcomes of training runs; refuse those of one kind."""
    labels = np.asarray(outcomes, dtype=np.int64)
    if np.unique(labels).size < 2:
        raise InputError(
            f"all {labels.size} training runs have one outcome; a judge needs successes and "
            "failures to learn from."
        )
    return labels
