"""Import of published or incoming agent runs, and the detection of their format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.formats.base import (
    FORMATS,
    CorpusFormat,
    Draft,
    Judgement,
    Reading,
    format_error,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, Tally
from certify_assets.corpora.formats.gathering import Gathered, StepTexts, gather
from certify_assets.corpora.formats.outcomes import OUTCOME_OPTIONS, Outcomes
from certify_assets.corpora.formats.records import DELIMITED
from certify_assets.corpora.imported import ImportFacts
from certify_assets.errors import InputError
from certify_assets.tables.reading import UTF16
from certify_assets.tables.settings import TableSettings

if TYPE_CHECKING:
    import pandas as pd

Paths = Path | str | Iterable[Path | str]

COMMON_OPTIONS: Mapping[str, str] = {
    "drop_copies": "leave out runs that repeat a run of another task (true or false)",
    "keep_unlabelled": "keep runs without an outcome (true or false)",
    "merge_same_instruction": "count tasks with the same instruction as one (true or false)",
    "ids": "fold counts tasks whose names differ only in spelling as one",
    **OUTCOME_OPTIONS,
}
_SWITCHES = ("drop_copies", "keep_unlabelled", "merge_same_instruction")
_EXPLAINED = 2


@dataclass(frozen=True, kw_only=True)
class ImportedCorpus(ImportFacts):
    """A corpus in memory, as it was read.

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
        Name of a format, or "auto" for the one that fits the files.
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
    from certify_assets.corpora.schema import to_frame

    with gather_corpus(paths, format=format, name=name, options=options) as (runs, facts):
        return ImportedCorpus(frame=to_frame(runs.trajectories()), **vars(facts))


@contextmanager
def gather_corpus(
    paths: Paths,
    *,
    format: str = "auto",
    name: str,
    options: Mapping[str, Any] | None = None,
    judged: bool = False,
) -> Iterator[tuple[Gathered, ImportFacts]]:
    """Read agent runs into one corpus whose texts are in a temporary file for as long as the block
    lasts.

    Parameters and errors are those of `import_corpus`. With `judged`, runs have all their
    judgements, and no outcome is chosen.
    """
    if not name.strip():
        raise InputError("the corpus has no name; give it one.")
    roots = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not roots:
        raise InputError("there is no path to import; give files, folders or archives.")
    form = _known(detect_format(roots) if format == "auto" else format)
    reading = Reading(options=_options(form, options or {}), judged=judged)
    with closing(StepTexts()) as texts:
        runs = gather(_drafts(form, roots, reading), name, reading, texts)
        yield runs, _facts(runs, form, roots, reading)


def _facts(
    runs: Gathered, form: CorpusFormat, roots: Sequence[Path], reading: Reading
) -> ImportFacts:
    # of several reasons the most frequent
    often = [reason for reason, _ in reading.dropped.most_common()]
    if not runs.rows:
        why = reading.examples[often[0]] if often else "no file of this format holds a run."
        if "cannot be used: " in why and ";" not in why:
            why = f"{why.rstrip('.')}; correct it."
        if (total := reading.dropped.total()) > 1:
            number = reading.dropped[often[0]]
            why += f" {number:,} of {total:,} records are left out for this reason."
        given = ", ".join(map(str, roots))
        raise InputError(f"nothing in {given} can be used as {form.title}: {why}")
    return ImportFacts(
        dropped=dict(sorted(reading.dropped.items())),
        format=form.name,
        files=reading.hashes,
        examples=reading.examples,
        notes=dict(reading.notes),
        label_source=form.label_source,
        label_facts=dict(sorted(reading.label_facts.items())),
        read_as=tuple(
            f"{name}{f' and {len(more)} more' if more else ''} read as: {said}"
            for said, (name, *more) in reading.read_as.items()
        ),
    )


def _drafts(form: CorpusFormat, roots: Sequence[Path], reading: Reading) -> Iterator[Draft]:
    drafts = form.read(FileSet(roots, form.suffixes, reading), reading)
    if reading.judged:
        yield from map(_with_judgements, drafts)
        return
    outcomes = Outcomes(reading)
    yield from outcomes.read(drafts, form.marks)
    outcomes.require_clear()
    for why in reading.others.values():
        reading.drop("file_other_format", why)


def _with_judgements(draft: Draft) -> Draft:
    """Return a run whose outcome is one of its judgements."""
    said = draft.judgements
    if not said and draft.outcome is not None:
        said = (Judgement(draft.outcome_name, draft.outcome, "outcome"),)
    return replace(draft, outcome=None, judgements=said)


def _known(format: str) -> CorpusFormat:
    if format not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise format_error(f"there is no format {format!r}; name one of {known} or auto.")
    return FORMATS[format]


def _options(form: CorpusFormat, options: Mapping[str, Any]) -> dict[str, Any]:
    known = {**COMMON_OPTIONS, **form.options}
    if unknown := sorted(set(options) - set(known)):
        raise InputError(
            f"format {form.name} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}."
        )
    TableSettings.of({"ids": options.get("ids")})
    found = dict(options)
    for name in _SWITCHES:
        value = str(options.get(name, False)).lower()
        if value not in ("true", "false"):
            raise InputError(f"the option {name} is {options[name]!r}; give true or false.")
        found[name] = value == "true"
    return found


def detect_format(paths: Sequence[Path]) -> str:
    """Return the name of the one format that fits the files.

    Raises
    ------
    InputError
        If no format fits (the message says why), or several do (the message lists them).
    """
    fitting: dict[str, str] = {}
    # by the sentence without its file, so that many files of one kind give one
    reasons: dict[str, str] = {}
    tally, is_empty = Tally(), True
    for file in FileSet(paths, {end for form in FORMATS.values() for end in form.suffixes}, tally):
        is_empty = False
        # one file of a format is enough: the others are not opened for it again
        forms = [
            form
            for form in FORMATS.values()
            if form.name not in fitting and file.suffix in form.suffixes
        ]
        try:
            if file.head(2) in UTF16 and file.suffix not in DELIMITED:
                raise BrokenFileError(f"{file.name} is in UTF-16; save it as UTF-8.")
            fitting |= {form.name: file.name for form in forms if form.fits(file)}
            unlike = (form.explain(file) for form in forms if not fitting)
            said = next(filter(None, unlike), "")
        except BrokenFileError as error:
            said = str(error)
        if said:
            reasons.setdefault(said.replace(file.name, ""), said)
    given = ", ".join(map(str, paths))
    if len(fitting) == 1:
        return next(iter(fitting))
    if fitting:
        found = ", ".join(f"{key} (such as {file})" for key, file in sorted(fitting.items()))
        raise InputError(f"{given} holds files of several formats: {found}. Give those of one.")
    why = [*reasons.values()] or [*tally.examples.values(), *tally.others.values()]
    if is_empty and not why:
        raise InputError(f"there is no file in {given}; check the path.")
    ask = ": " + " ".join(why[:_EXPLAINED]) if why else f". Known are {', '.join(sorted(FORMATS))}."
    raise format_error(f"no known format fits {given}{ask}")
