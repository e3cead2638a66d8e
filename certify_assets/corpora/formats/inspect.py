"""Inspect AI logs: .eval (a zip with one member a sample) and .json, read by inspect-ai."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Judgement,
    LeftOutError,
    Origin,
    Reading,
    corpus_format,
    words,
)
from certify_assets.corpora.formats.files import (
    ARCHIVE_BYTES,
    DAMAGE,
    FILE_BYTES,
    BrokenFileError,
    FileSet,
    SourceFile,
    too_large,
)
from certify_assets.corpora.formats.messages import (
    Message,
    from_first,
    messages_of,
    steps_of_messages,
)
from certify_assets.corpora.formats.records import (
    Record,
    begins,
    document,
    hashed,
    inside,
    is_id,
    listed,
    mapping,
    named,
    objects,
)
from certify_assets.errors import InputError

_MARKS = (rb'"status"\s*:\s*"(?:started|success|cancelled|error)"', rb'"eval"\s*:\s*\{')
_SAMPLE = re.compile(r"samples/(.*)_epoch_(\d{1,9})\.json", re.DOTALL)
_HEADERS = {"header.json", "_journal/start.json"}
_UNFINISHED = {
    "started": "logs of evaluations that have not ended",
    "cancelled": "logs of evaluations that were cancelled",
    "error": "logs of evaluations that failed",
}
# targets, scores' metadata, stores and events are not read
_FIELDS = set(words("id epoch uuid input choices messages output scores error invalidation"))
_READ = {"resolve_attachments": True, "exclude_fields": {"events", "store", "metadata"}}
# every call of the library reads the directory of the archive
_AT_ONCE = 32
# what programs leave out that write such logs themselves; it says nothing of a run
_CREATED = "1970-01-01T00:00:00+00:00"
_NO_TRACE = {"traceback": "", "traceback_ansi": ""}
_PROBLEM = 300
_SETTING = 80
#: correct, partially correct, incorrect, no answer
LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0}

_Samples = Iterable[tuple[str, Record | str]]


def _fits(file: SourceFile) -> bool:
    if file.suffix != ".eval":
        return begins(file, b"{", *_MARKS)
    return _explain(file) is None


def _explain(file: SourceFile) -> str | None:
    if file.suffix != ".eval":
        return None
    try:
        if not _HEADERS.isdisjoint(_members(file)):
            return None
    except InputError as error:
        return str(error)
    return (
        f"{file.name} is a zip archive without header.json and _journal/start.json; it is not an "
        "Inspect AI log."
    )


def _members(file: SourceFile) -> list[str]:
    """Return the names of the members; refuse an archive that states sizes beyond the limits."""
    try:
        with file.open() as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
    except DAMAGE as error:
        said = str(error) or type(error).__name__
        raise BrokenFileError(
            f"{file.name} is not a complete zip archive ({said}); fetch it again, or wait until it "
            "is complete."
        ) from None
    for size, limit in (
        (max((member.file_size for member in members), default=0), FILE_BYTES),
        (sum(member.file_size for member in members), ARCHIVE_BYTES),
    ):
        if size > limit:
            raise too_large(file.name, limit)
    return [member.filename for member in members]


@corpus_format(
    title="Inspect AI logs (.eval and .json)",
    suffixes=(".eval", ".json"),
    fits=_fits,
    explain=_explain,
    label_source="scorer of the evaluation",
    marks=LETTERS,
    options={
        "scorer": "scorer that counts, where a log has several; NAME/KEY of several values",
        "agent": "agent of all runs; model and solver of the log where it is not given",
    },
)
def inspect(files: FileSet, reading: Reading) -> Drafts:
    """Read the samples of evaluation logs."""
    library = inspect_log()
    with tempfile.TemporaryDirectory(prefix="certify-inspect-") as folder:
        for file in files:
            path = Path(folder) / f"log{file.suffix}"
            read = _read_archive if file.suffix == ".eval" else _read_json
            try:
                if found := read(file, path, library):
                    yield from _drafts(file, *found, reading)
                else:
                    reading.other(file.name)
            except BrokenFileError as error:
                reading.drop("file_unreadable", str(error))


def inspect_log() -> Any:
    """Return inspect_ai.log, or refuse with the extra that brings it."""
    try:
        from inspect_ai import log
    except ImportError:
        raise InputError(
            "inspect-ai reads the logs of Inspect AI; pip install 'certify_assets[inspect]'."
        ) from None
    return log


class Naming(NamedTuple):
    """The names of a log's samples."""

    task: str
    agent: str
    variant: tuple[str, ...]
    # a retry of the evaluation keeps it
    identity: str

    def run(self, uuid: Any, sample: Any, epoch: Any) -> str:
        """Return the id of a sample's run: its uuid, or an id that is unique in the evaluation."""
        return named(uuid) or f"{self.identity}/{sample}/{epoch}"


