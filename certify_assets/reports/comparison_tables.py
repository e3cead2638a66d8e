"""Tables of a comparison, and one table as CSV, Markdown or LaTeX; names from data are escaped in each."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from certify_assets.reports.wording import DASH, percent, rate

__all__ = [
    "FORMATS",
    "Table",
    "agent_table",
    "certified_table",
    "comparison_tables",
    "cost_table",
    "ranking_table",
    "write_table",
]

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}
_LATEX |= {
    "–": "--",
    "−": "$-$",
    "α": r"$\alpha$",
    "\N{NARROW NO-BREAK SPACE}": r"\,",
    "…": r"\ldots{}",
}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#])")
_SPACES = re.compile(r"\s+")
_NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Table:
    """A name for files, a title, columns, and rows of text."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def comparison_tables(documents: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the tables of one or more comparisons: ranking, certified coverage, cost, and unseen agents where they were evaluated."""
    tables = [ranking_table(documents), certified_table(documents), cost_table(documents)]
    return (
        [*tables, agent_table(documents)]
        if any(document["agent_disjoint"] for document in documents)
        else tables
    )


def ranking_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """AUROC of every judge and control: a row a corpus and judge."""
    columns = ("corpus", "judge", "CAL", "95 %", "within task", "95 %, within", "RL", "TEST")
    rows = [
        (
            document["corpus"],
            row["judge"],
            _area(row["auroc"]["cal"]),
            _span(row["auroc"]["cal"]),
            _area(row["within_task"]["cal"]),
            _span(row["within_task"]["cal"]),
            _area(row["auroc"]["rl"]) + (" (trained on)" if row["trained_on_rl"] else ""),
            _area(row["auroc"]["test"]),
        )
        for document in documents
        for row in document["rows"]
    ]
    return Table(
        "ranking",
        "AUROC: of all pairs and of pairs of one task; TEST as audited",
        columns,
        tuple(rows),
    )


def certified_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """Certified coverage of every judge with its audit: a row a corpus and judge."""
    budgets = [
        (side, alpha)
        for side in ("reject", "release")
        for alpha in (documents[0]["alphas"] if documents else ())
    ]
    columns = (
        "corpus",
        "judge",
        *(f"{side} {alpha:g}" for side, alpha in budgets),
        "candidates",
        "tasks",
    )
    rows = [
        (
            document["corpus"],
            row["judge"],
            *[_cell(row["certified"], side, alpha) for side, alpha in budgets],
            str(row["candidates"]),
            _tasks(row.get("certified_on")),
        )
        for document in documents
        for row in document["rows"]
        if row["certified"]
    ]
    return Table(
        "certified",
        "Certified coverage (error on TEST, coverage on TEST, audit)",
        columns,
        tuple(rows),
    )


def cost_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """What training and scoring took: CPU seconds, memory, tokens, money and the share of answers with a verdict where a judge is behind a server."""
    columns = (
        "corpus",
        "judge",
        "training CPU s",
        "training MiB",
        "scoring CPU s",
        "rows",
        "ms a trajectory",
        "scoring MiB",
        "tokens",
        "money",
        "parsed",
    )
    rows = [
        (document["corpus"], row["judge"], *_cost(row["cost"]))
        for document in documents
        for row in document["rows"]
        if row["family"] != "control"
    ]
    return Table(
        "cost",
        "Cost: CPU seconds and largest memory of the process so far; tokens and money a decision",
        columns,
        tuple(rows),
    )


def agent_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """Every evaluation on unseen agents, with its folds below it."""
    columns = (
        "corpus",
        "judge",
        "held-out agents",
        "CAL runs",
        "AUROC unseen",
        "95 %",
        "as many runs",
        "all agents",
        "within agent",
        "difference",
    )
    rows: list[tuple[str, ...]] = []
    for document in documents:
        for item in document["agent_disjoint"]:
            change = item["difference"]["auroc"]
            rows.append(
                (
                    document["corpus"],
                    item["judge"],
                    "all, in turn",
                    str(item["rows"]),
                    _area(item["disjoint"]["auroc"]),
                    _span(item["disjoint"]["auroc"]),
                    _area(item.get("trained_on_as_many", {}).get("auroc")),
                    _area(item["trained_on_all"]["auroc"]),
                    _area(item["disjoint"]["within_agent"]),
                    DASH
                    if change["value"] is None
                    else f"{change['value']:+.3f} ({_span(change)})".replace("-", "−"),
                )
            )
            for fold in item["folds"]:
                mine, all_agents = rate(fold["auroc"]), rate(fold["auroc_trained_on_all"])
                held = ", ".join(fold["agents"])
                rows.append(
                    (
                        document["corpus"],
                        item["judge"],
                        held,
                        str(fold["cal_runs"]),
                        mine,
                        DASH,
                        DASH,
                        all_agents,
                        DASH,
                        DASH,
                    )
                )
    return Table("agents", "Runs of agents that a judge has not seen", columns, tuple(rows))


