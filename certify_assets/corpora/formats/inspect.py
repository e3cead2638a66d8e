"""Inspect AI logs: .eval (a zip with one member a sample) and .json, read by inspect-ai."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Reading,
    corpus_format,
    json_document,
    usable,
    words,
)
from certify_assets.corpora.formats.files import (
    DAMAGE,
    BrokenFileError,
    FileSet,
    ReadLimits,
    SourceFile,
)
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.texts import (
    Message,
    arguments_text,
    calls_text,
    from_first,
    is_id,
    listed,
    mapping,
    message_text,
    name_of,
    objects,
    steps_of_messages,
    text_of,
)
from certify_assets.corpora.schema import Step
from certify_assets.errors import InputError

_HEAD = 1 << 14
_STATUS = re.compile(rb'"status"\s*:\s*"(?:started|success|cancelled|error)"')
_EVAL = re.compile(rb'"eval"\s*:\s*\{')
_SAMPLE = re.compile(r"samples/(.*)_epoch_(\d{1,9})\.json", re.DOTALL)
_HEADERS = {"header.json", "_journal/start.json"}
_UNFINISHED = {
    "started": "logs of evaluations that have not ended",
    "cancelled": "logs of evaluations that were cancelled",
    "error": "logs of evaluations that failed",
}
# targets, scores' metadata, stores and events are not read
_FIELDS = set(words("id epoch uuid input choices messages output scores error invalidation"))
_UNREAD = {"events", "store", "metadata"}
# every call of the library reads the directory of the archive
_AT_ONCE = 32
# what programs leave out that write such logs themselves; it says nothing of a run
_CREATED = "1970-01-01T00:00:00+00:00"
_NO_TRACE = {"traceback": "", "traceback_ansi": ""}
_PROBLEM = 300
_SETTING = 80
# correct, partially correct, incorrect, no answer
_LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0}


@dataclass(frozen=True)
class _Log:
    """A log on disk, where the library reads it."""

    file: SourceFile
    path: Path
    reading: Reading
    library: Any

    def read(self, **options: bool) -> Any:
        """Return the log as the library reads it."""
        try:
            return self.library.read_eval_log(self.path, **options)
        except Exception as error:
            raise BrokenFileError(
                f"{self.file.name} cannot be used: {_problem_of(error)}; fetch it again."
            ) from None


def _fits(file: SourceFile) -> bool:
    if file.suffix == ".eval":
        try:
            return not _HEADERS.isdisjoint(_members(file))
        except InputError:
            return False
    head = file.head(_HEAD)
    return (
        head.lstrip().startswith(b"{") and bool(_STATUS.search(head)) and bool(_EVAL.search(head))
    )


def _explain(file: SourceFile) -> str | None:
    if file.suffix != ".eval":
        return None
    try:
        _members(file)
    except InputError as error:
        return str(error)
    return (
        f"{file.name} is a zip archive without header.json and _journal/start.json; it is no "
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
            f"{file.name} is not a whole zip archive ({said}); fetch it again, or wait for its end."
        ) from None
    limits, sizes = ReadLimits(), [member.file_size for member in members]
    if len(members) > limits.archive_members:
        raise InputError(f"{file.name} has more than {limits.archive_members:,} members; split it.")
    if max(sizes, default=0) > file.limit or sum(sizes) > max(limits.archive_bytes, file.limit):
        raise InputError(
            f"{file.name} unpacks to more than the limit of {file.limit:,} bytes a member or "
            f"{limits.archive_bytes:,} in all; raise the option max_file_mb."
        )
    return [member.filename for member in members]


@corpus_format(
    title="Inspect AI logs (.eval and .json)",
    suffixes=(".eval", ".json"),
    fits=_fits,
    explain=_explain,
    label_source="scorer of the evaluation",
    marks=_LETTERS,
    options={
        "scorer": "name of the scorer that counts, where a log has several",
        "value_key": "key of the value that counts, where a score has several",
        "agent": "agent of all runs; model and solver of the log where it is not given",
    },
)
def inspect(files: FileSet, reading: Reading) -> Drafts:
    """Read the samples of evaluation logs."""
    library = _library()
    with tempfile.TemporaryDirectory(prefix="certify-inspect-") as folder:
        for file in files:
            log = _Log(file, Path(folder) / f"log{file.suffix}", reading, library)
            try:
                yield from _read_archive(log) if file.suffix == ".eval" else _read_json(log)
            except BrokenFileError as error:
                reading.drop("file_unreadable", str(error))


def _library() -> Any:
    try:
        from inspect_ai import log
    except ImportError:
        raise InputError(
            "inspect-ai reads the logs of Inspect AI; pip install 'certify_assets[inspect]'."
        ) from None
    return log


def _read_archive(log: _Log) -> Drafts:
    names = _members(log.file)
    if _HEADERS.isdisjoint(names):
        log.reading.other(log.file, "has neither header.json nor _journal/start.json.")
        return
    with log.file.open() as stream, log.path.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
    members = sorted((match for name in names if (match := _SAMPLE.fullmatch(name))), key=_order)
    yield from _drafts(log, log.read(header_only=True), _samples(log, members))


def _order(match: re.Match[str]) -> tuple[int, int, str, int]:
    """Order samples by id, numbers before words, and epoch, not as they ended."""
    number = int(match[1]) if match[1].isdecimal() and len(match[1]) < 18 else None
    return (number is None, number or 0, match[1], int(match[2]))


def _samples(log: _Log, members: list[re.Match[str]]) -> Iterator[tuple[str, Record | str]]:
    """Read some samples at a time; one that the library refuses is a sentence."""
    options = {"resolve_attachments": True, "exclude_fields": _UNREAD}
    for start in range(0, len(members), _AT_ONCE):
        some = members[start : start + _AT_ONCE]
        keys = [(match[1], int(match[2])) for match in some]
        try:
            # one after the other: of several at once, a broken one leaves errors of asyncio behind
            read = log.library.read_eval_log_samples_by_id(log.path, keys, concurrency=1, **options)
        except Exception:
            read = [_sample(log, key, options) for key in keys]
        for match, sample in zip(some, read, strict=True):
            yield match[0], sample if isinstance(sample, str) else _record(sample)


def _sample(log: _Log, key: tuple[str, int], options: Mapping[str, Any]) -> Any:
    try:
        return log.library.read_eval_log_sample(log.path, *key, **options)
    except Exception as error:
        return _problem_of(error)


def _record(sample: Any) -> Record:
    record: Record = sample.model_dump(mode="json", include=_FIELDS, warnings="none")
    return record


def _problem_of(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:_PROBLEM]


def _read_json(log: _Log) -> Drafts:
    document = json_document(log.file, log.file.read(), log.reading)
    if document is None:
        return
    if not isinstance(document, dict) or not {"eval", "status"} <= document.keys():
        log.reading.other(log.file, "is no Inspect AI log: no JSON object with eval and status.")
        return
    mapping(document["eval"]).setdefault("created", _CREATED)
    for sample in objects(document.get("samples")):
        if isinstance(sample.get("error"), dict):
            sample["error"] = _NO_TRACE | sample["error"]
    # the library refuses a log with half a character, which models may write
    log.path.write_bytes(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    read = log.read(resolve_attachments=True)
    samples = ((f"row {row}", _record(one)) for row, one in enumerate(read.samples or [], 1))
    yield from _drafts(log, read, samples)


def _drafts(log: _Log, header: Any, samples: Iterable[tuple[str, Record | str]]) -> Drafts:
    file, reading, spec = log.file, log.reading, header.eval
    if note := _UNFINISHED.get(header.status):
        reading.notes[note] += 1
    named = " ".join(filter(None, (spec.model, spec.solver)))
    agent = str(reading.options.get("agent") or named or "unknown")
    task = spec.task or PurePosixPath(file.plain_name).stem
    variant = tuple(_setting(name, value) for name, value in sorted(spec.task_args.items()))
    # a retry of the evaluation keeps it
    parts = "\0".join((spec.task_id or spec.eval_id, task, agent, *variant))
    identity = sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    reading.sha256(file)
    row = 0
    for row, (place, found) in enumerate(samples, 1):
        where = f"{file.name} {place}"
        sample = usable(found, where, reading, _problem)
        if sample is None:
            continue
        instruction, steps = run_of_sample(sample, reading)
        scorer, outcome, missing = _score(mapping(sample.get("scores")), where, reading)
        if sample.get("error"):
            reading.drop("infrastructure_error", f"{where} ended with an error of the evaluation.")
        elif sample.get("invalidation"):
            reading.drop("invalidated", f"{where} was declared invalid by those who ran it.")
        elif missing and not reading.options.get("keep_unlabelled"):
            reading.drop("no_label", missing)
        elif not steps:
            reading.drop("no_trajectory", f"{where} has no message of the agent.")
        else:
            place = f"{sample['id']}/{sample['epoch']}"
            yield Draft(
                task_id=f"{task}/{sample['id']}",
                agent=agent,
                instruction=instruction,
                steps=steps,
                outcome=outcome,
                origin=reading.origin(file, row),
                trajectory_id=name_of(sample.get("uuid")) or f"{identity}/{place}",
                repetition=str(sample["epoch"]),
                named_agent=agent,
                variant=variant,
                outcome_name=scorer,
            )
    if not row:
        reading.drop("file_without_samples", f"{file.name} has no sample.")


def _setting(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return json.dumps(f"{name}={text}")[1:-1][:_SETTING]


def _problem(sample: Record) -> str | None:
    if not is_id(identity := sample.get("id")):
        return f"its id is {str(identity)[:40]!r}"
    if not isinstance(sample.get("epoch"), int):
        return f"its epoch is {str(sample.get('epoch'))[:40]!r}"
    return None


def run_of_sample(sample: Record, reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return what the sample asked and the steps of the run."""
    asked = _asked(sample.get("input"), sample.get("choices"))
    messages = [_message(message) for message in objects(sample.get("messages"))]
    # what came before the agent's first word repeats the input
    spoken = [*from_first(messages, "assistant", "tool")]
    if not any(message.role == "assistant" for message in spoken):
        spoken += _answer(sample.get("output"))
    return asked, steps_of_messages(spoken, reading)


