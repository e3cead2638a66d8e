"""What a corpus format is, what it is given and what it gives."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile, Tally
from certify_assets.corpora.formats.records import (
    HEAD,
    Record,
    begins_json,
    is_object_with,
    json_value,
)
from certify_assets.corpora.schema import Step


class Origin(NamedTuple):
    """Where a run was read: a file, its hash, and the position in it, from 1."""

    file: str
    sha256: str
    row: int = 1

    def __str__(self) -> str:
        return f"{self.file} row {self.row}"


@dataclass(frozen=True, slots=True)
class Draft:
    """One run as an adapter found it, before it has its place in a corpus.

    Parameters
    ----------
    task_id, agent, instruction, steps
        As in `Trajectory`.
    outcome
        As the source has it; `Outcomes` makes it 0, 1 or None.
    origin : Origin
        Where it was read.
    trajectory_id : str, optional
        The id that the source itself gives the run. Runs without one get an id from task, agent and
        attempt, and are compared by content with the runs of other files: producers publish copies
        of one run.
    attempt : int, optional
        The attempt that the source itself states, trusted only together with a trajectory_id.
    repetition : str
        What tells apart two runs of the same content in one file (a trial number); equal content
        and repetition is a copy.
    named_agent : str
        The agent, where the record itself names it rather than its file: runs of two such agents
        are no copies of each other.
    variant : tuple of str
        Settings of the source, as NAME=VALUE. Where they differ within a task and so does what it
        asks, they are tasks of their own.
    outcome_name : str
        The column, score or label that the outcome was read from.
    """

    task_id: str
    agent: str
    instruction: str
    steps: tuple[Step, ...]
    outcome: Any
    origin: Origin
    trajectory_id: str | None = None
    attempt: int | None = None
    repetition: str = ""
    named_agent: str = ""
    variant: tuple[str, ...] = ()
    outcome_name: str = "outcome"

    def content(self) -> bytes:
        """Hash what copies of one run have in common."""
        texts = [self.task_id, self.named_agent, self.instruction]
        for step in self.steps:
            texts += (step.action, step.observation)
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = ",".join(str(len(part)) for part in encoded)
        return hashlib.sha256(b"".join([lengths.encode(), b"\0", *encoded])).digest()


@dataclass
class Reading:
    """What a format is given besides its files, and where it reports what it found.

    Parameters
    ----------
    options : mapping
        Common options and the adapter's own.
    tally : Tally
        What is left out.
    hashes : dict of str to str
        SHA-256 of every file that was read.
    label_facts : dict of str to number
        What a source says of its labels: annotations, ties, disagreement rate.
    """

    options: Mapping[str, Any]
    tally: Tally
    hashes: dict[str, str] = field(default_factory=dict)
    label_facts: dict[str, float] = field(default_factory=dict)

    @property
    def notes(self) -> Counter[str]:
        """What was left out of records that are kept."""
        return self.tally.notes

    def drop(self, reason: str, example: str) -> None:
        """Count one file or record that is left out; `example` is a sentence that names it."""
        self.tally.drop(reason, example)

    def unusable(self, where: object, words: str) -> None:
        """Count a record that is left out, with what is wrong with it."""
        self.drop("unreadable_record", f"{where} cannot be used: {words}.")

    def understood(self, file: SourceFile, notes: Sequence[str]) -> None:
        """Note what was understood of a file that is not as its format has it."""
        if notes:
            self.tally.read_as.setdefault("; ".join(notes), []).append(file.name)

    def agent_in_name(self, file: SourceFile, agent: str) -> str:
        """Return the agent of a file whose records name none: the option, else that of its name."""
        if given := self.options.get("agent"):
            return str(given)
        words = f"agent {agent!r}, from the file name (--option agent=NAME says another)"
        self.understood(file, (words,))
        return agent

    def other(self, file: SourceFile, words: str) -> None:
        """Note a file that is not of the format, with what it is instead."""
        self.tally.other(file.name, f"{file.name} {words}")

    def sha256(self, file: SourceFile) -> str:
        """Hash a file once and remember that it was read."""
        if file.name not in self.hashes:
            self.hashes[file.name] = file.sha256()
        return self.hashes[file.name]

    def origin(self, file: SourceFile, row: int = 1) -> Origin:
        """Return a position in a file, which is remembered as read."""
        return Origin(file.name, self.sha256(file), row)


Drafts = Iterator[Draft]
Reader = Callable[[FileSet, Reading], Drafts]
#: option of formats that use `Reading.agent_in_name`
AGENT_OPTION = {"agent": "agent of runs that name none; taken from the file name otherwise"}

#: every format, by name; `corpus_format` fills it
FORMATS: dict[str, CorpusFormat] = {}


@dataclass(frozen=True, kw_only=True)
class CorpusFormat:
    """One format of published agent runs.

    Parameters
    ----------
    name : str
        Value of the option `format`.
    title : str
        The format in words.
    suffixes : tuple of str
        Suffixes of its files.
    fits : callable
        Whether a file, by its content, is of this format; never raises on broken content.
    read : callable
        Turns files into drafts; counts in the reading's tally what it leaves out.
    domain : str
        Kind of work, where all runs of the format share one.
    options : mapping of str to str
        Options beyond the common ones, with their meaning.
    explain : callable
        Why a file with such a suffix is not of this format and what to do, or None.
    label_source : str
        Where its outcomes come from, in words.
    marks : mapping of str to float, optional
        Outcomes are marks from 0 to 1, and below 1 is a failure; letters for some of them.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    fits: Callable[[SourceFile], bool]
    read: Reader
    domain: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    explain: Callable[[SourceFile], str | None] = lambda file: None
    label_source: str = "the source's own outcome"
    marks: Mapping[str, float] | None = None