def _area(area: Mapping[str, Any] | None) -> str:
    return rate(area["value"] if area else None)


def _span(area: Mapping[str, Any] | None) -> str:
    return (
        DASH if not area or area["low"] is None else f"{rate(area['low'])} to {rate(area['high'])}"
    )


def _cell(cells: Sequence[Mapping[str, Any]], side: str, alpha: float) -> str:
    found = next((cell for cell in cells if (cell["side"], cell["alpha"]) == (side, alpha)), None)
    if found is None:
        return DASH
    if not found["certified"]:
        return "nothing"
    audit = (
        ""
        if found["audit"] is None
        else f" ({rate(found['test_error'])}, {percent(found['test_coverage'])}, {found['audit']})"
    )
    return f"{percent(found['coverage'])}{audit}"


def _tasks(on: Mapping[str, Any] | None) -> str:
    if on is None:
        return DASH
    return f"{on['tasks']}{'' if on['split'] == 'cal' else ' (half B)'}"


def _cost(cost: Mapping[str, Any]) -> tuple[str, ...]:
    train, score, each = cost["train"], cost["score"], cost["cpu_seconds_per_trajectory"]
    least = "≥ " if cost.get("at_least") else ""
    tokens = cost["tokens_per_decision"]
    paid = cost["money_per_decision"]
    money = (
        f"{least}{paid:.3g} {cost['currency']}".strip()
        if paid is not None
        else DASH
        if tokens is None
        else "no price given"
    )
    return (
        _seconds(train),
        _memory(train),
        _seconds(score),
        DASH if score is None else str(score["rows"]),
        _NOT_MEASURED if each is None else f"{1000 * each:.2f}",
        _memory(score),
        DASH if tokens is None else f"{least}{tokens:.0f}",
        money,
        DASH if cost.get("parse_rate") is None else percent(cost["parse_rate"]),
    )


def _seconds(stage: Mapping[str, Any] | None) -> str:
    if stage is None:
        return _NOT_MEASURED
    # a run that went on from an earlier one has paid for less than all of it
    return f"{'≥ ' if stage['continued'] else ''}{stage['cpu_seconds']:.1f}"


def _memory(stage: Mapping[str, Any] | None) -> str:
    return DASH if stage is None else f"{stage['peak_mib']:.0f}"


def write_table(table: Table, kind: str) -> str:
    """Write a table.

    Parameters
    ----------
    table : Table
    kind : {"csv", "markdown", "latex"}

    Returns
    -------
    str
        Ending in a line feed; the same text for the same table.
    """
    return FORMATS[kind](table)


def _csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([table.columns, *table.rows])
    return stream.getvalue()


def _markdown(table: Table) -> str:
    lines = [
        " | ".join(_MARKDOWN.sub(r"\\\1", _SPACES.sub(" ", cell)) for cell in row)
        for row in (table.columns, *table.rows)
    ]
    return (
        "\n".join(
            [
                f"| {lines[0]} |",
                f"|{'---|' * len(table.columns)}",
                *(f"| {line} |" for line in lines[1:]),
            ]
        )
        + "\n"
    )


def _latex(table: Table) -> str:
    lines = [
        " & ".join(_latex_text(cell) for cell in row) + r" \\"
        for row in (table.columns, *table.rows)
    ]
    opening = [
        rf"% {_SPACES.sub(' ', table.title)}",
        rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
        r"\hline",
        lines[0],
        r"\hline",
    ]
    return "\n".join([*opening, *lines[1:], r"\hline", r"\end{tabular}"]) + "\n"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in _SPACES.sub(" ", text))


#: name → writer of one table
FORMATS = {"csv": _csv, "markdown": _markdown, "latex": _latex}
