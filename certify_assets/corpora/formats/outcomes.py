"""Outcomes as sources write them, read by one rule, and which label of a trace is its outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from certify_assets.corpora.formats.base import Draft, Reading
from certify_assets.errors import InputError
from certify_assets.tables.cells import number_of, word_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import TableSettings, words_of

#: options of every format
OUTCOME_OPTIONS: Mapping[str, str] = {
    "threshold": "number from which on an outcome is a success",
    "success": "outcomes that are a success, separated by commas; all others are failures",
    "failure": "outcomes that are a failure; all others are successes, or refused with success",
    "no_label": "outcomes that say nothing of the run, separated by commas",
}
_ALMOST_ONE = 1 - 1e-6


@dataclass(frozen=True)
class Unclear:
    """An outcome that the source does not give, with what is wrong and what to do."""

    problem: str


def outcome_settings(options: Mapping[str, Any]) -> TableSettings:
    """Return what the options say of outcomes; InputError names one that is wrong."""
    return TableSettings.of({name: options.get(name) for name in OUTCOME_OPTIONS})


class Outcomes:
    """The outcomes of an import; one that is not understood refuses it, once all are read."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._settings = reading, outcome_settings(reading.options)
        # by the name of the column, score or label, with the files where it holds words
        self._columns: dict[str, tuple[OutcomeColumn, dict[str, None]]] = {}
        self._first: Draft | None = None
        self._labelled = self._unclear = 0
        self._found: set[int] = set()

    def read(self, drafts: Iterable[Draft], marks: Mapping[str, float] | None) -> Iterator[Draft]:
        """Give every run its outcome, None where it has none."""
        for draft in drafts:
            column, files = self._columns.setdefault(
                draft.outcome_name, (OutcomeColumn(draft.outcome_name, self._settings), {})
            )
            value, found = draft.outcome, None
            if not isinstance(value, Unclear):
                found = self._outcome(value, column, marks)
                if isinstance(value, str) and number_of(value) is None:
                    files[draft.origin.file] = None
            if found is None:
                self._unclear += 1
                self._first = self._first or draft
            elif found >= 0:
                self._found.add(found)
            self._labelled += found != -1
            yield replace(draft, outcome=None if found == -1 else found)

    def _outcome(
        self, value: Any, column: OutcomeColumn, marks: Mapping[str, float] | None
    ) -> int | None:
        found, settings = column.read(value), self._settings
        if marks is None or settings.success or settings.failure or found == -1:
            return found
        mark = marks.get(str(value).strip().lower())
        number = number_of(value) if mark is None else mark
        if settings.threshold is not None:
            return found if mark is None else int(mark >= settings.threshold)
        # under a name that means a failure a letter is clear and 1 is not
        if (
            number is None
            or not 0 <= number <= 2 - _ALMOST_ONE
            or (mark is None and column.contrary)
        ):
            return found
        if 0 < number < _ALMOST_ONE:
            self._reading.notes[
                "outcomes between 0 and 1 counted as failures; "
                "the option threshold says where success begins"
            ] += 1
        return int(number >= _ALMOST_ONE)

    def require_clear(self) -> None:
        """Refuse an import with an outcome that is not understood."""
        if self._first is not None:
            raise InputError(self._refusal(self._first))
        for column, files in self._columns.values():
            # new runs may all have failed
            if len(self._found) == 1 and not self._reading.options.get("keep_unlabelled"):
                column.require_named(next(iter(self._reading.hashes), ""), "--option")
            for said in column.notes() if files else ():
                self._reading.tally.read_as.setdefault(said, []).extend(files)

    def _refusal(self, draft: Draft) -> str:
        name, value = draft.outcome_name, draft.outcome
        if isinstance(value, Unclear):
            return f"{draft.origin}, {name}: {value.problem}"
        problem, _ = self._columns[name][0].problem(value, "--option")
        more = f" {self._unclear:,} of {self._labelled:,} runs have such values."
        return f"{draft.origin}, {name}: {problem}{more if self._unclear > 1 else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What someone or something said of a trace.

    Parameters
    ----------
    trace_id, span_id : str
        What it is of; an empty span_id is the trace as a whole, an empty trace_id that of the span.
    name : str
        Name of the assessment, score or feedback.
    value : bool, number, text or None
        What was said.
    score : number, optional
        The number next to it, where the tool has both; it counts where there is no value, and
        where the option threshold is given.
    word : text, optional
        The word next to a number; it counts where the options success or failure name it.
    source : str
        "human", "code", "llm_judge" or what else the tool calls it, in lower case; "" unknown.
    """

    trace_id: str
    name: str
    value: Any
    source: str = ""
    span_id: str = ""
    score: float | None = None
    word: str | None = None


@dataclass(frozen=True, slots=True)
class TraceLabel:
    """What the label of a trace says, with its source, or why it has none."""

    value: Any = None
    name: str = "outcome"
    source: str = ""
    reason: str = ""
    problem: str = ""

    @property
    def missing(self) -> bool:
        """Whether nothing was said, as opposed to something that cannot be used."""
        return self.reason == "no_label"


@dataclass(frozen=True)
class Labelling:
    """Which assessment counts, and from which sources."""

    name: str | None
    attribute: str | None
    sources: frozenset[str]
    settings: TableSettings

    @classmethod
    def of(cls, options: Mapping[str, Any], sources: Iterable[str] = ()) -> Labelling:
        """Read the options; `sources` count where the options name none."""
        name, attribute = options.get("label"), options.get("label_attribute")
        if name and attribute:
            raise InputError("the options label and label_attribute exclude each other; give one.")
        given = options.get("label_sources")
        named = () if given is None else words_of("label_sources", given)
        chosen = frozenset(word.lower() for word in named)
        return cls(
            name=str(name) if name else None,
            attribute=str(attribute) if attribute else None,
            sources=frozenset() if "any" in chosen else chosen or frozenset(sources),
            settings=outcome_settings(options),
        )

    def of_trace(
        self,
        assessments: Collection[Assessment],
        roots: Collection[str],
        attribute: Callable[[str], Any],
    ) -> TraceLabel:
        """Return the label of one trace; `roots` are the ids of its outermost spans."""
        if self.attribute is not None:
            value = attribute(self.attribute)
            if value is None:
                return _no_label(f"has no attribute {self.attribute!r}")
            return self._label(self.attribute, [(value, "attribute")])
        accepted = [one for one in assessments if not self.sources or one.source in self.sources]
        names = list(dict.fromkeys(one.name for one in accepted))
        if self.name is None and len(names) > 1:
            raise InputError(
                f"the trace {accepted[0].trace_id} has {len(names)} labels ({', '.join(names)}); "
                "name the one that is the outcome with --option label=NAME."
            )
        named = [one for one in accepted if one.name == (self.name or one.name)]
        if not named:
            return _no_label(self._misses(assessments))
        # what is said of the whole goes before what is said of a part
        whole = [one for one in named if not one.span_id or one.span_id in roots]
        said = [(self._chosen(one), one.source) for one in whole or named]
        return self._label(named[0].name, said)

    def _chosen(self, said: Assessment) -> Any:
        """Return the value, or what stands next to it where an option names that."""
        settings = self.settings
        if settings.threshold is not None and said.score is not None:
            return said.score
        named = {*map(word_of, (*settings.success, *settings.failure))}
        if named and said.word and word_of(said.value) not in named:
            return said.word
        return said.score if said.value is None else said.value

    def _misses(self, assessments: Collection[Assessment]) -> str:
        wanted = " or ".join(sorted(self.sources))
        label = f"label {self.name!r}" if self.name else "label"
        found = sorted({f"{one.name} ({one.source or 'source unknown'})" for one in assessments})
        return f"has no {label}{f' from {wanted}' if wanted else ''}" + (
            f", only {', '.join(found)}; choose with --option label=NAME and label_sources=SOURCE"
            if found
            else "; keep such traces with the option keep_unlabelled"
        )

    def _label(self, name: str, said: list[tuple[Any, str]]) -> TraceLabel:
        column = OutcomeColumn(name, self.settings)
        read = {
            None if isinstance(value, Unclear) else column.read(value): value for value, _ in said
        }
        read.pop(-1, None)
        if not read:
            return _no_label("has a label without a value")
        if len(read) > 1 and None not in read:
            return TraceLabel(
                reason="contradictory_labels",
                problem=f"has {len(said)} labels that contradict each other; keep the right one.",
            )
        # one that is not understood refuses the import
        value = read.get(None, next(iter(read.values())))
        return TraceLabel(value, name, source="+".join(sorted({by for _, by in said})))


def _no_label(problem: str) -> TraceLabel:
    return TraceLabel(reason="no_label", problem=f"{problem}.")
