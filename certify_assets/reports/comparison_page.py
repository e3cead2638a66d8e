"""The comparison of judges: tables, figures, page, exports, and the blocks that Dagster shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.evaluation.comparison import comparison_key
from certify_assets.judges.harvest.gate import HALF_B
from certify_assets.reports.figures import auroc_figure
from certify_assets.reports.wording import (
    DASH,
    INLINE,
    count,
    home_of,
    markdown_table,
    percent,
    rate,
    render,
    store_page,
)
from certify_assets.tables.writing import csv_text, defused

if TYPE_CHECKING:
    from certify_assets.storage.store import Store

_NOT_MEASURED = "not measured"
_CERTIFIED_ON = {"cal": "", HALF_B: " (half B)"}
_FLOATS = 12
_MAIN_TABLE_PAGE = "study/main_table.html"


@dataclass(frozen=True)
class Table:
    """A name for files, a title, columns, and rows of text."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def comparison_tables(documents: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return ranking, certified coverage, cost, and unseen agents where evaluated."""
    tables = [ranking_table(documents), certified_table(documents), cost_table(documents)]
    return (
        [*tables, agent_table(documents)]
        if any(document["agent_disjoint"] for document in documents)
        else tables
    )


def ranking_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """AUROC of every judge and control: a row a corpus and judge."""
    columns = (
        "corpus",
        "judge",
        "CAL",
        "95 %",
        "within task",
        "95 %, within",
        "RL",
        "TEST",
        "lift",
    )
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
            # of controls, which read no run
            DASH if row["lift"] is None else percent(row["lift"]),
        )
        for document in documents
        for row in document["rows"]
    ]
    return Table(
        "ranking",
        "Ranking (AUROC), overall and within tasks",
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
            _tasks(row["certified_on"]),
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
    """Return CPU seconds, memory, tokens, money and parse rate of training and scoring."""
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
    return f"{on['tasks']}{_CERTIFIED_ON.get(on['split'], ' (RL and CAL)')}"


def _cost(cost: Mapping[str, Any]) -> tuple[str, ...]:
    train, score, each = cost["train"], cost["score"], cost["cpu_seconds_per_trajectory"]
    least = "≥ " if cost["at_least"] else ""
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
        DASH if cost["parse_rate"] is None else percent(cost["parse_rate"]),
    )


def _seconds(stage: Mapping[str, Any] | None) -> str:
    if stage is None:
        return _NOT_MEASURED
    # a run that went on from an earlier one has paid for less than all of it
    return f"{'≥ ' if stage['continued'] else ''}{stage['cpu_seconds']:.1f}"


def _memory(stage: Mapping[str, Any] | None) -> str:
    return DASH if stage is None else f"{stage['peak_mib']:.0f}"


def table_csv(table: Table) -> str:
    """Return a table as CSV in which no spreadsheet runs a name as a formula."""
    # nothing joins these tables, and one agent's name must not keep a stored page from being made
    rows = [[defused(cell) for cell in row] for row in table.rows]
    return csv_text([defused(name) for name in table.columns], list(zip(*rows, strict=True)))


def write_comparison_page(store: Store, page: str, corpus: str | None = None) -> str:
    """Store a page, of one corpus or of the main table; return where it is."""
    return store_page(store, _page_key(corpus), page)


def comparison_home(corpus: str | None = None) -> str:
    """Return the way back from a stored page, of one corpus or of the main table."""
    return home_of(_page_key(corpus), corpus or "")


def _page_key(corpus: str | None) -> str:
    return _MAIN_TABLE_PAGE if corpus is None else comparison_key(corpus, "comparison.html")


def write_main_exports(store: Store, documents: Sequence[Mapping[str, Any]]) -> None:
    """Store the tables of all corpora as CSV."""
    for table in comparison_tables(documents):
        text = table_csv(table)
        store.write_bytes(f"study/main_table_{table.name}.csv", text.encode("utf-8"))