def naming(spec: Any, stem: str, agent: str | None = None) -> Naming:
    """Return the names of a log's samples, from its header and the name of its file."""
    called = " ".join(filter(None, (spec.model, spec.solver)))
    agent = str(agent or called or "unknown")
    task = spec.task or stem
    variant = tuple(_setting(name, value) for name, value in sorted(spec.task_args.items()))
    parts = (spec.task_id or spec.eval_id, task, agent, *variant)
    return Naming(task, agent, variant, hashed("\0".join(parts)))


def _read_archive(file: SourceFile, path: Path, library: Any) -> tuple[Any, _Samples] | None:
    held = _members(file)
    if _HEADERS.isdisjoint(held):
        return None
    with file.open() as stream, path.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
    found = sorted((match for name in held if (match := _SAMPLE.fullmatch(name))), key=_order)
    return _log(file, path, library, header_only=True), _samples(path, found, library)


def _order(match: re.Match[str]) -> tuple[int, int, str, int]:
    """Order samples by id, numbers before words, and by epoch, not by their end."""
    number = int(match[1]) if match[1].isdecimal() and len(match[1]) < 18 else None
    return (number is None, number or 0, match[1], int(match[2]))


def _samples(path: Path, members: list[re.Match[str]], library: Any) -> _Samples:
    """Read some samples at a time; a sample that the library refuses is replaced by the error."""
    for start in range(0, len(members), _AT_ONCE):
        some = members[start : start + _AT_ONCE]
        keys = [(match[1], int(match[2])) for match in some]
        try:
            # one after the other: of several at once, a broken one leaves errors of asyncio behind
            read = library.read_eval_log_samples_by_id(path, keys, concurrency=1, **_READ)
        except Exception:
            read = [_sample(path, key, library) for key in keys]
        for match, sample in zip(some, read, strict=True):
            yield match[0], sample if isinstance(sample, str) else _record(sample)


def _sample(path: Path, key: tuple[str, int], library: Any) -> Any:
    try:
        return library.read_eval_log_sample(path, *key, **_READ)
    except Exception as error:
        return problem_of(error)


def _record(sample: Any) -> Record:
    record: Record = sample.model_dump(mode="json", include=_FIELDS, warnings="none")
    return record


def _log(file: SourceFile, path: Path, library: Any, **options: bool) -> Any:
    try:
        return library.read_eval_log(path, **options)
    except Exception as error:
        raise BrokenFileError(
            f"{file.name} cannot be used: {problem_of(error)}; fetch it again."
        ) from None


