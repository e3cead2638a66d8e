"""Labels of traces: assessments, scores and feedback, and which of them is the outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from certify_assets.corpora.formats.base import words
from certify_assets.errors import InputError
from certify_assets.tables.outcomes import means_failure

_SUCCESSES = words("1 yes true pass passed correct success successful resolved")
_FAILURES = words("0 no false fail failed incorrect failure unsuccessful unresolved")
_TOLERANCE = 1e-9


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
    source : str
        "human", "code", "llm_judge" or what else the tool calls it, in lower case; "" unknown.
    """

    trace_id: str
    name: str
    value: Any
    source: str = ""
    span_id: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class TraceLabel:
    """The outcome of a trace with its source, or why it has none."""

    outcome: int | None = None
    source: str = ""
    reason: str = ""
    problem: str = ""

    @property
    def missing(self) -> bool:
        """Whether nothing was said, as opposed to something that cannot be used."""
        return self.reason == "no_label"


@dataclass(frozen=True)
class Labelling:
    """Which assessment counts, from which sources, and which of its values are a success."""

    name: str | None
    attribute: str | None
    sources: frozenset[str]
    success: frozenset[str]
    failure: frozenset[str]
    threshold: float | None

    @classmethod
    def of(cls, options: Mapping[str, Any], sources: Iterable[str] = ()) -> Labelling:
        """Read the options; `sources` count where the options name none."""
        name, attribute = options.get("label"), options.get("label_attribute")
        if name and attribute:
            raise InputError("the options label and label_attribute exclude each other; give one.")
        chosen = frozenset(word.lower() for word in option_words(options, "label_sources"))
        success, failure = (
            frozenset(map(_word, option_words(options, key))) for key in ("success", "failure")
        )
        if failure and not success:
            raise InputError("the option failure is given without success; give both.")
        if both := sorted(success & failure):
            raise InputError(
                f"the options success and failure both have {both[0]!r}; give it once."
            )
        return cls(
            name=str(name) if name else None,
            attribute=str(attribute) if attribute else None,
            sources=frozenset() if "any" in chosen else chosen or frozenset(sources),
            success=success,
            failure=failure,
            threshold=_threshold(options.get("threshold")),
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
            self._refuse_contrary(self.attribute, [value])
            return self._outcome([(value, "attribute")])
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
        self._refuse_contrary(named[0].name, [value for value, _ in said])
        return self._outcome(said)

    def _refuse_contrary(self, name: str, values: Collection[Any]) -> None:
        """Refuse the yes of a label whose name means a failure: leaving it out would be biased."""
        if self.success or self.threshold is not None or not means_failure(name):
            return
        doubtful = [value for value in values if _word(value) in ("1", "0", "yes", "no")]
        if doubtful:
            raise InputError(
                f"the label {name!r} means a failure, so its {doubtful[0]!r} can be read in two "
                "ways; say which value is a success with --option success=VALUE."
            )

    def _chosen(self, said: Assessment) -> Any:
        by_number = said.value is None or (self.threshold is not None and said.score is not None)
        return said.score if by_number else said.value

    def _misses(self, assessments: Collection[Assessment]) -> str:
        wanted = " or ".join(sorted(self.sources))
        label = f"label {self.name!r}" if self.name else "label"
        found = sorted({f"{one.name} ({one.source or 'source unknown'})" for one in assessments})
        return f"has no {label}{f' from {wanted}' if wanted else ''}" + (
            f", only {', '.join(found)}; choose with --option label=NAME and label_sources=SOURCE"
            if found
            else "; keep such traces with the option keep_unlabelled"
        )

    def _outcome(self, said: list[tuple[Any, str]]) -> TraceLabel:
        outcomes = {self._number(value) for value, _ in said}
        for problem in outcomes:
            if isinstance(problem, str):
                return TraceLabel(reason="bad_outcome", problem=f"cannot be used: {problem}.")
        found = {outcome for outcome in outcomes if isinstance(outcome, int)}
        if len(found) > 1:
            return TraceLabel(
                reason="contradictory_labels",
                problem=f"has {len(said)} labels that contradict each other; keep the right one.",
            )
        if not found:
            return _no_label("has a label without a value")
        return TraceLabel(outcome=found.pop(), source="+".join(sorted({by for _, by in said})))

    def _number(self, value: Any) -> int | str | None:
        """Return an outcome, None where there is no value, or in words why it is none."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        word = _word(value)
        if self.success:
            if word not in self.success and self.failure and word not in self.failure:
                return f"its label {str(value)[:40]!r} is in neither success nor failure"
            return int(word in self.success)
        if self.threshold is None and word in (*_SUCCESSES, *_FAILURES):
            return int(word in _SUCCESSES)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            return (
                f"its label {str(value)[:40]!r} is neither a number nor a word for success; say "
                "which values are with --option success=VALUE"
            )
        if self.threshold is None:
            return (
                f"its label {number:g} is neither 0 nor 1; say from where on it is a success with "
                "--option threshold=NUMBER"
            )
        return int(number >= self.threshold - _TOLERANCE)


def _word(value: Any) -> str:
    """Return a value as labels are compared: 1, 1.0 and true are one, as tools write them."""
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return str(int(word == "true"))
    try:
        number = float(word)
    except ValueError:
        return word
    return f"{number:.17g}"


def option_words(options: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return an option that is a list, or words separated by commas."""
    value = options.get(name)
    if value is None:
        return ()
    items = value if isinstance(value, list | tuple) else str(value).split(",")
    found = tuple(str(item).strip() for item in items)
    if not found or "" in found:
        raise InputError(f"the option {name} is {value!r}; give values separated by commas.")
    return found


def _no_label(problem: str) -> TraceLabel:
    return TraceLabel(reason="no_label", problem=f"{problem}.")


def _threshold(value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"the option threshold is {value!r}; give a number.")
    return number
