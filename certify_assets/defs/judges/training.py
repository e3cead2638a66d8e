"""Training and scoring ops: their retries, adapters, and progress in the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import dagster as dg

from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm import lineage
from certify_assets.judges.record import JudgeRecord
from certify_assets.storage.progress import ProgressLines

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


class Kept(TypedDict, total=False):
    """What MLflow keeps of an adapter."""

    files: dict[Path, str]
    curves: dict[str, list[tuple[int, float]]]


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


@contextmanager
def adapter_artifacts(judge: JudgedCorpus, record: JudgeRecord) -> Iterator[Kept]:
    """Give the weights and the loss of a language model's adapter; nothing for others."""
    if not judge.spec.uses_language_model:
        yield {}
        return
    with judge.sibling(judge.spec.name).artifact_files() as folder:
        yield {
            "files": lineage.adapter_files(folder),
            "curves": lineage.adapter_curves(record),
        }


def progress_lines(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> ProgressLines:
    """Return what turns the reports of a step into lines of its log."""
    return ProgressLines(context.log.info, time.monotonic)
