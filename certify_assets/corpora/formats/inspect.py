"""Inspect AI logs: .eval (a zip with one member a sample) and .json."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    contents,
    corpus_format,
    usable,
    words,
)
from certify_assets.corpora.formats.files import BrokenFileError, SourceFile
from certify_assets.corpora.formats.inspect_reader import (
    READER_OPTION,
    EvalArchive,
    InspectProcess,
    MemberError,
    open_archive,
    open_reader,
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
from certify_assets.files import apart_from_0_and_1, unique_keys

_HEAD = 1 << 14
_STATUS = re.compile(rb'"status"\s*:\s*"(?:started|success|cancelled|error)"')
_EVAL = re.compile(rb'"eval"\s*:\s*\{')
_SAMPLE = re.compile(r"samples/(.*)_epoch_(\d{1,9})(?:\.json|/sample\.json)", re.DOTALL)
_HEADERS = ("header.json", "_journal/start.json")
_NO_OBJECT = "it is not a JSON object"
_UNFINISHED = {
    "started": "logs of evaluations that have not ended",
    "cancelled": "logs of evaluations that were cancelled",
    "error": "logs of evaluations that failed",
}
_ATTACHMENT = re.compile(r"attachment://(\w{1,64})")
_DEEPEST = 100
# references that lead to references are followed so often
_HOPS = 8
_LETTERS = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_PARTIAL = {"failure": 0.0, "success": math.inf, "drop": None}
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class _Source:
    """One file with all that it is read by: inspect-ai's reader, or None for the one here."""

    file: SourceFile
    scoring: Scoring
    reading: Reading
    reader: InspectProcess | None


@dataclass(frozen=True)
class _Log:
    file: SourceFile
    task: str
    agent: str
    identity: str
    scoring: Scoring


class _Place(NamedTuple):
    row: int
    member: str

    def of(self, log: _Log) -> str:
        return f"{log.file.name} {self.member or f'row {self.row}'}"


def _fits(file: SourceFile) -> bool:
    if file.suffix == ".eval":
        try:
            with open_archive(file) as archive:
                return any(name in archive.names() for name in _HEADERS)
        except InputError:
            return False
    head = file.head(_HEAD)
    return (
        head.lstrip().startswith(b"{") and bool(_STATUS.search(head)) and bool(_EVAL.search(head))
    )


def _explain(file: SourceFile) -> str | None:
    if file.suffix != ".eval":
        return None
    if file.size > file.limit:
        return (
            f"{file.name} has {file.size:,} bytes, the limit is {file.limit:,}; raise the option "
            "max_file_mb or name --format inspect."
        )
    try:
        with open_archive(file):
            return (
                f"{file.name} is a zip archive without header.json and _journal/start.json; it is "
                "no Inspect AI log."
            )
    except InputError as error:
        return str(error)


