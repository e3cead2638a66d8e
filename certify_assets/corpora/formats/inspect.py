"""Inspect AI logs: .eval (a zip with one member a sample) and .json.

A sample is a task, an epoch an attempt, model and solver are the agent. Logs of evaluations that failed or still run are read as far as
their samples were scored. They are read by inspect-ai where it is installed and without it elsewhere, zstd members included; what becomes of
a sample is decided here in both cases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import Adapter, Draft, Files, Reading, contents
from certify_assets.corpora.formats.eval_archive import EvalArchive, MemberError, open_archive
from certify_assets.corpora.formats.files import BrokenFileError, SourceFile
from certify_assets.corpora.formats.inspect_reader import READER_OPTION, InspectProcess, open_reader
from certify_assets.corpora.formats.inspect_samples import run_of_sample
from certify_assets.corpora.formats.inspect_scores import OPTIONS, Scoring
from certify_assets.corpora.formats.messages import mapping
from certify_assets.errors import InputError

__all__ = ["INSPECT"]

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


@dataclass(frozen=True)
class _Source:
    """One file with all that it is read by: inspect-ai's reader, or None for the one here."""

    file: SourceFile
    scoring: Scoring
    reading: Reading
    reader: InspectProcess | None


@dataclass(frozen=True)
class _Log:
    """What all samples of a log share."""

    file: SourceFile
    sha256: str
    task: str
    agent: str
    identity: str
    scoring: Scoring


class _Place(NamedTuple):
    """Where a sample stands in its log."""

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
        return f"{file.name} has {file.size:,} bytes, the limit is {file.limit:,}; raise the option max_file_mb or name --format inspect."
    try:
        with open_archive(file):
            return f"{file.name} is a zip archive without header.json and _journal/start.json; it is no Inspect AI log."
    except InputError as error:
        return str(error)


def _read(files: Files, reading: Reading) -> Iterator[Draft]:
    scoring = Scoring.of(reading.options)
    with open_reader(reading.options) as reader:
        for file in files:
            log = _Source(file, scoring, reading, reader)
            if file.suffix == ".eval":
                try:
                    with open_archive(file) as archive:
                        yield from _read_archive(log, archive)
                except BrokenFileError as error:
                    reading.tally.drop("file_unreadable", str(error))
            else:
                for _, data in contents([file], reading):
                    yield from _read_json(log, data)


def _read_archive(source: _Source, archive: EvalArchive) -> Iterator[Draft]:
    names, file, tally = archive.names(), source.file, source.reading.tally
    header = next((name for name in _HEADERS if name in names), None)
    if header is None:
        tally.other(
            file.name,
            f"{file.name} has neither header.json nor _journal/start.json; it is no Inspect AI log.",
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
) -> Iterator[dict[str, Any] | str]:
    """Read a log without inspect-ai: its header first, then its samples; words stand for what cannot be read."""
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


