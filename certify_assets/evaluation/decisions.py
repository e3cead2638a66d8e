"""Decisions about a score table: one a row, in memory or a piece of the table at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError
from certify_assets.evaluation.pieces import ScorePieces
from certify_assets.evaluation.score_table import ScoreTable
from certify_assets.evaluation.spill import NumberFile, Ranges, Spill, temporary_room
from certify_assets.files import replacing

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

#: parts of a queue that are sorted one after the other, at most
_RANGES = 100


@dataclass(frozen=True)
class Decisions:
    """What happens to each trajectory, and the hashes of the certificates that decided."""

    # the score table's columns, decision, reason, thresholds and certificate_sha256
    frame: pd.DataFrame
    certificate_sha256: tuple[str, ...]
    # of the sides that certify something
    thresholds: tuple[float, ...]

    def count(self, decision: str) -> int:
        """Return how many trajectories got a decision."""
        return int((self.frame["decision"] == decision).sum())

    def reasons(self) -> dict[str, int]:
        """Return how many trajectories have each reason."""
        return {
            str(name): int(number)
            for name, number in self.frame["reason"].value_counts().sort_index().items()
        }

    def human(self) -> npt.NDArray[np.bool_]:
        """Say of every row whether it goes to human review."""
        return np.asarray(self.frame["decision"] == "human", dtype=bool)

    def queue(self) -> pd.DataFrame:
        """Return the rows for human review, those in the middle between the thresholds first."""
        rows = self.frame[self.human()]
        scores = rows["score"].to_numpy(dtype=np.float64)
        return rows.iloc[np.argsort(_distances(scores, self.thresholds), kind="stable")]


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate a side to a score table."""
    from certify_assets.certificates.decision import DECISIONS, REASONS, decision_codes

    sides = [certificate.side for certificate in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        raise InputError(
            f"there are {sides.count(repeated)} certificates of the {repeated} side; give one a "
            "side, of the procedure and budget to use."
        )
    codes = decision_codes(certificates, table.scores)
    hashes = tuple(certificate.sha256 for certificate in certificates)
    thresholds = {certificate.side: certificate.threshold for certificate in certificates}
    frame = table.to_frame().assign(
        decision=_named(DECISIONS, codes), reason=_named(REASONS, codes)
    )
    for side in ("reject", "release"):
        frame[f"{side}_threshold"] = np.nan if thresholds.get(side) is None else thresholds[side]
    frame["certificate_sha256"] = _named((";".join(hashes),), np.zeros_like(codes))
    return Decisions(
        frame, hashes, tuple(value for value in thresholds.values() if value is not None)
    )


@dataclass
class DecisionCounts:
    """How many trajectories have each decision and reason, and the certificates that decided."""

    decisions: Counter[str] = field(default_factory=Counter)
    why: Counter[str] = field(default_factory=Counter)
    certificate_sha256: tuple[str, ...] = ()

    def count(self, decision: str) -> int:
        """Return how many trajectories got a decision."""
        return self.decisions[decision]

    def reasons(self) -> dict[str, int]:
        """Return how many trajectories have each reason."""
        return dict(sorted(self.why.items()))

    def add(self, decided: Decisions) -> None:
        """Count the rows of a piece."""
        self.decisions.update(decided.frame["decision"].value_counts().to_dict())
        self.why.update(decided.reasons())
        self.certificate_sha256 = decided.certificate_sha256


def decide_pieces(
    certificates: Sequence[Certificate],
    source: ScorePieces,
    *,
    decisions: Path | None = None,
    queue: Path | None = None,
) -> DecisionCounts:
    """Decide a Parquet table a piece at a time, with the rows that `decide_table` has.

    Parameters
    ----------
    certificates : sequence of Certificate
        One a side.
    source : ScorePieces
    decisions, queue : Path, optional
        Where all rows, and those for human review, are written as Parquet.

    Raises
    ------
    InputError
        As for :func:`decide_table`, or where the temporary files find no room.
    ChangedInputError
        If the file changed meanwhile; then nothing is written.
    """
    counts = DecisionCounts()
    with ExitStack() as stack:
        stack.enter_context(temporary_room(source.path))
        write_all = stack.enter_context(_parquet_writer(decisions))
        write_human = stack.enter_context(_parquet_writer(queue))
        ids, human = stack.enter_context(Spill(source.parts)), stack.enter_context(NumberFile())
        for table in source.chosen(ids):
            decided = decide_table(certificates, table)
            counts.add(decided)
            write_all(decided.frame)
            scores = table.scores[decided.human()]
            human.add(_distances(scores, decided.thresholds))
        if queue is not None:
            # the columns, where there are no rows
            write_human(decided.frame.iloc[:0])
            for rows in _by_distance(certificates, source, human):
                write_human(decide_table(certificates, rows).frame)
    return counts


def _by_distance(
    certificates: Sequence[Certificate], source: ScorePieces, human: NumberFile
) -> Iterator[ScoreTable]:
    """Go through the rows for human review in the order of the queue, by a second passage."""
    ranges = Ranges.of(human, max(source.size, human.count // _RANGES))
    with Spill(ranges.parts) as spill:
        for table in source.chosen():
            decided = decide_table(certificates, table)
            rows = table.take(decided.human())
            spill.add(rows.to_arrow(), ranges.places(_distances(rows.scores, decided.thresholds)))
        for part in range(ranges.parts):
            # of one distance there may be many, and they are in the order of the file
            tied = ranges.tied(part)
            for batch in spill.batches(part) if tied else filter(None, [spill.table(part)]):
                rows = ScoreTable.from_arrow(source.path, batch)
                away = _distances(rows.scores, decided.thresholds)
                yield rows if tied else rows.take(np.argsort(away, kind="stable"))


@contextmanager
def _parquet_writer(path: Path | None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Take frames of one kind; the file has its name once all are written."""
    if path is None:
        yield lambda frame: None
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    writers: list[pq.ParquetWriter] = []
    with replacing(path) as stream:

        def write(frame: pd.DataFrame) -> None:
            schema = writers[0].schema if writers else None
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            with _named_errors(path):
                if not writers:
                    writers.append(pq.ParquetWriter(stream, table.schema))
                writers[0].write_table(table)

        try:
            yield write
            with _named_errors(path):
                for writer in writers:
                    writer.close()
                stream.flush()
        finally:
            # one that is left open complains when it is collected
            with suppress(OSError):
                for writer in writers:
                    writer.close()


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _named(names: Sequence[str], codes: npt.NDArray[np.uint8]) -> pd.api.extensions.ExtensionArray:
    """Return a column of text from codes; without a Python string a row."""
    import pandas as pd
    import pyarrow as pa

    texts = pa.array(names, type=pa.large_string()).take(pa.array(codes))
    return pd.array(texts, dtype="str")


def _distances(
    scores: npt.NDArray[np.float64], thresholds: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Distance to the middle between the thresholds; unscored rows first."""
    middle = float(np.mean(thresholds)) if thresholds else 0.0
    distance: npt.NDArray[np.float64] = np.abs(np.nan_to_num(scores - middle, nan=0.0))
    return distance
