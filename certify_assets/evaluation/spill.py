"""Tables larger than the memory: temporary files of rows by part, and exact order statistics.

The files have no name, so that a process that is killed leaves nothing behind. They are in the
folder that TMPDIR names.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: bits of a score that are told apart in one pass
_DIGITS = (20, 15, 15, 14)
#: order statistics that are looked for at once: each takes a table of 32,768 counts
_RANKS = 512
_CHUNK = 1 << 20
Numbers = npt.NDArray[np.float64]


@contextmanager
def temporary_room(path: Path) -> Iterator[None]:
    """Say in one sentence that the temporary files of a table found no room."""
    try:
        yield
    except OSError as error:
        # an error with a name is of the output
        if error.errno not in _FULL or error.filename:
            raise
        raise InputError(
            f"{path} needs more room for temporary files than {tempfile.gettempdir()} has "
            f"({error.strerror}), and nothing was written; free space there, or name a folder with "
            "more in TMPDIR."
        ) from None


class Spill:
    """Rows set aside by part, each part in the order in which its rows came."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self._open = ExitStack()
        self._files: dict[int, IO[bytes]] = {}
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, rows: pa.RecordBatch, parts: npt.NDArray[np.int64]) -> None:
        """Set rows aside, each in its part."""
        import pyarrow as pa

        from certify_assets.certificates import kernels

        order = kernels.group_order(parts, self.parts)
        sorted_rows, start = rows.take(pa.array(order)), 0
        for part, count in enumerate(np.bincount(parts, minlength=self.parts).tolist()):
            if count:
                self._writer(part, rows.schema).write_batch(sorted_rows.slice(start, count))
            start += count

    def _writer(self, part: int, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        import pyarrow as pa

        if part not in self._writers:
            file = tempfile.TemporaryFile()  # noqa: SIM115
            self._files[part] = self._open.enter_context(file)
            self._writers[part] = pa.ipc.new_stream(self._files[part], schema)
        return self._writers[part]

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        """Go through the rows of a part as they were added."""
        import pyarrow as pa

        if part in self._writers:
            file = self._files[part]
            self._writers[part].close()
            file.seek(0)
            yield from pa.ipc.open_stream(file)

    def table(self, part: int) -> pa.Table | None:
        """Return the rows of a part; None where it has none."""
        import pyarrow as pa

        batches = list(self.batches(part))
        return pa.Table.from_batches(batches).combine_chunks() if batches else None


class NumberFile:
    """Numbers set aside."""

    def __init__(self) -> None:
        self.count = 0
        self._open = ExitStack()
        self._file = self._open.enter_context(tempfile.TemporaryFile())  # noqa: SIM115

    def __enter__(self) -> NumberFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, numbers: Numbers) -> None:
        """Set numbers aside."""
        self._file.write(np.ascontiguousarray(numbers).view(np.uint8).data)
        self.count += numbers.size

    def chunks(self) -> Iterator[Numbers]:
        """Go through all numbers as they were added."""
        self._file.seek(0)
        while data := self._file.read(8 * _CHUNK):
            yield np.frombuffer(data, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of numbers, ascending: of one number only, or between two such, of few numbers."""

    bounds: Numbers

    @classmethod
    def of(cls, numbers: NumberFile, most: int) -> Ranges:
        """Cut so that at most so many numbers are between two bounds."""
        ranks = np.arange(most, numbers.count, most, dtype=np.int64)
        return cls(np.unique(order_statistics(numbers.chunks, ranks)))

    @property
    def parts(self) -> int:
        """Number of ranges."""
        return 2 * self.bounds.size + 1

    def tied(self, part: int) -> bool:
        """Whether a range is of one number."""
        return part % 2 == 1

    def places(self, numbers: Numbers) -> npt.NDArray[np.int64]:
        """Return the range of each number."""
        at = np.searchsorted(self.bounds, numbers).astype(np.int64)
        if not self.bounds.size:
            return at
        same: npt.NDArray[np.bool_] = self.bounds[np.minimum(at, self.bounds.size - 1)] == numbers
        return 2 * at + same


def order_statistics(
    chunks: Callable[[], Iterator[Numbers]], ranks: npt.NDArray[np.int64]
) -> Numbers:
    """Return the numbers at places of the ascending order, without sorting: a radix selection.

    There is no NaN and no negative zero among the numbers.
    """
    if ranks.size > _RANKS:
        blocks = [ranks[place : place + _RANKS] for place in range(0, ranks.size, _RANKS)]
        return np.concatenate([order_statistics(chunks, block) for block in blocks])
    found = np.zeros(ranks.size, dtype=np.uint64)
    left, seen = ranks.copy(), 0
    for bits in _DIGITS:
        prefixes, places = np.unique(found, return_inverse=True)
        size = 1 << bits
        often = np.zeros(prefixes.size * size, dtype=np.int64)
        for numbers in chunks() if ranks.size else ():
            head = _ascending_bits(numbers) >> np.uint64(64 - seen - bits)
            heads, digits = head >> np.uint64(bits), head & np.uint64(size - 1)
            at = np.minimum(np.searchsorted(prefixes, heads), prefixes.size - 1)
            inside = prefixes[at] == heads
            cells = at[inside] * size + digits[inside].astype(np.int64)
            often += np.bincount(cells, minlength=often.size)
        below = np.cumsum(often.reshape(-1, size), axis=1)
        for place, prefix in enumerate(places.tolist()):
            row = below[prefix]
            digit = int(np.searchsorted(row, left[place], side="right"))
            left[place] -= row[digit - 1] if digit else 0
            found[place] = (found[place] << np.uint64(bits)) | np.uint64(digit)
        seen += bits
    negative = found >> np.uint64(63) == 0
    return np.where(negative, ~found, found ^ _SIGN).view(np.float64)


_SIGN = np.uint64(1 << 63)


def _ascending_bits(numbers: Numbers) -> npt.NDArray[np.uint64]:
    """Whole numbers in the order of the floats."""
    bits = numbers.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)
