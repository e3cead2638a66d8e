"""The interface of corpus formats: their input, their output and their registration."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile, Tally
from certify_assets.corpora.formats.records import (
    Record,
    Row,
    document,
    inside,
    listed_records,
    opened,
)
from certify_assets.corpora.trajectory import Step
from certify_assets.errors import InputError


class LeftOutError(Exception):
    """A record is left out; the error has the fault in words, and the reason to count it under."""

    def __init__(self, words: str, reason: str = "unreadable_record") -> None:
        super().__init__(words)
        self.reason = reason
        self.words = f"cannot be used: {words}" if reason == "unreadable_record" else words


class Origin(NamedTuple):
    """Where a run was read: a file, its hash, and the position in it, from 1; 0 means the whole
    file. `place` is the position as the source's own tool shows it.
    """

    file: str
    sha256: str
    row: int = 0
    place: str = ""

    def __str__(self) -> str:
        place = self.place or (f"row {self.row}" if self.row else "")
        return f"{self.file} {place}".rstrip()


class Judgement(NamedTuple):
    """The judgement of a judge, a test or a person on a run.

    Parameters
    ----------
    name : str
        Scorer, metric, feedback key or assessment.
    value : object
        A number, a truth value or a word; None if it is missing.
    source : str
        "human", "code", "llm_judge" or another word of the tool; "" if unknown.
    """

    name: str
    value: Any
    source: str = ""


def joined_scores(said: Sequence[Judgement]) -> Iterator[Judgement]:
    """Replace a model's scores of parts of a run, or by several rubrics, with their mean."""
    for name, source in dict.fromkeys((one.name, one.source) for one in said):
        values = [one.value for one in said if (one.name, one.source) == (name, source)]
        if source == "llm_judge" and all(type(value) in (int, float) for value in values):
            values = [sum(values) / len(values)]
        yield from (Judgement(name, value, source) for value in values)


@dataclass(frozen=True, slots=True)
class Draft:
    """One run as an adapter found it, before it is added to a corpus.

    Parameters
    ----------
    task_id, agent, instruction, steps
        As in `Trajectory`.
    outcome
        The source's value; `Outcomes` turns it into 0, 1 or None.
    origin : Origin
        Where it was read.
    trajectory_id : str, optional
        The id that the source itself gives the run. Runs without one get an id from task, agent and
        attempt, and are compared by content with the runs of other files: producers publish copies
        of one run.
    attempt : int, optional
        The attempt that the source itself states, trusted only together with a trajectory_id.
    repetition : str, optional
        A mark that distinguishes two runs of the same content in one file, such as a trial number.
        Without one, equal runs in one file are separate runs.
    named_agent : str
        The agent, if the record itself names it, not its file. Runs of two such agents are never
        copies of each other.
    variant : tuple of str
        Settings of the source, as NAME=VALUE. If they differ within a task and its instruction
        differs too, they are separate tasks.
    outcome_name : str
        The column, score or label that the outcome was read from.
    judgements : tuple of Judgement
        All judgements of the run, if the reading requests them.
    link : str
        Its web page, if the source names one.
    """

    task_id: str
    agent: str
    instruction: str
    steps: tuple[Step, ...]
    outcome: Any
    origin: Origin
    trajectory_id: str | None = None
    attempt: int | None = None
    repetition: str | None = None
    named_agent: str = ""
    variant: tuple[str, ...] = ()
    outcome_name: str = "outcome"
    judgements: tuple[Judgement, ...] = ()
    link: str = ""

    def content(self) -> bytes:
        """Hash of the content that copies of one run share."""
        texts = [self.task_id, self.named_agent, self.instruction]
        for step in self.steps:
            texts += (step.action, step.observation)
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = ",".join(str(len(part)) for part in encoded)
        return hashlib.sha256(b"".join([lengths.encode(), b"\0", *encoded])).digest()