def problem_of(error: Exception) -> str:
    """Return the library's error about a log, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:_PROBLEM]


def _read_json(file: SourceFile, path: Path, library: Any) -> tuple[Any, _Samples] | None:
    found = document(file)
    if not isinstance(found, dict) or not {"eval", "status"} <= found.keys():
        return None
    mapping(found["eval"]).setdefault("created", _CREATED)
    for sample in objects(found.get("samples")):
        if isinstance(sample.get("error"), dict):
            sample["error"] = _NO_TRACE | sample["error"]
    # the library refuses a log with half a character, which models may write
    path.write_bytes(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    log = _log(file, path, library, resolve_attachments=True)
    samples = ((f"row {row}", _record(one)) for row, one in enumerate(log.samples or [], 1))
    return log, samples


def _setting(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return json.dumps(f"{name}={text}")[1:-1][:_SETTING]


def _drafts(file: SourceFile, log: Any, samples: _Samples, reading: Reading) -> Drafts:
    if note := _UNFINISHED.get(log.status):
        reading.notes[note] += 1
    stem = file.path.stem
    names = naming(log.eval, stem, reading.options.get("agent"))

    def draft(sample: Record, place: str) -> Draft:
        for key in ("id", "epoch"):
            if not is_id(sample.get(key)):
                raise LeftOutError(f"its {key} is {str(sample.get(key))[:40]!r}")
        # what a certificate decided is neither a judge's score nor the truth
        scores = {
            name: score
            for name, score in mapping(sample.get("scores")).items()
            if not inside(score, "metadata", "certificate_sha256")
        }
        judgements = judgements_of(scores)
        # a plain value of a scorer that gives several elsewhere is each of them, as for a failure
        part = str(reading.options.get("scorer", ""))
        said = [
            one._replace(name=part) if part.startswith(f"{one.name}/") else one
            for one in judgements
        ]
        outcome = reading.chosen(place, said, "scorer")
        if sample.get("error"):
            raise LeftOutError(
                "ended with an error of the evaluation; repeat it with inspect eval-retry",
                "infrastructure_error",
            )
        if sample.get("invalidation"):
            raise LeftOutError("was declared invalid by those who ran it", "invalidated")
        return Draft(
            task_id=f"{names.task}/{sample['id']}",
            agent=names.agent,
            instruction=_asked(sample.get("input"), sample.get("choices")),
            steps=steps_of_messages(_spoken(sample), reading),
            **outcome,
            origin=Origin(place, ""),
            trajectory_id=names.run(sample.get("uuid"), sample["id"], sample["epoch"]),
            named_agent=names.agent,
            variant=names.variant,
            judgements=judgements,
        )

    row = 0
    for row, (place, found) in enumerate(samples, 1):
        # a place in the log is more than its row to a reader
        for run in reading.runs([(f"{file.name} {place}", found)], draft):
            sample = mapping(found)
            seen = f"sample {str(sample['id'])[:_SETTING]} epoch {sample['epoch']}"
            yield replace(run, origin=reading.origin(file, row)._replace(place=seen))
    if not row:
        reading.drop("file_without_samples", f"{file.name} has no sample.")


def _spoken(sample: Record) -> list[Message]:
    """Return the messages from the agent's first one on; earlier ones repeat the input."""
    spoken = [*from_first(messages_of(sample.get("messages")), "assistant", "tool")]
    if not any(message.role == "assistant" for message in spoken):
        answers = objects(inside(sample, "output", "choices"))[:1]
        spoken += messages_of([answer.get("message") for answer in answers], "assistant")
    return spoken


def _asked(asked: Any, choices: Any) -> str:
    texts = [message.text for message in messages_of(asked) if message.role == "user"]
    options = [choice for choice in listed(choices) if isinstance(choice, str)][:26]
    lettered = (f"({chr(ord('A') + number)}) {choice}" for number, choice in enumerate(options))
    return "\n".join([*texts, *lettered])


def judgements_of(scores: Record) -> tuple[Judgement, ...]:
    """Return the values of all scorers; each of several values has its own name."""
    found = []
    for name, score in scores.items():
        value = inside(score, "value")
        values = {f"{name}/{key}": one for key, one in mapping(value).items()} or {name: value}
        found += [Judgement(key, one) for key, one in values.items()]
    return tuple(found)
