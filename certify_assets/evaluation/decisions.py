"""Decisions about a score table: one a row, in memory or a piece of the table at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    table: ScoreTable
    # of every row, as `decision_codes` has them
    codes: npt.NDArray[np.uint8]
    certificate_sha256: tuple[str, ...]
    # a side's, None where it certifies nothing
    sides: Mapping[str, float | None]

    @cached_property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds of the sides that certify something."""
        return tuple(value for value in self.sides.values() if value is not None)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The score table's columns, decision, reason, thresholds and certificate_sha256."""
        import pandas as pd

        return pd.DataFrame(self._columns(_arrow_texts))

    def columns(self, places: npt.NDArray[np.int64] | slice) -> dict[str, npt.NDArray[Any]]:
        """Return rows of the frame as plain columns, which need no pandas."""
        return {name: values[places] for name, values in self._columns(_texts).items()}

    def _columns(self, texts: Callable[..., Any]) -> dict[str, Any]:
        from certify_assets.certificates.decision import DECISIONS, REASONS

        thresholds = {
            f"{side}_threshold": np.full(
                self.codes.size, np.nan if self.sides.get(side) is None else self.sides[side]
            )
            for side in ("reject", "release")
        }
        return {
            **self.table.columns(),
            "decision": texts(DECISIONS, self.codes),
            "reason": texts(REASONS, self.codes),
            **thresholds,
            "certificate_sha256": texts(
                (";".join(self.certificate_sha256),), np.zeros_like(self.codes)
            ),
        }

    def count(self, decision: str) -> int:
        """Return how many trajectories got a decision."""
        return int(np.count_nonzero(self._is(decision)))

    def reasons(self) -> dict[str, int]:
        """Return how many trajectories have each reason."""
        from certify_assets.certificates.decision import REASONS

        numbers = np.bincount(self.codes, minlength=len(REASONS)).tolist()
        return {
            name: number for name, number in sorted(zip(REASONS, numbers, strict=True)) if number
        }

    def human(self) -> npt.NDArray[np.bool_]:
        """Say of every row whether it goes to human review."""
        return self._is("human")

    def _is(self, decision: str) -> npt.NDArray[np.bool_]:
        from certify_assets.certificates.decision import DECISIONS

        return np.array([name == decision for name in DECISIONS])[self.codes]

    def queue(self) -> npt.NDArray[np.int64]:
        """Return the places of the rows for human review, the middle between thresholds first."""
        places = np.flatnonzero(self.human())
        away = _distances(self.table.scores[places], self.thresholds)
        return places[np.argsort(away, kind="stable")]


def decide_table(certificates: Sequence[Certificate], table: ScoreTable) -> Decisions:
    """Apply one certificate a side to a score table."""
    from certify_assets.certificates.decision import decision_codes

    sides = [certificate.side for certificate in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        raise InputError(
            f"there are {sides.count(repeated)} certificates of the {repeated} side; give one a "
            "side, of the procedure and budget to use."
        )
    return Decisions(
        table,
        decision_codes(certificates, table.scores),
        tuple(certificate.sha256 for certificate in certificates),
        {certificate.side: certificate.threshold for certificate in certificates},
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
        self.decisions.update(
            {name: decided.count(name) for name in ("reject", "release", "human")}
        )
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


def _texts(names: Sequence[str], codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.object_]:
    texts: npt.NDArray[np.object_] = np.array(names, dtype=object)[codes]
    return texts


def _arrow_texts(
    names: Sequence[str], codes: npt.NDArray[np.uint8]
) -> pd.api.extensions.ExtensionArray:
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
