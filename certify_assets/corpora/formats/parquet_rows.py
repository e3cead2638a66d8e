"""Rows of Parquet files within limits: a file of kilobytes may say one long value in every row of millions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from certify_assets.corpora.formats.files import SourceFile
from certify_assets.errors import InputError

__all__ = ["parquet_rows"]

# how many times the limit of a file the values of all its rows may take
_UNPACKED_LIMITS = 8


def parquet_rows(
    file: SourceFile, columns: Sequence[str], *, batch_rows: int
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Go through the rows of a Parquet file: number of the row, and the row by column or, in words, why the rest cannot be read.

    Parameters
    ----------
    file : SourceFile
        The file; values of a batch may take its limit, those of all rows eight times that.
    columns : sequence of str
        Columns to read.
    batch_rows : int
        Most rows decoded at once.

    Raises
    ------
    InputError
        If the values are larger than that.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = unpacked = 0
    try:
        with file.open() as stream:
            table = pq.ParquetFile(stream)
            # one iterator over all groups would hold on to the bytes of every group it has read
            for group in range(table.num_row_groups):
                rows = _rows_at_once(table.metadata.row_group(group), file, batch_rows)
                for batch in table.iter_batches(
                    batch_size=rows, row_groups=[group], columns=list(columns)
                ):
                    batch = batch.cast(
                        pa.schema([(field.name, _plain(field.type)) for field in batch.schema])
                    )
                    unpacked += batch.nbytes
                    if batch.nbytes > file.limit or unpacked > _UNPACKED_LIMITS * file.limit:
                        raise _too_large(file)
                    for values in batch.to_pylist():
                        number += 1
                        yield number, values
    except (pa.ArrowException, OSError, ValueError) as error:
        yield number + 1, f"the file cannot be read from here on ({type(error).__name__})"


def _rows_at_once(group: Any, file: SourceFile, most: int) -> int:
    """Return how many rows may be decoded at once: a value that a dictionary holds once may stand in every row of a batch.

    The columns' own metadata would say more; on a damaged footer, asking for them ends the process (pyarrow 25).
    """
    return max(1, min(most, file.limit // max(1, int(group.total_byte_size))))


def _plain(kind: Any) -> Any:
    """Return a column's type without dictionaries, whose bytes say nothing of what they become."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                kind.field(place).with_type(_plain(kind.field(place).type))
                for place in range(kind.num_fields)
            ]
        )
    return kind


def _too_large(file: SourceFile) -> InputError:
    return InputError(
        f"{file.name} unpacks to far more than the limit of {file.limit:,} bytes; split it or raise the option max_file_mb."
    )
