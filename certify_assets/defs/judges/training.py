"""Another attempt for a training or a scoring that a device, a network or a disk stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

_RETRIES = 2
_DELAY_S = 10.0
# what comes back the same however often it is tried, though it is an OSError or a RuntimeError
_LASTING = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    RecursionError,
)


@contextmanager
def attempted(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> Iterator[None]:
    """Request another attempt where a device, a network or a disk failed.

    An op's RetryPolicy would retry a user's mistake as well, and what the user has just stopped.
    """
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, _LASTING) or context.retry_number >= _RETRIES:
            raise
        context.log.warning(
            f"attempt {context.retry_number + 1} failed ({type(error).__name__}: {error}); "
            "another one follows."
        )
        raise dg.RetryRequested(
            max_retries=_RETRIES, seconds_to_wait=_DELAY_S * 2**context.retry_number
        ) from error
