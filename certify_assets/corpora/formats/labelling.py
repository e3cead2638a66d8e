"""Labels of traces: assessments, scores and feedback, and which of them is the outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from certify_assets.corpora.formats.outcomes import Unclear, outcome_settings
from certify_assets.errors import InputError
from certify_assets.tables.cells import word_of
from certify_assets.tables.outcomes import OutcomeColumn
from certify_assets.tables.settings import TableSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What someone or something said of a trace.

    Parameters
    ----------
    trace_id, span_id : str
        What it is of; an empty span_id is the trace as a whole.
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
        chosen = frozenset(word.lower() for word in _option_words(options, "label_sources"))
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


def _option_words(options: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return an option that is a list, or words separated by commas."""
    value = options.get(name)
    if value is None:
        return ()
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not found or "" in found:
        raise InputError(f"the option {name} is {value!r}; give values separated by commas.")
    return found
