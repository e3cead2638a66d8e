"""The page of a comparison: which judge is best at what, what does not help, and the tables; and the blocks that Dagster shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.evaluation.comparison import comparison_key
from certify_assets.reports.comparison_figure import auroc_figure, coverage_figure
from certify_assets.reports.comparison_tables import Table, comparison_tables, write_table
from certify_assets.reports.templating import environment
from certify_assets.reports.wording import compact, count, percent, rate

if TYPE_CHECKING:
    from certify_assets.storage.store import Store

__all__ = [
    "comparison_markdown",
    "comparison_metrics",
    "folds_markdown",
    "plotted",
    "render_comparison",
    "table_markdown",
    "write_comparison_page",
    "write_main_exports",
]

_INLINE = 1000
_FLOATS = 12
_SUFFIXES = {"csv": "csv", "markdown": "md", "latex": "tex"}
_MAIN_TABLE_PAGE = "study/main_table.html"


def write_comparison_page(store: Store, page: str, corpus: str | None = None) -> str:
    """Store a page, of one corpus or of the main table; return where it is."""
    key = _MAIN_TABLE_PAGE if corpus is None else comparison_key(corpus, "comparison.html")
    store.write_bytes(key, page.encode("utf-8"))
    return store.locate(key)


def write_main_exports(store: Store, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Store the tables of all corpora as CSV, Markdown and LaTeX; return their keys."""
    keys = []
    for table in comparison_tables(documents):
        for kind, suffix in _SUFFIXES.items():
            keys.append(f"study/main_table_{table.name}.{suffix}")
            store.write_bytes(keys[-1], write_table(table, kind).encode("utf-8"))
    return keys


def render_comparison(
    documents: Sequence[Mapping[str, Any]], left_out: Sequence[Mapping[str, str]] = ()
) -> str:
    """Render one or more comparisons as a page.

    Parameters
    ----------
    documents : sequence of mapping
        Of `compare`.
    left_out : sequence of mapping
        Corpora that gave none, with the reason.

    Returns
    -------
    str
        HTML; the same text for the same documents.
    """
    names = [str(document["corpus"]) for document in documents]
    view = {
        "version": __version__,
        "title": f"Judges on {names[0]}" if len(names) == 1 else "Judges compared",
        "about": f"{count(len(names))} {'corpus' if len(names) == 1 else 'corpora'}: {', '.join(names) or 'none'}",
        "corpora": [_view(document) for document in documents],
        "tables": [table for table in comparison_tables(documents) if table.rows],
        "left_out": left_out,
        "numeric": _is_number,
    }
    return environment().get_template("comparison.html").render(**view)


def comparison_markdown(document: Mapping[str, Any]) -> str:
    """Return the block of the comparison: one row a judge, under 1,000 characters where their number allows it."""
    alphas = document["alphas"]
    lines = [
        f"| judge | AUROC | in task |{''.join(f' {side} {alpha:g} |' for side in ('rej.', 'rel.') for alpha in alphas)}"
    ]
    lines.append(f"|{'---|' * (3 + 2 * len(alphas))}")
    for row in document["rows"]:
        found = {(cell["side"], cell["alpha"]): cell["coverage"] for cell in row["certified"]}
        cells = [
            _share(found.get((side, alpha))) for side in ("reject", "release") for alpha in alphas
        ]
        areas = [rate((row[name]["cal"] or {}).get("value")) for name in ("auroc", "within_task")]
        lines.append(f"|{'|'.join([row['judge'], *areas, *cells])}|")
    return "\n".join(lines) + "\n"


def folds_markdown(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Return the block of the evaluation on unseen agents; no name of an agent enters it."""
    lines = ["| judge | unseen | all agents | difference | within agent |", "|---|---|---|---|---|"]
    for item in evaluations:
        values = [
            item["disjoint"]["auroc"]["value"],
            item["trained_on_all"]["auroc"]["value"],
            item["difference"]["auroc"]["value"],
        ]
        lines.append(
            f"|{'|'.join([item['judge'], *map(rate, values), rate(item['disjoint']['within_agent']['value'])])}|"
        )
    return "\n".join(lines) + "\n"


def table_markdown(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the block of the main table: of every corpus the judge that ranks best and the one that certifies most at the first budget."""
    lines = [
        "| corpus | best AUROC | lexical | most certified | coverage |",
        "|---|---|---|---|---|",
    ]
    for document in documents:
        best = {item["what"]: item for item in document["best"]}
        most, area = (
            best[f"certified reject coverage at {document['alphas'][0]:g}"],
            best["AUROC on CAL"],
        )
        floor = next((row for row in document["rows"] if row["judge"] == "lexical"), None)
        lexical = rate((floor["auroc"]["cal"] or {}).get("value")) if floor else rate(None)
        cells = [
            document["corpus"],
            f"{area['judge']} {rate(area['value'])}",
            lexical,
            most["judge"] or "nobody",
            _share(most["value"]),
        ]
        lines.append(f"|{'|'.join(cells)}|")
    block = "\n".join(lines) + "\n"
    return (
        block
        if len(block) < _INLINE
        else block[: block.rindex("\n", 0, _INLINE - 40)] + "\n\nMore corpora are on the page.\n"
    )


def comparison_metrics(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers that Dagster and MLflow plot: AUROC on CAL and reject coverage at the first budget, judge by judge, controls last."""
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


def _view(document: Mapping[str, Any]) -> dict[str, Any]:
    cal = document["cal"]
    return {
        "name": document["corpus"],
        "facts": f"CAL: {count(cal['trajectories'])} labelled runs of {count(cal['tasks'])} tasks, success rate {rate(cal['success_rate'])}",
        "best": [_best(item) for item in document["best"]],
        "findings": [item["message"] for item in document["findings"]],
        "missing": document["missing"],
        "auroc": auroc_figure(document["rows"]),
        "reject": coverage_figure(document["rows"], side="reject", alphas=document["alphas"]),
        "release": coverage_figure(document["rows"], side="release", alphas=document["alphas"]),
        "folds": [item["sentence"] for item in document["agent_disjoint"]],
    }


def _best(item: Mapping[str, Any]) -> dict[str, str]:
    after = (
        ""
        if item["next"] is None
        else f"then {item['next']['judge']}, {compact(item['next']['value'])}"
    )
    return {
        "what": item["what"],
        "judge": item["judge"] or "nobody",
        "value": compact(item["value"]),
        "next": after,
    }


def _is_number(table: Table, place: int) -> bool:
    return place >= (3 if table.columns[2].startswith("held") else 2)