def _identified(
    records: Iterator[dict[str, Any] | str], written: dict[str, Any] | str
) -> Iterator[dict[str, Any] | str]:
    """Give the header that inspect-ai read the eval_id that is written in the log: it makes one up where there is none."""
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
    records: Iterator[dict[str, Any] | str], members: Sequence[str], source: _Source, header: str
) -> Iterator[Draft]:
    """Turn the header and samples of a log into drafts, whoever read them; a reader that gives up has read what came before."""
    file, tally, seen = source.file, source.reading.tally, 0
    try:
        document = next(records)
        if isinstance(document, str):
            tally.drop(
                "file_unreadable",
                f"{file.name} has a header ({header}) that cannot be used: {document}; fetch it again.",
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
    """Order samples by id, numbers before words, and epoch: the archive holds them as they ended."""
    number = int(match[1]) if match[1].isdecimal() and len(match[1]) < 18 else None
    return (number is None, number or 0, match[1], int(match[2]))


def _sample(archive: EvalArchive, name: str, names: list[str]) -> dict[str, Any] | str:
    """Read a sample from its member, or where it is stored in pieces, from those that hold its messages and attachments."""
    shell = _object(archive.read(name))
    if isinstance(shell, str) or not name.endswith("/sample.json"):
        return shell
    folder = name.removesuffix("sample.json")
    pieces = {
        kind: _pieces(archive, f"{folder}{kind}/", names) for kind in ("messages", "attachments")
    }
    spans = shell.get("message_refs")
    pairs = [span for span in spans if _is_span(span)] if isinstance(spans, list) else []
    messages = [message for start, end in pairs for message in pieces["messages"][start:end]]
    return {**shell, "messages": messages, "attachments": pieces["attachments"]}


def _is_span(span: Any) -> bool:
    return (
        isinstance(span, list)
        and len(span) == 2
        and all(isinstance(end, int) and end >= 0 for end in span)
    )


def _pieces(archive: EvalArchive, folder: str, names: list[str]) -> list[Any]:
    """Join the lists that are stored under the number of their first item."""
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
            part = json.loads(archive.read(name))
        except (ValueError, RecursionError) as error:
            raise MemberError(f"{name} is not JSON ({error})") from None
        joined += part if isinstance(part, list) else []
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
        listed = document.get("samples")
        samples = listed if isinstance(listed, list) else []
        records = iter(
            [
                document,
                *(
                    sample if isinstance(sample, dict) else "it is not an object"
                    for sample in samples
                ),
            ]
        )
    yield from _drafts(records, (), source, "eval")


def _object(data: bytes) -> dict[str, Any] | str:
    """Parse a JSON object, or say what is wrong with it."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({str(error)[:80] or 'nested too deeply'})"
    return document if isinstance(document, dict) else _NO_OBJECT


def _log(source: _Source, document: Mapping[str, Any]) -> _Log:
    about, reading, package = (
        mapping(document.get("eval")),
        source.reading,
        source.reader and source.reader.package,
    )
    reading.tally.notes[
        f"logs read by inspect-ai {package.version}" if package else "logs read without inspect-ai"
    ] += 1
    if note := _UNFINISHED.get(str(document.get("status"))):
        reading.tally.notes[note] += 1
    task, model = about.get("task"), about.get("model")
    names = [model, about.get("solver"), reading.options.get("agent")]
    agent = " ".join(name for name in names[:2] if isinstance(name, str) and name)
    identity = about.get("eval_id") or f"{about.get('run_id')}/{about.get('task_id')}"
    return _Log(
        file=source.file,
        sha256=reading.sha256(source.file),
        task=task if isinstance(task, str) and task else PurePosixPath(source.file.plain_name).stem,
        agent=str(names[2] or agent or "unknown"),
        identity=str(identity),
        scoring=source.scoring,
    )


def _draft(
    sample: dict[str, Any] | str, place: _Place, log: _Log, reading: Reading
) -> Iterator[Draft]:
    where = place.of(log)
    problem = sample if isinstance(sample, str) else _problem(sample)
    if problem or isinstance(sample, str):
        reading.tally.drop("unreadable_record", f"{where} cannot be used: {problem}.")
        return
    if sample.get("error"):
        reading.tally.drop(
            "infrastructure_error", f"{where} ended with an error of the evaluation."
        )
        return
    if sample.get("invalidation"):
        reading.tally.drop("invalidated", f"{where} was declared invalid by those who ran it.")
        return
    outcome = log.scoring.outcome(sample.get("scores"), where)
    if isinstance(outcome, str):
        reading.tally.drop("bad_outcome", f"{where} cannot be used: {outcome}.")
        return
    if (
        outcome is None
        and (words := log.scoring.misses(sample.get("scores")))
        and not reading.options.get("keep_unlabelled")
    ):
        reading.tally.drop("no_label", f"{where} {words}.")
        return
    instruction, steps = run_of_sample(sample, reading)
    if not steps:
        reading.tally.drop("no_trajectory", f"{where} has no message of the agent.")
        return
    if log.scoring.between(sample.get("scores")):
        reading.tally.notes[
            "scores between 0 and 1 counted as failures; the option threshold says where success begins"
        ] += 1
    epoch, uuid = sample.get("epoch"), sample.get("uuid")
    yield Draft(
        task_id=f"{log.task}/{sample['id']}",
        agent=log.agent,
        instruction=instruction,
        steps=steps,
        outcome=outcome,
        source_file=log.file.name,
        source_sha256=log.sha256,
        row=place.row,
        trajectory_id=uuid
        if isinstance(uuid, str) and uuid.strip()
        else f"{log.identity}/{sample['id']}/{epoch}",
        repetition=str(epoch),
        named_agent=log.agent,
    )


def _problem(sample: Mapping[str, Any]) -> str | None:
    identity = sample.get("id")
    if isinstance(identity, bool) or not isinstance(identity, int | str) or identity == "":
        return f"its id is {str(identity)[:40]!r}"
    if not isinstance(sample.get("epoch"), int):
        return f"its epoch is {str(sample.get('epoch'))[:40]!r}"
    return None


INSPECT = Adapter(
    name="inspect",
    title="Inspect AI logs (.eval and .json)",
    suffixes=(".eval", ".json"),
    fits=_fits,
    read=_read,
    explain=_explain,
    label_source="scorer of the evaluation",
    options={
        **OPTIONS,
        "agent": "agent of all runs; model and solver of the log where it is not given",
        **READER_OPTION,
    },
    leak_fields=(
        "results",
        "reductions",
        "samples[].target",
        "samples[].scores",
        "samples[].metadata",
        "samples[].store",
        "samples[].events",
        "samples[].setup",
        "samples[].files",
        "samples[].error",
        "samples[].limit",
        "summaries.json",
        "reductions.json",
        "_journal/summaries",
    ),
)