@corpus_format(
    title="Inspect AI logs (.eval and .json)",
    suffixes=(".eval", ".json"),
    fits=_fits,
    explain=_explain,
    label_source="scorer of the evaluation",
    options={
        "scorer": "name of the scorer that counts, where a log has several",
        "value_key": "key of the value that counts, where a score has several",
        "threshold": "least score that is a success, 1 where it is not given",
        "partial": "what P (partially correct) is: failure, success or drop; "
        "where it is not given, P is .5",
        "agent": "agent of all runs; model and solver of the log where it is not given",
        **READER_OPTION,
    },
    leak_fields=words(
        "results reductions samples[].target samples[].scores samples[].metadata "
        "samples[].store samples[].events samples[].setup samples[].files "
        "samples[].error samples[].limit summaries.json reductions.json "
        "_journal/summaries"
    ),
)
def inspect(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read the samples of evaluation logs."""
    scoring = Scoring.of(reading.options)
    with open_reader(reading.options) as reader:
        for file in files:
            log = _Source(file, scoring, reading, reader)
            if file.suffix == ".eval":
                try:
                    with open_archive(file) as archive:
                        yield from _read_archive(log, archive)
                except BrokenFileError as error:
                    reading.drop("file_unreadable", str(error))
            else:
                for _, data in contents([file], reading):
                    yield from _read_json(log, data)


def _read_archive(source: _Source, archive: EvalArchive) -> Iterator[Draft]:
    names, file, tally = archive.names(), source.file, source.reading.tally
    header = next((name for name in _HEADERS if name in names), None)
    if header is None:
        tally.other(
            file.name,
            f"{file.name} has neither header.json nor _journal/start.json; it is no Inspect "
            "AI log.",
        )
        return
    members = sorted((match for name in names if (match := _SAMPLE.fullmatch(name))), key=_order)
    records = _records(archive, header, members)
    if source.reader is not None:
        archive.require_small()
        theirs = source.reader.records(file, [(match[1], int(match[2])) for match in members])
        records = _identified(theirs, next(records))
    yield from _drafts(records, [match[0] for match in members], source, header)


def _records(
    archive: EvalArchive, header: str, members: list[re.Match[str]]
) -> Iterator[Record | str]:
    """Read a log without inspect-ai: its header first, then its samples."""
    names = archive.names()
    for name in (header, *(match[0] for match in members)):
        try:
            record = (
                _object(archive.read(name)) if name == header else _sample(archive, name, names)
            )
        except MemberError as error:
            record = str(error)
        if isinstance(record, dict) and name == _HEADERS[1]:
            record = {**record, "status": "started"}
        yield record


def _identified(records: Iterator[Record | str], written: Record | str) -> Iterator[Record | str]:
    """Give the header that inspect-ai read the eval_id that is written in the log."""
    header = next(records)
    if isinstance(header, dict) and isinstance(written, dict):
        header = {
            **header,
            "eval": {
                **mapping(header.get("eval")),
                "eval_id": mapping(written.get("eval")).get("eval_id"),
            },
        }
    yield header
    yield from records


def _drafts(
    records: Iterator[Record | str], members: Sequence[str], source: _Source, header: str
) -> Iterator[Draft]:
    file, tally, seen = source.file, source.reading.tally, 0
    try:
        document = next(records)
        if isinstance(document, str):
            tally.drop(
                "file_unreadable",
                f"{file.name} has a header ({header}) that cannot be used: {document}; fetch "
                "it again.",
            )
            return
        log = _log(source, document)
        for seen, record in enumerate(records, 1):
            yield from _draft(
                record, _Place(seen, members[seen - 1] if members else ""), log, source.reading
            )
    except BrokenFileError as error:
        tally.drop("file_ends_early" if seen else "file_unreadable", str(error))
        return
    if not seen:
        tally.drop("file_without_samples", f"{file.name} has no sample.")


def _order(match: re.Match[str]) -> tuple[int, int, str, int]:
    """Order samples by id, numbers before words, and epoch, not as they ended."""
    number = int(match[1]) if match[1].isdecimal() and len(match[1]) < 18 else None
    return (number is None, number or 0, match[1], int(match[2]))


def _sample(archive: EvalArchive, name: str, names: list[str]) -> Record | str:
    """Read a sample from its member, or from the pieces that it is stored in."""
    shell = _object(archive.read(name))
    if isinstance(shell, str) or not name.endswith("/sample.json"):
        return shell
    folder = name.removesuffix("sample.json")
    pieces = {
        kind: _pieces(archive, f"{folder}{kind}/", names) for kind in ("messages", "attachments")
    }
    spans = [span for span in listed(shell.get("message_refs")) if _is_span(span)]
    messages = [message for start, end in spans for message in pieces["messages"][start:end]]
    return {**shell, "messages": messages, "attachments": pieces["attachments"]}


def _is_span(span: Any) -> bool:
    return (
        isinstance(span, list)
        and len(span) == 2
        and all(isinstance(end, int) and end >= 0 for end in span)
    )


def _pieces(archive: EvalArchive, folder: str, names: list[str]) -> list[Any]:
    starts = sorted(
        (int(stem), name)
        for name in names
        if name.startswith(folder)
        and (stem := name[len(folder) :].removesuffix(".json")).isdecimal()
        and len(stem) < 18
    )
    joined: list[Any] = []
    for _, name in starts:
        try:
            joined += listed(json.loads(archive.read(name)))
        except (ValueError, RecursionError) as error:
            raise MemberError(f"{name} is not JSON ({error})") from None
    return joined


def _read_json(source: _Source, data: bytes) -> Iterator[Draft]:
    file, tally = source.file, source.reading.tally
    document = _object(data)
    if document == _NO_OBJECT:
        tally.other(file.name, f"{file.name} is no Inspect AI log: {document}.")
        return
    if isinstance(document, str):
        tally.drop("file_unreadable", f"{file.name} cannot be used: {document}; fetch it again.")
        return
    if "eval" not in document or "status" not in document:
        tally.other(file.name, f"{file.name} is no Inspect AI log: it lacks eval or status.")
        return
    if source.reader is not None:
        records = _identified(source.reader.records(file, None), document)
    else:
        samples = (
            sample if isinstance(sample, dict) else "it is not an object"
            for sample in listed(document.get("samples"))
        )
        records = chain([document], samples)
    yield from _drafts(records, (), source, "eval")


def _object(data: bytes) -> Record | str:
    try:
        document = json.loads(data, object_pairs_hook=unique_keys, parse_float=apart_from_0_and_1)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({str(error)[:80] or 'nested too deeply'})"
    return document if isinstance(document, dict) else _NO_OBJECT


def _log(source: _Source, document: Mapping[str, Any]) -> _Log:
    about, reading, package = (
        mapping(document.get("eval")),
        source.reading,
        source.reader and source.reader.package,
    )
    reading.notes[
        f"logs read by inspect-ai {package.version}" if package else "logs read without inspect-ai"
    ] += 1
    if note := _UNFINISHED.get(str(document.get("status"))):
        reading.notes[note] += 1
    agent = " ".join(filter(None, (text_of(about.get(key)) for key in ("model", "solver"))))
    reading.sha256(source.file)
    identity = about.get("eval_id") or f"{about.get('run_id')}/{about.get('task_id')}"
    return _Log(
        file=source.file,
        task=text_of(about.get("task")) or PurePosixPath(source.file.plain_name).stem,
        agent=str(reading.options.get("agent") or agent or "unknown"),
        identity=str(identity),
        scoring=source.scoring,
    )


def _draft(record: Record | str, place: _Place, log: _Log, reading: Reading) -> Iterator[Draft]:
    where = place.of(log)
    sample = usable(record, where, reading, _problem)
    if sample is None:
        return
    if sample.get("error"):
        reading.drop("infrastructure_error", f"{where} ended with an error of the evaluation.")
        return
    if sample.get("invalidation"):
        reading.drop("invalidated", f"{where} was declared invalid by those who ran it.")
        return
    outcome = log.scoring.outcome(sample.get("scores"), where)
    if isinstance(outcome, str):
        reading.drop("bad_outcome", f"{where} cannot be used: {outcome}.")
        return
    if (
        outcome is None
        and (words := log.scoring.misses(sample.get("scores")))
        and not reading.options.get("keep_unlabelled")
    ):
        reading.drop("no_label", f"{where} {words}.")
        return
    instruction, steps = run_of_sample(sample, reading)
    if not steps:
        reading.drop("no_trajectory", f"{where} has no message of the agent.")
        return
    if log.scoring.between(sample.get("scores")):
        reading.notes[
            "scores between 0 and 1 counted as failures; "
            "the option threshold says where success begins"
        ] += 1
    yield Draft(
        task_id=f"{log.task}/{sample['id']}",
        agent=log.agent,
        instruction=instruction,
        steps=steps,
        outcome=outcome,
        origin=reading.origin(log.file, place.row),
        trajectory_id=name_of(sample.get("uuid"))
        or f"{log.identity}/{sample['id']}/{sample['epoch']}",
        repetition=str(sample["epoch"]),
        named_agent=log.agent,
    )


def _problem(sample: Mapping[str, Any]) -> str | None:
    if not is_id(identity := sample.get("id")):
        return f"its id is {str(identity)[:40]!r}"
    if not isinstance(sample.get("epoch"), int):
        return f"its epoch is {str(sample.get('epoch'))[:40]!r}"
    return None


def resolved(value: Any, attachments: Mapping[str, Any] | Sequence[Any], depth: int = 0) -> Any:
    """Replace every text that is a reference to an attachment by the attachment."""
    if isinstance(value, str):
        return _text(value, attachments)
    if depth < _DEEPEST and isinstance(value, list):
        return [resolved(item, attachments, depth + 1) for item in value]
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {key: resolved(item, attachments, depth + 1) for key, item in value.items()}
    return value


def run_of_sample(sample: Mapping[str, Any], reading: Reading) -> tuple[str, tuple[Step, ...]]:
    """Return what the sample asked and the steps of the run."""
    attachments = sample.get("attachments")
    known = attachments if isinstance(attachments, Mapping | list) else {}
    asked = _asked(resolved(sample.get("input"), known), resolved(sample.get("choices"), known))
    messages = [_message(resolved(message, known)) for message in objects(sample.get("messages"))]
    # what came before the agent's first word repeats the input
    spoken = [*from_first(messages, "assistant", "tool")]
    if not any(message.role == "assistant" for message in spoken):
        spoken += _answer(resolved(sample.get("output"), known))
    return asked, steps_of_messages(spoken, reading)


def _text(value: str, attachments: Mapping[str, Any] | Sequence[Any]) -> str:
    for _ in range(_HOPS):
        match = _ATTACHMENT.fullmatch(value)
        if match is None:
            break
        found = _attachment(match[1], attachments)
        if not isinstance(found, str):
            break
        value = found
    return value


def _attachment(name: str, attachments: Mapping[str, Any] | Sequence[Any]) -> Any:
    if isinstance(attachments, Mapping):
        return attachments.get(name)
    return attachments[int(name)] if name.isdecimal() and int(name) < len(attachments) else None


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


def _message(record: Mapping[str, Any]) -> Message:
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


@dataclass(frozen=True)
class Scoring:
    """Which score counts, and from where on it is a success."""

    # names, None where there is only one
    scorer: str | None
    value_key: str | None
    # None for 1, with scores outside 0 to 1 refused
    threshold: float | None
    partial: str | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Scoring:
        """Read the options."""
        threshold, partial = options.get("threshold"), options.get("partial")
        if partial is not None and partial not in _PARTIAL:
            raise InputError(f"the option partial is {partial!r}; give failure, success or drop.")
        try:
            number = None if threshold is None else float(threshold)
        except (TypeError, ValueError):
            number = math.nan
        if number is not None and not math.isfinite(number):
            raise InputError(f"the option threshold is {threshold!r}; give a number.")
        return cls(options.get("scorer"), options.get("value_key"), number, partial)

    def outcome(self, scores: Any, where: str) -> int | str | None:
        """Return the outcome of a sample."""
        score = mapping(_only(mapping(scores), self.scorer, "scorer", where))
        value = score.get("value")
        if isinstance(value, Mapping):
            value = _only(value, self.value_key, "value_key", where)
        number = self._number(value)
        if isinstance(number, str) or number is None:
            return number
        if self.threshold is None and not (0 <= number <= 1 + _TOLERANCE or number == math.inf):
            return (
                f"its score {number:g} is not from 0 to 1; say by the option threshold from where "
                "on it is a success"
            )
        return int(number >= (1.0 if self.threshold is None else self.threshold) - _TOLERANCE)

    def misses(self, scores: Any) -> str | None:
        """Say which scorers a sample has instead of the one that the options name."""
        names = list(mapping(scores))
        return (
            f"has no score of {self.scorer!r}, only of {', '.join(names)}"
            if self.scorer and names and self.scorer not in names
            else None
        )

    def between(self, scores: Any) -> bool:
        """Whether no option decides what a score between failure and success is."""
        values = [mapping(score).get("value") for score in mapping(scores).values()]
        return self.threshold is None and any(
            isinstance(value, float) and 0 < value < 1 - _TOLERANCE for value in values
        )

    def _number(self, value: Any) -> float | str | None:
        if isinstance(value, str) and value.strip().lower() == "p" and self.partial:
            return _PARTIAL[self.partial]
        if isinstance(value, str):
            word = value.strip().lower()
            known = _LETTERS.get(word, _WORDS.get(word))
            try:
                value = float(word) if known is None else known
            except ValueError:
                return f"its score {value[:40]!r} is neither a number nor one of C, P, I and N"
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        return (
            float(value)
            if isinstance(value, int | float) and abs(value) < 1e300
            else f"its score is {type(value).__name__}"
        )


def _only(values: Mapping[str, Any], name: str | None, option: str, where: str) -> Any:
    """Return the value of that name, or the only one."""
    if name is not None:
        return values.get(name)
    if len(values) > 1:
        raise InputError(
            f"{where} has {len(values)} scores ({', '.join(map(str, values))}); name the one "
            f"that counts with the option {option}."
        )
    return next(iter(values.values()), None)
