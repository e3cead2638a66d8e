"""An Inspect AI hook that writes finished samples to an inbox; off until CERTIFY_INBOX names it.

inspect-ai loads this module by the entry point of its name, in the environment of the evaluation:
nothing but the standard library and inspect-ai is imported, so the package may be installed there
without its requirements.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from inspect_ai.hooks import Hooks, hooks

# the same entry point registers the scorer
from certify_assets import inspect_scorer as _scorer  # noqa: F401
from certify_assets.errors import InputError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    from inspect_ai.hooks import RunEnd, SampleEnd, TaskEnd, TaskStart
    from inspect_ai.log import EvalSample, EvalSpec

INBOX = "CERTIFY_INBOX"
# What the format `inspect` reads, and what inspect-ai requires of a log. Targets, metadata,
# stores and events stay in the evaluation's log: a judge must not see them.
_ABOUT = {"created", "eval_id", "run_id", "task", "task_id", "task_args", "model", "solver"}
_SAMPLE = {
    "id",
    "epoch",
    "uuid",
    "input",
    "choices",
    "messages",
    "output",
    "scores",
    "attachments",
    "error",
    "limit",
    "invalidation",
}
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
_NAME = 60
_logger = getLogger(__name__)


@hooks("inbox", f"writes finished samples to {INBOX}, to be decided by `certify ops ingest`")
class Inbox(Hooks):  # type: ignore[misc]
    """Writes every finished sample as one log of the format that `certify` reads."""

    def __init__(self) -> None:
        self._specs: dict[str, EvalSpec] = {}
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def enabled(self) -> bool:
        """Whether the variable names a folder."""
        return bool(os.environ.get(INBOX))

    async def on_task_start(self, data: TaskStart) -> None:
        """Remember what the samples of a task are of."""
        self._specs[data.eval_id] = data.spec

    async def on_task_end(self, data: TaskEnd) -> None:
        """Forget the task."""
        self._specs.pop(data.eval_id, None)

    async def on_sample_end(self, data: SampleEnd) -> None:
        """Write the sample; what fails is one warning a run, never the evaluation's end."""
        counts = self._counts[data.run_id]
        # without an await from here on, so that samples that end together do not mix
        try:
            written = write_sample(
                _folder(), self._specs[data.eval_id], data.sample, identity=data.sample_id
            )
            counts["written" if written else "there"] += 1
        except Exception as error:
            if not counts["failed"]:
                _logger.warning(
                    f"certify_assets: sample {data.sample.id!r} was not written to the inbox "
                    f"({error or type(error).__name__}). The evaluation continues; you can import "
                    "its log with --format inspect."
                )
            counts["failed"] += 1

    async def on_run_end(self, data: RunEnd) -> None:
        """Log what became of the samples."""
        counts = self._counts.pop(data.run_id, None)
        if counts:
            _logger.info(
                f"certify_assets: {counts['written']:,} samples written to "
                f"{os.environ.get(INBOX)}, {counts['there']:,} were there before, "
                f"{counts['failed']:,} failed."
            )


def write_sample(folder: Path, spec: EvalSpec, sample: EvalSample, *, identity: str) -> bool:
    """Write one sample as a log of its own; False where the same bytes are there already."""
    log = {
        "version": 2,
        # of this log, which holds one finished sample; the evaluation may still be running
        "status": "success",
        "eval": {
            **spec.model_dump(mode="json", include=_ABOUT, warnings="none"),
            "dataset": {},
            "config": {},
        },
        "samples": [
            {**sample.model_dump(mode="json", include=_SAMPLE, warnings="none"), "target": ""}
        ],
    }
    # ASCII keeps lone surrogates, which no file in UTF-8 could hold
    data = json.dumps(log, sort_keys=True).encode("ascii")
    parts = (spec.task, str(sample.id), str(sample.epoch), identity)
    path = folder / (
        "_".join(_UNSAFE.sub("-", part)[:_NAME] for part in parts).lstrip(".") + ".json"
    )
    if path.is_file() and path.read_bytes() == data:
        return False
    write_atomic(path, data)
    return True


def _folder() -> Path:
    """Return the inbox; its parent must be there, so that a mistyped name is not made."""
    named = os.environ[INBOX]
    if "://" in named:
        raise InputError(
            f"{INBOX} is {named}. Name a folder, and copy its files to the data root's inbox"
        )
    folder = Path(named).expanduser()
    if not folder.parent.is_dir():
        raise InputError(f"{INBOX} is {named}, but {folder.parent} is not a folder. Make it first")
    return folder
