"""Samples that lm-evaluation-harness logs (`--log_samples`): a run a document of a task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    AGENT_OPTION,
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
)
from certify_assets.corpora.formats.files import FileSet
from certify_assets.corpora.formats.messages import value_text
from certify_assets.corpora.formats.records import (
    LINES,
    Record,
    has_fields,
    inside,
    is_id,
    listed,
    mapping,
)
from certify_assets.corpora.trajectory import Step

_FIELDS = frozenset(("doc_id", "doc", "arguments", "resps", "filtered_resps", "target"))
_OTHERS = frozenset(("filter", "metrics", "doc_hash", "prompt_hash", "target_hash"))
_NAME = re.compile(r"samples_(.+?)_\d{4}-\d{2}-\d{2}T[\d.-]+\.jsonl")
_PAIR = 2


@corpus_format(
    title="samples of lm-evaluation-harness (samples_TASK_TIME.jsonl)",
    suffixes=LINES,
    fits=lambda file: has_fields(file, _FIELDS),
    label_source="metrics of the task",
    options={**AGENT_OPTION, "label": "metric that is the outcome, where there are several"},
)
def lm_eval(files: FileSet, reading: Reading) -> Drafts:
    """Read one run a document; answers of several filters are judgements of one run."""
    # a document has a line for each filter of its answers
    judgements: dict[tuple[str, str], list[Judgement]] = {}
    samples: dict[tuple[str, str], tuple[Origin, Record]] = {}
    for origin, record in reading.records(files, lambda record: record.keys() >= _FIELDS):
        document = origin.file, str(record["doc_id"])
        samples.setdefault(document, (origin, record))
        judgements.setdefault(document, []).extend(_judgements(record))
    draft = partial(_draft, judgements=judgements, reading=reading)
    yield from reading.runs(samples.values(), draft)


def _judgements(record: Record) -> Iterator[Judgement]:
    names = listed(record.get("metrics")) or [*record.keys() - _FIELDS - _OTHERS]
    used = record.get("filter", "none")
    for name in sorted(map(str, names)):
        if isinstance(value := record.get(name), bool | int | float):
            yield Judgement(name if used == "none" else f"{name} ({used})", value, "code")


def _draft(
    record: Record,
    origin: Origin,
    *,
    judgements: Mapping[tuple[str, str], list[Judgement]],
    reading: Reading,
) -> Draft:
    if not is_id(record["doc_id"]):
        raise LeftOutError("its doc_id is no id")
    path = PurePosixPath(origin.file.removesuffix(".gz"))
    match = _NAME.fullmatch(path.name)
    task = match[1] if match else path.stem
    agent = reading.agent_in_name(origin.file, path.parent.name or "unknown", of="folder")
    said = judgements[origin.file, str(record["doc_id"])]
    arguments = _arguments(record["arguments"])
    answer = _answer(record, arguments)
    return Draft(
        task_id=f"{task}/{record['doc_id']}",
        agent=agent,
        instruction=value_text(arguments[0][0]) if arguments and arguments[0] else "",
        steps=(Step(answer, ""),) if answer else (),
        origin=origin,
        repetition=str(origin.row),
        judgements=tuple(said),
        **reading.chosen(origin, said),
    )


def _arguments(given: Any) -> list[list[Any]]:
    """Return prompts with their options or continuations; former versions list them."""
    if isinstance(given, dict):
        return [[*mapping(one).values()] for one in given.values()]
    return [one if isinstance(one, list) else [one] for one in listed(given)]


def _answer(record: Record, arguments: list[list[Any]]) -> str:
    """Return the answer: generated text, or the likeliest of the continuations."""
    answers = listed(record["filtered_resps"])
    if len(answers) == len(arguments) and all(len(one) == _PAIR for one in arguments):
        logs = [_number(one) for one in answers]
        if logs and None not in logs:
            best = max(range(len(logs)), key=lambda place: logs[place] or 0.0)
            return str(arguments[best][1])
    first = answers[0] if answers else inside(record, "resps")
    return value_text(first)


def _number(answer: Any) -> float | None:
    first = listed(answer)[:1]
    try:
        return float(first[0]) if first else None
    except (TypeError, ValueError, OverflowError):
        return None