def render_comparison(
    documents: Sequence[Mapping[str, Any]],
    left_out: Sequence[Mapping[str, str]] = (),
    *,
    home: str = "",
) -> str:
    """Render one or more comparisons as a page."""
    names = [str(document["corpus"]) for document in documents]
    return render(
        "comparison.html",
        home=home,
        title=f"Judges on {names[0]}" if len(names) == 1 else "Judges compared",
        about=(
            f"{count(len(names))} {'corpus' if len(names) == 1 else 'corpora'}: "
            f"{', '.join(names) or 'none'}"
        ),
        corpora=[
            (document, auroc_figure(document["rows"], f"auroc{place}"))
            for place, document in enumerate(documents)
        ],
        tables=[table for table in comparison_tables(documents) if table.rows],
        left_out=left_out,
        numeric=_is_number,
    )


def comparison_markdown(document: Mapping[str, Any]) -> str:
    """Return the block of the comparison, one row a judge."""
    budgets = [(side, alpha) for side in ("reject", "release") for alpha in document["alphas"]]
    short = {"reject": "rej.", "release": "rel."}
    columns = [
        "judge",
        "AUROC",
        "in task",
        *(f"{short[side]} {alpha:g}" for side, alpha in budgets),
    ]
    rows = []
    for row in document["rows"]:
        found = {(cell["side"], cell["alpha"]): cell["coverage"] for cell in row["certified"]}
        areas = [rate((row[name]["cal"] or {}).get("value")) for name in ("auroc", "within_task")]
        rows.append([row["judge"], *areas, *(_share(found.get(budget)) for budget in budgets)])
    return "\n".join(markdown_table(columns, rows, tight=True)) + "\n"


def folds_markdown(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Return the block of the evaluation on unseen agents; no name of an agent enters it."""
    rows = []
    for item in evaluations:
        values = [
            item["disjoint"]["auroc"]["value"],
            item["trained_on_all"]["auroc"]["value"],
            item["difference"]["auroc"]["value"],
            item["disjoint"]["within_agent"]["value"],
        ]
        rows.append([item["judge"], *map(rate, values)])
    columns = ("judge", "unseen", "all agents", "difference", "within agent")
    return "\n".join(markdown_table(columns, rows, tight=True)) + "\n"


def table_markdown(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the block of the main table: of every corpus the best judges."""
    rows = []
    for document in documents:
        best = {item["what"]: item for item in document["best"]}
        most, area = (
            best[f"certified reject coverage at {document['alphas'][0]:g}"],
            best["AUROC on CAL"],
        )
        floor = next((row for row in document["rows"] if row["judge"] == "lexical"), None)
        lexical = rate((floor["auroc"]["cal"] or {}).get("value")) if floor else rate(None)
        rows.append(
            [
                document["corpus"],
                f"{area['judge']} {rate(area['value'])}",
                lexical,
                most["judge"] or "none",
                _share(most["value"]),
            ]
        )
    columns = ("corpus", "best AUROC", "lexical", "most certified", "coverage")
    block = "\n".join(markdown_table(columns, rows, tight=True)) + "\n"
    return (
        block
        if len(block) < INLINE
        else block[: block.rindex("\n", 0, INLINE - 40)] + "\n\nMore corpora are on the page.\n"
    )


def comparison_metrics(document: Mapping[str, Any]) -> dict[str, float]:
    """Return AUROC on CAL and reject coverage at the first budget, controls last."""
    metrics = {}
    for row in sorted(document["rows"], key=lambda row: row["family"] == "control"):
        area = row["auroc"]["cal"] or {}
        if area.get("value") is not None:
            metrics[f"auroc_{row['judge']}"] = float(area["value"])
        for cell in row["certified"][:1]:
            metrics[f"coverage_{row['judge']}"] = float(cell["coverage"])
    return metrics


def plotted(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return as many of them as Dagster plots for an asset."""
    return dict(list(metrics.items())[:_FLOATS])


def _share(value: float | None) -> str:
    return percent(value) if value else "–"


def _is_number(table: Table, place: int) -> bool:
    return place >= (3 if table.columns[2].startswith("held") else 2)