def corpus_format(**about: Any) -> Callable[[Reader], CorpusFormat]:
    """Register a function that reads files as the format of its name; see `CorpusFormat`.

    A module of this folder with such a function is all that a new format needs.
    """

    def register(read: Reader) -> CorpusFormat:
        made = CorpusFormat(name=read.__name__, read=read, **about)
        if FORMATS.setdefault(made.name, made) is not made:
            raise ValueError(f"two formats are called {made.name}")
        return made

    return register


def contents(files: Iterable[SourceFile], reading: Reading) -> Iterator[tuple[SourceFile, bytes]]:
    """Read file by file; one that cannot be decompressed is counted as file_unreadable."""
    for file in files:
        try:
            data = file.read()
        except BrokenFileError as error:
            reading.drop("file_unreadable", str(error))
        else:
            yield file, data


def begins_with(*marks: re.Pattern[bytes]) -> Callable[[SourceFile], bool]:
    """Make a test for files that begin a JSON object with those marks."""
    return lambda file: is_object_with(file.head(HEAD), marks)


def is_json_named(file: SourceFile, name: str, keys: Iterable[bytes]) -> bool:
    """Whether a file of that name begins a JSON object with those keys."""
    if PurePosixPath(file.plain_name).name != name:
        return False
    head = file.head(HEAD)
    return begins_json(head, b"{") and all(key in head for key in keys)


def usable(
    record: Record | str, where: str, reading: Reading, problem: Callable[[Record], str | None]
) -> Record | None:
    """Return a record without a problem; count any other."""
    words = record if isinstance(record, str) else problem(record)
    if not words and not isinstance(record, str):
        return record
    reading.unusable(where, words or "")
    return None


def json_document(file: SourceFile, data: bytes, reading: Reading) -> Any:
    """Parse a file of one JSON value."""
    try:
        document = json_value(data)
    except ValueError as error:
        reading.drop("file_unreadable", f"{file.name} cannot be used: {error}; fetch it again.")
        return None
    return {} if document is None else document


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


def excerpt(text: str, limit: int) -> str:
    """Keep the two ends of a long text, with the number of characters between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters cut] {text[-half:]}"
