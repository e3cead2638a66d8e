"""AutoCodeRover results: ``<run>/<bucket>/<instance>_<time>/`` with the conversations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from certify_assets.corpora.formats.base import (
    Draft,
    Files,
    Reading,
    contents,
    corpus_format,
    excerpt,
    words,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.swe_reports import (
    FileRun,
    collect_outcomes,
    draft_of,
    issue_text,
    parents,
    parse_object,
    task_of,
)
from certify_assets.corpora.formats.texts import (
    Message,
    first_prompt,
    from_first,
    is_list_of_objects,
    objects,
    steps_of_messages,
)
from certify_assets.corpora.schema import Step

_HEAD = 4096
_ROUND = re.compile(r"conversation_round_(\d+)\.json(?:\.gz)?")
_PATCH = re.compile(r"agent_patch_raw_(\d+)(?:\.gz)?")
_FOLDER = re.compile(r"(.+?)_\d{4}-\d{2}-\d{2}[_T]\d{2}[-:]\d{2}[-:]\d{2}")
# Buckets tell whether a patch came out; meta.json and developer_patch.diff hold the solution: none
# of them is read.
_BUCKET = re.compile(r"applicable_patch|raw_patch_\w+|matched_but_\w+|no_patch")
_ATTEMPT = re.compile(r"[-_]?run[-_]?\d+")


def _fits(file: SourceFile) -> bool:
    name = PurePosixPath(file.name).name
    return (
        _ROUND.fullmatch(name) is not None
        and re.match(rb"\s*\[\s*\{", file.head(_HEAD)) is not None
    )


@corpus_format(
    title="AutoCodeRover results (conversation_round_<n>.json a run)",
    # the patches that the agent wrote have no suffix
    suffixes=(".json", ""),
    domain="software",
    fits=_fits,
    label_source="tests of the instance, run by the SWE-bench harness on the final patch",
    leak_fields=words(
        "meta.task_info.patch meta.task_info.test_patch meta.setup_info.test_cmd "
        "developer_patch report.resolved report.applied final_report.resolved bucket"
    ),
)
def autocoderover(files: Files, reading: Reading) -> Iterator[Draft]:
    """Read the last round of every result folder."""
    last = _last_rounds(files)
    patches = _patches(files, reading)
    outcomes = collect_outcomes(files, reading, [(name, _task(name)) for name in last])
    outcomes.note(reading)
    for file in files:
        name = PurePosixPath(file.name).name
        if file.name in last:
            after = patches.get(parents(file.name)[0], ())
            for _, data in contents([file], reading):
                run, names = _run(data, after, reading), (_task(file.name), _agent(file.name))
                yield from draft_of(file, run, *names, outcomes=outcomes, reading=reading)
        elif not (_ROUND.fullmatch(name) or _PATCH.fullmatch(name) or file.name in reading.hashes):
            reading.other(
                file, "is no conversation of AutoCodeRover, nor a patch or report next to one."
            )


def _last_rounds(files: Files) -> set[str]:
    best: dict[str, tuple[int, str]] = {}
    for file in files.matching("*conversation_round_*.json", "*conversation_round_*.json.gz"):
        if match := _ROUND.fullmatch(PurePosixPath(file.name).name):
            folder = parents(file.name)[0]
            best[folder] = max(best.get(folder, (-1, "")), (int(match[1]), file.name))
    return {name for _, name in best.values()}


def _patches(files: Files, reading: Reading) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for file, data in contents(files.matching("*agent_patch_raw_*"), reading):
        if match := _PATCH.fullmatch(PurePosixPath(file.name).name):
            reading.sha256(file)
            found.setdefault(parents(file.name)[0], []).append(
                (int(match[1]), excerpt(data.decode("utf-8", "replace")))
            )
    return {folder: tuple(text for _, text in sorted(texts)) for folder, texts in found.items()}


def _run(data: bytes, patches: tuple[str, ...], reading: Reading) -> FileRun | str:
    """Read a conversation, without the issue before the agent's first word, and the patches."""
    found = parse_object(data)
    if isinstance(found, str):
        return found
    if not is_list_of_objects(found):
        return "it is not a list of messages"
    messages = [Message.of(record) for record in objects(found)]
    steps = steps_of_messages(from_first(messages, "assistant"), reading)
    return FileRun(
        issue_text(first_prompt(messages)),
        steps + tuple(Step(text, "") for text in patches if text.strip()),
    )


def _task(name: str) -> str:
    folder = PurePosixPath(name).parent.name
    match = _FOLDER.fullmatch(folder)
    return task_of(match[1] if match else folder or PurePosixPath(name).stem)


def _agent(name: str) -> str:
    names = [PurePosixPath(folder).name for folder in parents(name)[1:]]
    # runs named …-run-<k> are attempts of one agent
    run = next((part for part in names if part and not _BUCKET.fullmatch(part)), "unknown")
    return _ATTEMPT.sub("", run) or run
