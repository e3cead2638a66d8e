"""Runs of known outcome in reviewers' queues, which measure reviewers and decide nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.trajectory import Trajectory
from certify_assets.errors import InputError
from certify_assets.files import canonical_json
from certify_assets.operations.batches import batch_names, runs_file, stored_runs
from certify_assets.operations.labels import Label
from certify_assets.tables.agreement import Said, valid_labels
from certify_assets.tables.score_table import read_labels

#: of what a reviewer is shown
GOLD_SHARE = 0.05


@dataclass(frozen=True)
class GoldSet:
    """Runs whose outcome is known, and their share of what a reviewer is shown."""

    runs: Mapping[str, Trajectory]  # without outcomes, as those of batches are
    outcomes: Mapping[str, int]
    share: Fraction
    # of the table, which no reviewer sees: places by a name alone could be computed by its owner
    seed: str

    def is_due(self, reviewer: str, place: int) -> bool:
        """Whether a place of a reviewer's queue, from 0, is for a known run."""
        return self._place(reviewer, floor(place * self.share)) == place

    def _place(self, reviewer: str, block: int) -> int:
        # one in each block of 1 / share places: the share is kept, and where in it is hidden
        first, end = ceil(block / self.share), ceil((block + 1) / self.share)
        return first + self._draw(reviewer, str(block)) % (end - first)

    def _draw(self, reviewer: str, what: str) -> int:
        digest = hashlib.sha256(f"{self.seed}\0{reviewer}\0{what}".encode()).digest()
        return int.from_bytes(digest[:8], "big")

    def coming(self, reviewer: str, place: int, others: int, most: int) -> int:
        """Count the known runs, at most `most`, that come before the last of the other runs."""
        found, block = 0, floor(place * self.share)
        while found < most:
            at = self._place(reviewer, block)
            if at >= place:
                if at - place - found >= others:
                    break
                found += 1
            block += 1
        return found

    def order(self, reviewer: str) -> list[str]:
        """Return the known runs in the order of a reviewer."""
        return sorted(self.runs, key=lambda name: self._draw(reviewer, f"run\0{name}"))


def read_gold(
    corpus: Corpus, path: Path, share: float = GOLD_SHARE
) -> tuple[GoldSet, tuple[str, ...]]:
    """Read a table of trajectory_id and outcome, and say what was understood of it."""
    ids, given, *_, table = read_labels(path)
    outcomes: dict[str, int] = {}
    for index, (name, outcome) in enumerate(zip(ids, given.tolist(), strict=True)):
        if name in outcomes or outcome < 0:
            what = "is in the table twice" if name in outcomes else "has no outcome"
            raise InputError(
                f"{path}, {table.row(index)}: {name[:80]!r} {what}; give each run once, with its "
                "known outcome."
            )
        outcomes[name] = outcome
    found = _runs(corpus, outcomes.keys())
    for index, name in enumerate(ids):
        if name not in found:
            raise InputError(
                f"{path}, {table.row(index)}: {name[:80]!r} is neither a run of {corpus} nor of "
                "its decided batches, so there is no text to show; correct the id or take the row "
                "out."
            )
    seed = hashlib.sha256(canonical_json(outcomes)).hexdigest()
    return GoldSet(found, outcomes, Fraction(str(share)), seed), table.read_as


def _runs(corpus: Corpus, names: AbstractSet[str]) -> dict[str, Trajectory]:
    found: dict[str, Trajectory] = {}
    store, stored = corpus.store, corpus.key("trajectories.parquet")
    own = [store.as_file(stored)] if store.exists(stored) else []
    files = [*own, *(runs_file(corpus, batch) for batch in batch_names(corpus))]
    # of a run that came again, as it came last
    for file in files:
        with file as path:
            found |= stored_runs(path, names)
    return {name: replace(run, outcome=None) for name, run in found.items()}


def gold_pairs(labels: Sequence[Label]) -> list[tuple[Said, int]]:
    """Return the valid labels of known runs, each with the outcome that was known last."""
    known = {one.trajectory_id: one.known for one in labels if one.known is not None}
    return [(one, known[one.trajectory_id]) for one in valid_labels(labels)]
