"""The suites of a corpus: what is expected of each table, and what is said where it is not met."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.pseudo_task import WHOLE_SHARE
from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.leakage import LEAK_KEYS
from certify_assets.corpora.schema import COLUMNS
from certify_assets.corpora.splits import SPLITS

#: checks whose failure stops everything downstream; that of the others is a warning
BLOCKING: tuple[str, ...] = (
    "schema",
    "unique_trajectory_id",
    "binary_outcome",
    "disjoint_tasks",
    "no_leak_field",
    "split_rows",
    "manifest",
)

_REQUIRED = ("corpus", "task_id", "trajectory_id", "agent", "attempt")
_DELTA = 0.05


@dataclass(frozen=True)
class Rule:
    """One expectation of a check, with the sentence where it is met and where it is not."""

    # sentences may name facts of the result: see `validations`
    check: str
    expectation: str
    expected: str
    fine: str
    problem: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def rules_of(
    table: str, members: Sequence[str], alpha: float, certifying: Sequence[str] = CERTIFYING
) -> list[Rule]:
    """Return the suite of a table."""
    if table == "keys":
        return [
            Rule(
                "no_leak_field",
                "ExpectColumnValuesToNotBeInSet",
                "no text quotes a key that only harnesses use.",
                f"none of {len(LEAK_KEYS)} harness keys is quoted",
                "key $sample: remove what speaks of the outcome before a judge reads it",
                {"column": "key", "value_set": list(LEAK_KEYS)},
            )
        ]
    if table == "renderings":
        return [
            Rule(
                "duplicates",
                "ExpectColumnUniqueValueCountToBeBetween",
                "as many renderings must differ as there are runs.",
                "no two renderings are equal",
                "$lacking of $least renderings equal an earlier one",
                {"column": "rendering", "min_value": {"$PARAMETER": "rows"}},
            )
        ]
    if table == "splits":
        return _split_rules(members, alpha, certifying)
    if table in SPLITS:
        # the other identities are those of its runs, whose table was validated whole
        fine = "no stored split has an id twice, and every outcome that is there is 0 or 1"
        rules = _row_rules(("split_rows",) * 3, ("task_id",), f"{table}: ")
        return [replace(rule, fine=fine) for rule in rules]
    return [
        Rule(
            "schema",
            "ExpectTableColumnsToMatchSet",
            f"the table must have the {len(COLUMNS)} columns of a trajectory.",
            f"the table has the {len(COLUMNS)} columns of a trajectory and no identity is missing",
            "the columns $missing are missing: import the corpus again",
            {"column_set": list(COLUMNS), "exact_match": False},
        ),
        *_row_rules(("schema", "unique_trajectory_id", "binary_outcome"), _REQUIRED, ""),
        Rule(
            "no_leak_field",
            "ExpectTableColumnsToMatchSet",
            "the table must have no other column.",
            f"none of {len(LEAK_KEYS)} harness keys, no column beyond the schema",
            "column $extra: remove what speaks of the outcome before a judge reads it",
            {"column_set": list(COLUMNS), "exact_match": True},
        ),
    ]


def _row_rules(checks: Sequence[str], required: Sequence[str], where: str) -> list[Rule]:
    """Return what holds for every row, for the checks of identities, ids and outcomes."""
    identities, ids, outcomes = checks
    wrong = f"{where}$count rows have a $column such as $sample: correct them"
    return [
        *(
            Rule(
                identities,
                "ExpectColumnValuesToNotBeNull",
                "values must never be null.",
                "no identity is missing",
                f"{where}$column is missing in $count rows: give every trajectory its $column",
                {"column": name},
            )
            for name in required
        ),
        Rule(
            ids,
            "ExpectColumnValuesToBeUnique",
            "values must be unique.",
            "$rows trajectories, every id once",
            wrong,
            {"column": "trajectory_id"},
        ),
        Rule(
            outcomes,
            "ExpectColumnValuesToBeInSet",
            "values must be 0 or 1, or missing.",
            "every outcome that is there is 0 or 1",
            wrong,
            {"column": "outcome", "value_set": [0, 1]},
        ),
    ]


def _split_rules(members: Sequence[str], alpha: float, certifying: Sequence[str]) -> list[Rule]:
    column = importlib.import_module("great_expectations.expectations.row_conditions").Column
    rules = [
        Rule(
            "disjoint_tasks",
            "ExpectColumnValuesToBeUnique",
            f"no task may be in both {one} and {other}.",
            f"no task is in two of {', '.join(members)}",
            f"$pairs tasks are in both {one} and {other}, such as $first: make the splits again",
            {"column": "task_id", "row_condition": column("split").is_in([one, other])},
        )
        for one, other in combinations(members, 2)
    ]
    if "cal" not in members:
        return rules
    needed = n_min(alpha, _DELTA / WHOLE_SHARE)
    names = " and ".join(name.upper() for name in certifying)
    large = Rule(
        "n_min_tasks",
        "ExpectColumnUniqueValueCountToBeBetween",
        f"{names} must have at least the {needed} tasks that α={alpha:g} needs.",
        f"{names} has at least the {needed} tasks that α={alpha:g} needs",
        f"{names} has $seen tasks, and α={alpha:g} needs {needed}",
        {
            "column": "task_id",
            "min_value": needed,
            "row_condition": column("split").is_in(list(certifying)),
        },
    )
    return [*rules, large]
