"""Import of published or incoming agent runs, and the detection of their format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.formats.base import FORMATS, CorpusFormat, Draft, Reading, switch, words
from certify_assets.corpora.formats.files import (
    BrokenFileError,
    FileSet,
    ReadLimits,
    SourceFile,
    Tally,
)
from certify_assets.corpora.formats.gathering import Gathered, StepTexts, gather
from certify_assets.corpora.formats.outcomes import OUTCOME_OPTIONS, Outcomes
from certify_assets.corpora.schema import to_frame
from certify_assets.errors import InputError
from certify_assets.tables.delimited import UTF16
from certify_assets.tables.settings import TableSettings

if TYPE_CHECKING:
    import pandas as pd

Paths = Path | str | Iterable[Path | str]

COMMON_OPTIONS: Mapping[str, str] = {
    "drop_copies": "leave out runs that repeat a run of another task (true or false)",
    "keep_unlabelled": "keep runs without an outcome (true or false)",
    "merge_same_instruction": "count tasks with the same instruction as one (true or false)",
    "ids": "fold counts tasks whose names differ only in spelling as one",
    "max_file_mb": "largest file to read, in megabytes",
    "strict": "refuse the import when a record cannot be used (true or false)",
    **OUTCOME_OPTIONS,
}
_SWITCHES = ("drop_copies", "keep_unlabelled", "merge_same_instruction", "strict")
_BROKEN = frozenset(
    words("unreadable_record file_unreadable file_broken_archive file_ends_early file_unsafe_path")
)
_EXPLAINED = 2
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class ImportFacts:
    """What there is to say of a corpus that was read.

    Parameters
    ----------
    dropped : dict of str to int
        How many records, and (reasons that begin with "file_") files, were left out, by reason.
    format : str
        Name of the format, or names joined by +.
    files : dict of str to str
        SHA-256 of every file read.
    examples : dict of str to str
        For every reason, a sentence on the first case.
    notes : dict of str to int
        What was left out of records that were kept, and what read them.
    label_source : str
        Where the outcomes come from.
    label_facts : dict of str to number
        What the source says of its labels, such as annotations, ties and their rate of
        disagreement.
    """

    dropped: dict[str, int]
    format: str
    files: dict[str, str]
    examples: dict[str, str]
    notes: dict[str, int]
    label_source: str = ""
    label_facts: dict[str, float] = field(default_factory=dict)
    #: sentences on what was understood of tables that are not as the formats have them
    read_as: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImportedCorpus(ImportFacts):
    """A corpus as it was read, in memory.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trajectories, as `schema.to_frame` makes them.
    """

    frame: pd.DataFrame


def import_corpus(
    paths: Paths,
    *,
    format: str = "auto",
    name: str,
    options: Mapping[str, Any] | None = None,
) -> ImportedCorpus:
    """Read agent runs into one corpus in memory; `gather_corpus` reads one of any size.

    Parameters
    ----------
    paths : path or iterable of paths
        Files, folders and tar archives (read without unpacking).
    format : str, default "auto"
        Name of a format, several joined by + that together make one corpus, or "auto" to take the
        one that fits the files.
    name : str
        Name of the corpus.
    options : mapping, optional
        `COMMON_OPTIONS` and the format's own.

    Returns
    -------
    ImportedCorpus
        Trajectories, and a count of everything that was left out.

    Raises
    ------
    InputError
        If a path, format or option is unknown, more than one format or none fits, or nothing could
        be used.
    """
    with gather_corpus(paths, format=format, name=name, options=options) as (runs, facts):
        return ImportedCorpus(frame=to_frame(runs.trajectories()), **vars(facts))


@contextmanager
def gather_corpus(
    paths: Paths,
    *,
    format: str = "auto",
    name: str,
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Gathered, ImportFacts]]:
    """Read agent runs into one corpus whose texts wait in a temporary file, to be written or gone
    through while the block lasts.

    Parameters and errors are those of `import_corpus`.
    """
    if not name.strip():
        raise InputError("the corpus has no name; give it one.")
    roots = _roots(paths)
    if not roots:
        raise InputError("there is no path to import; give files, folders or archives.")
    limits = _limits(options or {})
    formats = (
        [FORMATS[detect_format(roots, limits)]]
        if format == "auto"
        else [_known(part) for part in format.split("+")]
    )
    reading = Reading(options=_options(formats, options or {}))
    with closing(StepTexts()) as texts:
        runs = gather(_drafts(formats, roots, reading, limits), name, reading, texts)
        yield runs, _facts(runs, formats, roots, reading)


@contextmanager
def gather_new_runs(
    paths: Paths,
    *,
    format: str = "auto",
    name: str,
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Gathered, ImportFacts]]:
    """Read runs whose outcomes are not known yet, as `gather_corpus`."""
    roots, unknown = _roots(paths), None
    chosen = {**(options or {}), "keep_unlabelled": True}
    if format == "auto":
        try:
            format = detect_format(roots, _limits(chosen))
        except InputError as error:
            # a table is recognised by its outcome, which new runs need not have
            format, unknown = "table", error
    with ExitStack() as stack:
        try:
            found = stack.enter_context(
                gather_corpus(roots, format=format, name=name, options=chosen)
            )
        except InputError as error:
            as_a_table = any(
                words in str(error) for words in ("has no column", "has no option", "the option ")
            )
            raise error if unknown is None or as_a_table else unknown from None
        yield found


def _roots(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def _facts(
    runs: Gathered, formats: Sequence[CorpusFormat], roots: Sequence[Path], reading: Reading
) -> ImportFacts:
    # of several reasons the most frequent
    often = [reason for reason, _ in reading.dropped.most_common()]
    broken = next((reading.examples[reason] for reason in often if reason in _BROKEN), None)
    if broken and reading.options.get("strict"):
        raise InputError(f"{broken.rstrip('.')}; correct it, or import without the option strict.")
    if not runs.rows:
        why = reading.examples[often[0]] if often else "no file of the format's kind holds a run."
        if "cannot be used: " in why and ";" not in why:
            why = f"{why.rstrip('.')}; correct it."
        if (total := reading.dropped.total()) > 1:
            number = reading.dropped[often[0]]
            why += f" {number:,} of {total:,} records are left out for this reason."
        titles = " or ".join(form.title for form in formats)
        raise InputError(f"nothing in {', '.join(map(str, roots))} can be used as {titles}: {why}")
    return ImportFacts(
        dropped=dict(sorted(reading.dropped.items())),
        format="+".join(form.name for form in formats),
        files=reading.hashes,
        examples=reading.examples,
        notes=dict(reading.notes),
        label_source="; ".join(dict.fromkeys(form.label_source for form in formats)),
        label_facts=dict(sorted(reading.label_facts.items())),
        read_as=tuple(
            f"{files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''} read as: {said}"
            for said, files in reading.read_as.items()
        ),
    )


def _drafts(
    formats: Sequence[CorpusFormat], roots: Sequence[Path], reading: Reading, limits: ReadLimits
) -> Iterator[Draft]:
    outcomes = Outcomes(reading)
    others: list[dict[str, str]] = []
    for form in formats:
        reading.others = {}
        files = FileSet(roots, form.suffixes, reading, limits)
        yield from outcomes.read(form.read(files, reading), form.marks)
        others.append(reading.others)
    outcomes.require_clear()
    for name, why in others[0].items():
        if all(name in other for other in others):
            reading.drop("file_other_format", why)


def _known(format: str) -> CorpusFormat:
    if format not in FORMATS:
        raise InputError(
            f"there is no format {format!r}; name one of {', '.join(sorted(FORMATS))} or "
            "auto, or several joined by +."
        )
    return FORMATS[format]


def _options(formats: Sequence[CorpusFormat], options: Mapping[str, Any]) -> dict[str, Any]:
    known = dict(COMMON_OPTIONS)
    for form in formats:
        known |= form.options
    if unknown := sorted(set(options) - set(known)):
        raise InputError(
            f"format {'+'.join(form.name for form in formats)} has no option {unknown[0]!r}; "
            f"it has {', '.join(sorted(known))}."
        )
    TableSettings.of({"ids": options.get("ids")})
    return {
        key: switch(options, key) if key in _SWITCHES else value for key, value in options.items()
    }


def _limits(options: Mapping[str, Any]) -> ReadLimits:
    megabytes = str(options.get("max_file_mb", ReadLimits().file_bytes >> 20))
    if not megabytes.isdecimal() or not 0 < int(megabytes) <= 1 << 20:
        raise InputError(
            f"the option max_file_mb is {megabytes!r}; give a whole number of megabytes."
        )
    return ReadLimits(
        file_bytes=int(megabytes) << 20,
        archive_bytes=max(ReadLimits().archive_bytes, int(megabytes) << 20),
    )


def detect_format(paths: Sequence[Path], limits: ReadLimits | None = None) -> str:
    """Return the name of the one format that fits the files.

    Raises
    ------
    InputError
        If none fits (the message says why of the first files), or more than one: the message lists
        the candidates.
    """
    fitting: dict[str, str] = {}
    reasons: dict[str, str] = {}
    suffixes = {suffix for form in FORMATS.values() for suffix in form.suffixes}
    tally, empty = Tally(), True
    for file in FileSet(paths, suffixes, tally, limits):
        empty = False
        if reason := _not_looked_into(file):
            _add_reason(reasons, reason, file.name)
            continue
        for form in FORMATS.values():
            # one file of a format is enough: the others are not opened for it again
            if form.name in fitting or file.suffix not in form.suffixes:
                continue
            if _fits(form, file):
                fitting[form.name] = file.name
            elif not fitting and len(reasons) < _EXPLAINED:
                _add_reason(reasons, form.explain(file), file.name)
    given = ", ".join(str(path) for path in paths)
    if not fitting:
        why = list(reasons.values()) or list(
            islice(chain(tally.examples.values(), tally.others.values()), _EXPLAINED)
        )
        if empty and not why:
            raise InputError(f"there is no file in {given}; check the path.")
        known = "; ".join(f"{form.name}: {form.title}" for form in FORMATS.values())
        ask = f": {' '.join(why)}" if why else f"; name one with --format ({known})."
        raise InputError(f"no known format fits {given}{ask}")
    if len(fitting) > 1:
        found = ", ".join(f"{key} (such as {file})" for key, file in sorted(fitting.items()))
        raise InputError(
            f"more than one format fits {given}: {found}; name one with --format, or several "
            "that make one corpus joined by +."
        )
    return next(iter(fitting))


def _add_reason(reasons: dict[str, str], reason: str | None, name: str) -> None:
    if reason:
        reasons.setdefault(reason.replace(name, ""), reason)


def _not_looked_into(file: SourceFile) -> str | None:
    """Say what no reader looks into: large files, text in UTF-16, what was compressed twice."""
    if file.size > file.limit:
        return (
            f"{file.name} has {file.size:,} bytes and was not looked into; raise the option "
            "max_file_mb or name its format."
        )
    try:
        head = file.head(2)
    except BrokenFileError as error:
        return str(error)
    if head in UTF16 and file.suffix not in (".csv", ".tsv"):
        return f"{file.name} is in UTF-16; save it as UTF-8."
    if head == _GZIP:
        return (
            f"{file.name} is compressed once more inside; decompress it until its own suffix says "
            "what it is."
        )
    return None


def _fits(form: CorpusFormat, file: SourceFile) -> bool:
    try:
        return form.fits(file)
    except BrokenFileError:
        return False