@dataclass(kw_only=True)
class Reading(Tally):
    """The options of a format, and the place to report what it found.

    Parameters
    ----------
    options : mapping
        Common options and the adapter's own.
    hashes : dict of str to str
        SHA-256 of every file that was read.
    label_facts : dict of str to number
        Figures of the source's labels: annotations, ties, disagreement rate.
    judged : bool
        Whether all judgements of a run are wanted. Then none of them is chosen as its outcome, and
        a run without any other record is kept.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    label_facts: dict[str, float] = field(default_factory=dict)
    judged: bool = False

    def origin(self, file: SourceFile, row: int = 0) -> Origin:
        """Return a position in a file, and record the file's hash."""
        if file.name not in self.hashes:
            self.hashes[file.name] = file.sha256()
        return Origin(file.name, self.hashes[file.name], row)

    def runs(
        self, records: Iterable[tuple[Any, Record | str]], draft: Callable[[Record, Any], Draft]
    ) -> Drafts:
        """Turn every record into a run; count the records left out, with their places."""
        for place, record in records:
            try:
                if isinstance(record, str):
                    raise LeftOutError(record)
                run = draft(record, place)
                if not run.steps and not self.judged:
                    raise LeftOutError(
                        "has no action of the agent; nothing can be judged", "no_trajectory"
                    )
                yield run
            except LeftOutError as left:
                self.drop(left.reason, f"{place} {left.words}.")

    def unusable(self, place: object, words: str) -> None:
        """Count a record that is left out, with its fault."""
        self.drop("unreadable_record", f"{place} cannot be used: {words}.")

    def agent_in_name(self, file: str, agent: str, of: str = "file") -> str:
        """Return the agent of a file whose records name none: by the option, or else by a name."""
        if given := self.options.get("agent"):
            return str(given)
        words = f"agent {agent!r}, from the {of} name (--option agent=NAME says another)"
        self.understood(file, (words,))
        return agent

    def chosen(
        self, place: object, said: Sequence[Judgement], option: str = "label", default: str = ""
    ) -> dict[str, Any]:
        """Return outcome and outcome_name of the judgement that an option names, or of the only
        one.

        The name a covers its parts, such as a/b, if no judgement is called a.
        """
        name = str(self.options.get(option) or default)
        found = [one for one in said if one.name == name]
        found = found or [one for one in said if not name or one.name.startswith(f"{name}/")]
        names = ", ".join(one.name for one in said)
        if len({(one.name, str(one.value)) for one in found}) > 1 and not self.judged:
            raise InputError(
                f"{place} has several outcomes ({names}). Name one with --option {option}=NAME."
            )
        if said and not found and not self.options.get("keep_unlabelled"):
            raise LeftOutError(f"has no outcome {name!r}, only {names}", "no_label")
        one = found[0] if found else Judgement(name or "outcome", None)
        return {"outcome": one.value, "outcome_name": one.name}

    def documents(
        self, files: Iterable[SourceFile], fits: Callable[[SourceFile], bool] = lambda file: True
    ) -> Iterator[tuple[SourceFile, Any]]:
        """Parse files of one JSON value each; count files that are broken or do not fit."""
        for file in files:
            try:
                if fits(file):
                    yield file, document(file)
                elif file.name not in self.hashes:
                    self.other(file.name)
            except BrokenFileError as error:
                self.drop("file_unreadable", str(error))

    def placed(
        self, file: SourceFile, rows: Iterable[Row]
    ) -> Iterator[tuple[Origin, Record | str]]:
        """Iterate over the rows of a file with their places; count a file that ends early."""
        number = 0
        try:
            for number, record in rows:
                yield self.origin(file, number), record
        except BrokenFileError as error:
            self.drop("file_ends_early" if number else "file_unreadable", str(error))

    def records(
        self,
        files: Iterable[SourceFile],
        is_record: Callable[[Record], bool],
        *,
        under: Collection[str] = (),
        fields: Collection[str] = (),
    ) -> Iterator[tuple[Origin, Record]]:
        """Iterate over the records of JSON, JSON lines, CSV or Parquet; count unreadable ones.

        Parameters
        ----------
        files : iterable of SourceFile
            What to read.
        is_record : callable
            Whether an object is a record of the format; a file without any belongs to another
            format.
        under : collection of str
            Paths under which another object, such as a page of an API, lists records.
        fields : collection of str
            Columns of Parquet to read; by default all.
        """
        for file in files:
            known, has_records, others = file.name in self.hashes, False, list[Origin]()
            for place, record in self.placed(file, self._rows(file, under, fields)):
                if isinstance(record, str):
                    self.unusable(place, record)
                elif is_record(record):
                    has_records = True
                    yield place, record
                else:
                    others.append(place)
            for place in others if has_records else ():
                self.unusable(place, "it is not a record of this format")
            if others and not (has_records or known):
                self.hashes.pop(file.name)
                self.other(file.name)

    def _rows(
        self, file: SourceFile, under: Collection[str], fields: Collection[str]
    ) -> Iterator[Row]:
        found = opened(file)
        self.understood(file.name, found.read_as)
        for row in found.rows([name for name in found.names if not fields or name in fields]):
            page = row[1]
            held = () if isinstance(page, str) or "id" in page else under
            lists = [inside(page, *path.split(".")) for path in held]
            lists = [items for items in lists if isinstance(items, list)]
            yield from listed_records(item for items in lists for item in items) if lists else [row]


Drafts = Iterator[Draft]
Reader = Callable[[FileSet, Reading], Drafts]
#: option of formats whose records may name no agent
AGENT_OPTION = {"agent": "agent of runs that name none"}

#: every format, by name; `corpus_format` fills it
FORMATS: dict[str, CorpusFormat] = {}
#: a sentence on each module that could not be imported, by its name
BROKEN: dict[str, str] = {}


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
        Whether the content of a file has this format.
    read : callable
        Turns files into drafts; counts records left out in the reading.
    domain : str
        Kind of work, if all runs of the format share one.
    options : mapping of str to str
        Options beyond the common ones, with their meaning.
    explain : callable
        Says why a file with such a suffix does not have this format and what to do, or None.
    label_source : str
        The source of its outcomes, in words.
    marks : mapping of str to float, optional
        Letter grades and their numbers. Outcomes are then grades from 0 to 1, and less than 1 is a
        failure.
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


def format_error(words: str) -> InputError:
    """Return the error for runs or a name without a format, whose module may be broken."""
    return InputError(" ".join([words, *BROKEN.values()]))


def corpus_format(**about: Any) -> Callable[[Reader], CorpusFormat]:
    """Register a function that reads files as the format of its name; see `CorpusFormat`.

    A new format needs only a module in this folder with such a function.
    """

    def register(read: Reader) -> CorpusFormat:
        made = CorpusFormat(name=read.__name__, read=read, **about)
        if FORMATS.setdefault(made.name, made) is not made:
            raise ValueError(f"two formats are called {made.name}")
        return made

    return register


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())
