"""Reads Inspect AI logs by inspect-ai's own functions; a script that is never imported."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from inspect import signature
from typing import IO, Any, TypedDict


# It is given a line of JSON a log, with no samples for a .json log, and answers in lines: its
# version once, and for every log the header, then the sample or the problem of every sample asked
# for (of all of a .json log), then the end. A header that cannot be read is a problem followed by
# the end. Targets, scores' metadata, stores and events stay here.
class Question(TypedDict):
    """A log to read, and the ids and epochs of its samples."""

    path: str
    samples: list[tuple[str, int]] | None


class Answer(TypedDict, total=False):
    """One line of what there is to say of a log."""

    version: str
    header: Any
    sample: Any
    problem: str
    too_large: int
    end: bool


_ABOUT = {"task", "model", "solver", "eval_id", "run_id", "task_id"}
_FIELDS = {
    "id",
    "epoch",
    "uuid",
    "input",
    "choices",
    "messages",
    "output",
    "scores",
    "error",
    "invalidation",
}
_UNREAD = {"events", "store", "metadata"}
_WORDS = 300
_AT_ONCE = 32


def main() -> None:
    """Answer until the questions end."""
    # what the library prints must not get between the answers
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    longest = int(sys.argv[1])
    _limit_memory(longest)
    log = importlib.import_module("inspect_ai.log")
    _say(answers, {"version": version("inspect-ai")}, longest)
    for line in sys.stdin.buffer:
        for answer in _answers(log, json.loads(line)):
            _say(answers, answer, longest)
        _say(answers, {"end": True}, longest)


def _limit_memory(longest: int) -> None:
    """A log that unpacks to more than memory ends this process with an error, not the machine."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return
    size = max(4 << 30, 16 * longest)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard)
    )


def _say(answers: IO[bytes], answer: Answer, longest: int) -> None:
    line = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(line) > longest:
        line = json.dumps({"too_large": len(line)}).encode()
    answers.write(line + b"\n")
    answers.flush()


def _answers(log: Any, question: Question) -> Iterator[Answer]:
    path, asked = question["path"], question["samples"] or []
    whole = question["samples"] is None
    try:
        read = log.read_eval_log(path, header_only=not whole, resolve_attachments=whole)
        yield {
            "header": {
                "status": read.status,
                "eval": read.eval.model_dump(mode="json", include=_ABOUT),
            }
        }
    except Exception as error:
        yield {"problem": _words(error)}
        return
    if whole:
        for sample in read.samples or []:
            yield _attempt(partial(_itself, sample))
        return
    for start in range(0, len(asked), _AT_ONCE):
        yield from _samples(log, path, asked[start : start + _AT_ONCE])


def _samples(log: Any, path: str, asked: list[tuple[str, int]]) -> Iterator[Answer]:
    """Read some samples at once, because every call reads the archive's directory."""
    several = getattr(log, "read_eval_log_samples_by_id", None)
    try:
        read = _whole(several)(path, [tuple(key) for key in asked]) if several else []
    except Exception:
        read = []
    if len(read) == len(asked):
        for sample in read:
            yield _attempt(partial(_itself, sample))
        return
    for identity, epoch in asked:
        yield _attempt(partial(_whole(log.read_eval_log_sample), path, identity, epoch))


def _whole(read: Callable[..., Any]) -> Callable[..., Any]:
    """Resolve attachments, and leave out unused fields where the library can."""
    unread = {"exclude_fields": _UNREAD} if "exclude_fields" in signature(read).parameters else {}
    return partial(read, resolve_attachments=True, **unread)


def _itself(sample: Any) -> Any:
    return sample


def _attempt(read: Callable[[], Any]) -> Answer:
    try:
        return {"sample": read().model_dump(mode="json", include=_FIELDS, warnings="none")}
    except Exception as error:
        return {"problem": _words(error)}


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:_WORDS]


if __name__ == "__main__":
    main()
