"""What Great Expectations found, as the pages and checks say it."""

# Of a validation result only what its JSON schema documents is read: success, the configuration of
# the expectation with the description and sentences that `quality` gave it, the result's counts and
# samples. Values of a corpus are in there as text that somebody else wrote.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any, Final

#: tables that are validated, in the order of the page
TABLES: Final = {
    "trajectories": "Rows of the trajectory table",
    "renderings": "What judges read of the runs",
    "keys": "Keys that the texts of the runs quote",
    "splits": "Tasks of the splits",
    "sft": "Rows of the SFT split",
    "rl": "Rows of the RL split",
    "cal": "Rows of the CAL split",
    "test": "Rows of the TEST split",
}
#: how many unexpected values a result keeps
FEW: Final = 3
_LONGEST = 200
#: of an expectation on a column that is not there, which must not pass for one that is sound
MISSING: Final = "its column is missing: see schema"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation on one table: what was expected and what was found."""

    # the check that it belongs to
    check: str
    column: str
    expected: str
    passed: bool
    sentence: str
    # observed value, or share of values that were not expected
    seen: str
    # values that were not expected: how many, and some of them
    unexpected: int
    sample: str

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Expectation:
        """Read one entry of the results of a validation."""
        config, result = item["expectation_config"], item["result"]
        meta, passed = config["meta"], bool(item["success"])
        facts = _facts(config["kwargs"], result)
        return cls(
            check=str(meta["check"]),
            column=facts["column"],
            expected=str(config.get("description") or config["type"]),
            passed=passed,
            sentence=_raised(item["exception_info"])
            or _sentence(str(meta["fine" if passed else "problem"]), facts),
            seen=facts["share"] or facts["seen"],
            unexpected=int(result.get("unexpected_count") or 0),
            sample=facts["sample"],
        )


@dataclass(frozen=True, slots=True)
class Validation:
    """One table validated once."""

    table: str
    # rows, where an expectation counted them
    rows: int | None
    expectations: tuple[Expectation, ...]

    @property
    def met(self) -> int:
        """How many expectations were met."""
        return sum(item.passed for item in self.expectations)

    @classmethod
    def parse(cls, table: str, document: Mapping[str, Any]) -> Validation:
        """Read a validation result as Great Expectations gives it."""
        results = sorted(
            document["results"], key=lambda item: item["expectation_config"]["meta"]["position"]
        )
        return cls(
            table=table,
            rows=next(filter(None, map(_rows, results)), None),
            expectations=tuple(map(Expectation.parse, results)),
        )


def _sentence(text: str, facts: Mapping[str, str]) -> str:
    # a table without all its columns has no other column either
    missing = "$extra" in text and not facts["extra"]
    return MISSING if missing else Template(text).safe_substitute(facts)


def _rows(item: Mapping[str, Any]) -> int | None:
    # an expectation on some of the rows counts those
    whole = "row_condition" not in item["expectation_config"]["kwargs"]
    return item["result"].get("element_count") if whole else None


def _raised(info: Mapping[str, Any]) -> str:
    """Say why an expectation could not be evaluated; empty where it was."""
    # several metrics of one expectation may have failed, each with an entry of its own
    entries: Iterable[Any] = [info, *info.values()]
    messages = [
        str(entry.get("exception_message"))
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("raised_exception")
    ]
    if not messages:
        return ""
    if all("does not exist" in message for message in messages):
        return MISSING
    return f"it could not be evaluated ({_clipped(messages[0])})"


def _facts(kwargs: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, str]:
    """Return what a sentence may name, as text."""
    values = [_clipped(value) for value in result.get("partial_unexpected_list") or ()][:FEW]
    differing = (result.get("details") or {}).get("mismatched") or {}
    seen, least = result.get("observed_value"), kwargs.get("min_value")
    count, share = result.get("unexpected_count"), result.get("unexpected_percent")
    lacking = least - seen if isinstance(seen, int) and isinstance(least, int) else ""
    return {
        "column": str(kwargs.get("column", "")),
        "rows": str(result.get("element_count")),
        "count": str(count),
        "pairs": str(int(count or 0) // 2),
        "sample": ", ".join(dict.fromkeys(values)),
        "first": repr(values[0]) if values else "",
        "missing": _names(differing.get("missing")),
        "extra": _names(differing.get("unexpected")),
        "seen": _names(seen) if isinstance(seen, list) else "" if seen is None else str(seen),
        "least": str(least),
        "lacking": str(lacking),
        "share": "" if share is None else f"{share:.4g} % unexpected",
    }


def _names(values: Iterable[Any] | None) -> str:
    return ", ".join(_clipped(value) for value in values or ())


def _clipped(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
