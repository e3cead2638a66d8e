"""Finished shares of a scoring run, kept by what they depend on: a run that is killed loses at most the share it was in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic

__all__ = ["Shard", "Shards", "ids_sha256", "shard_key"]

_SCHEMA = "certify_assets/score_shard/1"


@dataclass(frozen=True, eq=False)
class Shard:
    """Scores of the prompts of a few batches.

    Parameters
    ----------
    log_probs : float64 array, shape (rows, 2)
        Log-probabilities of success and failure, in the order of the batches; NaN = unscored.
    batches : tuple of int
        Rows of each batch as it was really run, after any halving.
    out_of_memory : int
        How often memory ran out.
    """

    log_probs: NDArray[np.float64]
    batches: tuple[int, ...]
    out_of_memory: int


@dataclass(frozen=True, slots=True)
class Shards:
    """A folder of shards, or none.

    Parameters
    ----------
    folder : Path or None
        None keeps nothing.
    """

    folder: Path | None

    def read(self, key: str, rows: int) -> Shard | None:
        """Return a finished shard; None where it is absent, cut short or of another key: it is then computed again."""
        if self.folder is None or not self._path(key).is_file():
            return None
        try:
            return _shard(read_json(self._path(key)), key, rows)
        except (InputError, KeyError, TypeError, ValueError):
            return None

    def write(self, key: str, shard: Shard) -> None:
        """Keep a shard; a reader sees all of it or nothing."""
        if self.folder is None:
            return
        rows = [
            [float(value) if np.isfinite(value) else None for value in row]
            for row in shard.log_probs
        ]
        body = {
            "key": key,
            "log_probs": rows,
            "batches": list(shard.batches),
            "out_of_memory": shard.out_of_memory,
        }
        write_atomic(
            self._path(key),
            canonical_json(
                {"schema": _SCHEMA, **body, "sha256": sha256_bytes(canonical_json(body))}
            ),
        )

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.json"


def ids_sha256(ids: Sequence[int]) -> str:
    """Hash of token ids."""
    return sha256_bytes(np.asarray(ids, dtype="<i8").tobytes())


def shard_key(fingerprint: Mapping[str, Any], batches: Sequence[Sequence[str]]) -> str:
    """Name a shard by everything its numbers depend on.

    Parameters
    ----------
    fingerprint : mapping
        JSON values: model, adapter, type of the numbers, engine.
    batches : sequence of sequences of str
        Hashes of the prompts, batch by batch.
    """
    return sha256_bytes(
        canonical_json(
            {"fingerprint": dict(fingerprint), "batches": [list(batch) for batch in batches]}
        )
    )


def _shard(document: Mapping[str, Any], key: str, rows: int) -> Shard | None:
    body = {name: document[name] for name in ("key", "log_probs", "batches", "out_of_memory")}
    if (
        document["schema"] != _SCHEMA
        or document["sha256"] != sha256_bytes(canonical_json(body))
        or document["key"] != key
    ):
        return None
    values = np.array(
        [[np.nan if value is None else value for value in row] for row in document["log_probs"]],
        dtype=np.float64,
    )
    if values.shape != (rows, 2) or sum(document["batches"]) != rows:
        return None
    return Shard(values, tuple(document["batches"]), int(document["out_of_memory"]))