def _asked(asked: Any, choices: Any) -> str:
    if isinstance(asked, list):
        asked = "\n".join(
            message_text(message.get("content"))
            for message in objects(asked)
            if message.get("role") == "user"
        )
    options = [choice for choice in listed(choices) if isinstance(choice, str)][:26]
    lettered = (f"({chr(ord('A') + number)}) {choice}" for number, choice in enumerate(options))
    return "\n".join([text_of(asked), *lettered])


def _message(record: Record) -> Message:
    content = record.get("content")
    text = "\n".join(map(_part, content)) if isinstance(content, list) else text_of(content)
    error = text_of(mapping(record.get("error")).get("message"))
    if error and error not in text:
        text = "\n".join(filter(None, [text, f"error: {error}"]))
    return Message(
        text_of(record.get("role")),
        text,
        calls_text(record.get("tool_calls")),
        str(record.get("function") or ""),
    )


def _part(part: Any) -> str:
    """Return the text of one part of a message; pictures and sealed thoughts have none."""
    kind = mapping(part).get("type")
    if kind == "reasoning":
        text = part.get("summary") if part.get("redacted") else part.get("reasoning")
    elif kind == "tool_use":
        call = f"{part.get('name')}({arguments_text(part.get('arguments'))})"
        text = f"{call}\n{message_text(part.get('result'))}"
    else:
        text = part if isinstance(part, str) else mapping(part).get("text")
    return text_of(text)


def _answer(output: Any) -> list[Message]:
    choices = listed(mapping(output).get("choices"))
    first = mapping(mapping(choices[0]).get("message")) if choices else {}
    return [_message(first)._replace(role="assistant")] if first else []


def _score(scores: Record, where: str, reading: Reading) -> tuple[str, Any, str]:
    """Return name and value of the score that counts, or what to say where it is not there."""
    scorer, key = (reading.options.get(option) for option in ("scorer", "value_key"))
    name = _only(scores, scorer, "scorer", where)
    value = mapping(scores.get(name)).get("value")
    if isinstance(value, dict):
        value = value.get(_only(value, key, "value_key", where))
    missing = f"{where} has no score of {name!r}, only of {', '.join(scores)}."
    return name, value, missing if scores and name not in scores else ""


def _only(values: Record, name: str | None, option: str, where: str) -> str:
    """Return the name that an option gives, or the only one."""
    if name is None and len(values) > 1:
        raise InputError(
            f"{where} has {len(values)} scores ({', '.join(map(str, values))}); name the one "
            f"that counts with the option {option}."
        )
    return name or next(iter(values), "outcome")
