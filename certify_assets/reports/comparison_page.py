"""The comparison of judges: tables, page, exports, and the blocks that Dagster shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certify_assets.corpora import HALF_B
from certify_assets.judges.specs import SIDES
from certify_assets.operations.comparison import CONTROLS, NOT_SCORED, comparison_key
from certify_assets.reports.page import (
    INLINE,
    PageTable,
    Remark,
    Section,
    home_of,
    markdown_table,
    render,
    store_page,
)
from certify_assets.reports.wording import DASH, compact, count, counted, percent, rate
from certify_assets.words import WORDS

if TYPE_CHECKING:
    from certify_assets.storage.store import Store

_NOT_MEASURED = "not measured"
_LIFT = (
    "Canary lift: the share of failed runs that score above the median success once a text that "
    "claims success is added."
)
_CERTIFIED_ON = {"cal": "", HALF_B: " (half B)"}
_FLOATS = 12
_MORE = "\n\nMore is on the page.\n"


def comparison_tables(documents: Sequence[Mapping[str, Any]]) -> list[PageTable]:
    """Return ranking, certified coverage and cost: those that have rows."""
    judged = [
        ({"corpus": document["corpus"], "judge": row["judge"]}, row, document["alphas"])
        for document in documents
        for row in document["rows"]
    ]
    tables = {
        ("ranking", "Ranking (AUROC), overall and within tasks"): [
            {**name, **_ranking(row)} for name, row, _ in judged
        ],
        ("certified", "Certified shares, and their audits on TEST"): [
            {**name, **_certified(row, alphas)} for name, row, alphas in judged if row["certified"]
        ],
        ("cost", "Cost"): [
            {**name, **_cost(row["cost"])} for name, row, _ in judged if row["family"] != "control"
        ],
    }
    captions = {"ranking": _LIFT, "cost": "Tokens and money are for one decision."}
    return [
        PageTable(
            title,
            tuple(lines[0]),
            [tuple(line.values()) for line in lines],
            captions.get(name, ""),
            name=name,
            look="cards",
        )
        for (name, title), lines in tables.items()
        if lines
    ]


def _ranking(row: Mapping[str, Any]) -> dict[str, str]:
    """Return AUROC of a judge or control."""
    auroc, within = row["auroc"], row["within_task"]["cal"]
    return {
        "CAL": _area(auroc["cal"]),
        "95 %": _span(auroc["cal"]),
        "within task": _area(within),
        "95 %, within": _span(within),
        "RL": _area(auroc["rl"]) + (" (trained on)" if row["trained_on_rl"] else ""),
        "TEST": _area(auroc["test"]),
        # of controls, which read no run
        "canary lift": DASH if row["lift"] is None else percent(row["lift"]),
    }


def _certified(row: Mapping[str, Any], alphas: Sequence[float]) -> dict[str, str]:
    """Return the certified coverage of a judge with its audit."""
    cells = {(cell["side"], cell["alpha"]): cell for cell in row["certified"]}
    on = row["certified_on"]
    return {
        **{
            f"{WORDS[side]}, α = {alpha:g}": _cell(cells.get((side, alpha)))
            for side in SIDES
            for alpha in alphas
        },
        "candidates": str(row["candidates"]),
        "tasks": f"{on['tasks']}{_CERTIFIED_ON.get(on['split'], ' (RL and CAL)')}" if on else DASH,
    }


def _area(area: Mapping[str, Any] | None) -> str:
    return rate(area["value"] if area else None)


def _span(area: Mapping[str, Any] | None) -> str:
    return (
        DASH if not area or area["low"] is None else f"{rate(area['low'])} to {rate(area['high'])}"
    )


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return DASH
    if not cell["certified"]:
        return "nothing"
    share = percent(cell["coverage"])
    if cell["audit"] is None:
        return share
    decided, wrong = percent(cell["test_coverage"]), percent(cell["test_error"])
    return f"{share} (TEST: {decided}, {wrong} of them wrong, {cell['audit']})"


def _cost(cost: Mapping[str, Any]) -> dict[str, str]:
    """Return CPU seconds, tokens, money and parse rate of training and scoring."""
    train, score, each = cost["train"], cost["score"], cost["cpu_seconds_per_trajectory"]
    least = "≥ " if cost["at_least"] else ""
    tokens, paid = cost["tokens_per_decision"], cost["money_per_decision"]
    money = DASH if tokens is None else "no price given"
    if paid is not None:
        money = f"{least}{paid:.3g} {cost['currency']}".strip()
    return {
        "training CPU s": _seconds(train),
        "scoring CPU s": _seconds(score),
        "runs": DASH if score is None else count(score["rows"]),
        "ms a run": _NOT_MEASURED if each is None else f"{1000 * each:.2f}",
        "tokens": DASH if tokens is None else f"{least}{tokens:.0f}",
        "money": money,
        "parsed": DASH if cost["parse_rate"] is None else percent(cost["parse_rate"]),
    }


def _seconds(stage: Mapping[str, Any] | None) -> str:
    if stage is None:
        return _NOT_MEASURED
    # a run that went on from an earlier one has paid for less than all of it
    return f"{'≥ ' if stage['continued'] else ''}{stage['cpu_seconds']:.1f}"


def write_comparison_page(
    store: Store,
    documents: Sequence[Mapping[str, Any]],
    left_out: Sequence[Mapping[str, str]] = (),
    *,
    corpus: str = "",
) -> str:
    """Store the page of one corpus, or of the main table; return its key."""
    key = comparison_key(corpus, "comparison.html") if corpus else "study/main_table.html"
    store_page(store, key, render_comparison(documents, left_out, home=home_of(key, corpus)))
    return key


def render_comparison(
    documents: Sequence[Mapping[str, Any]],
    left_out: Sequence[Mapping[str, str]] = (),
    *,
    home: str = "",
) -> str:
    """Render one or more comparisons as a page."""
    names = [str(document["corpus"]) for document in documents]
    return render(
        "page.html",
        kind="Comparison of judges",
        home=home,
        title=f"Judges on {names[0]}" if len(names) == 1 else "Judges compared",
        about="AUROC is measured on labelled runs, with 95 % intervals over tasks. TEST is "
        "read by audits alone.",
        sections=comparison_sections(documents, left_out),
        unfolded=True,
        sources="the numbers are in the JSON document next to it",
    )


def comparison_sections(
    documents: Sequence[Mapping[str, Any]], left_out: Sequence[Mapping[str, str]] = ()
) -> list[Section]:
    """Return who is best at what, what speaks against judges, and every table."""
    sections = [_best(number, document) for number, document in enumerate(documents, 1)]
    sections += [_details(number, document) for number, document in enumerate(documents, 1)]
    sections += [
        Section(table.title, f"table-{number}", counted(len(table.rows), "row"), tables=[table])
        for number, table in enumerate(comparison_tables(documents), 1)
    ]
    if left_out:
        found = [Remark(item["reason"], item["corpus"]) for item in left_out]
        gist = f"{count(len(left_out))} left out"
        sections.append(Section("Corpora left out", "left-out", gist, findings=found))
    return sections


def _best(number: int, document: Mapping[str, Any]) -> Section:
    corpus, cal = document["corpus"], document["cal"]
    return Section(
        f"Best judges on {corpus}",
        f"corpus-{number}",
        f"CAL: {count(cal['trajectories'])} labelled runs of {count(cal['tasks'])} tasks, "
        f"{percent(cal['success_rate'])} successful",
        tables=[
            PageTable(
                f"Best judges on {corpus}",
                ("at", "best", "value", "next"),
                _best_rows(document),
                look="cards",
            )
        ],
    )


def _best_rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in document["best"]:
        after = row["next"]
        write = percent if "coverage" in row["what"] else compact
        second = f"{_marked(after['judge'])}, {write(after['value'])}" if after else DASH
        what = row["what"]
        for side, word in WORDS.items():
            what = what.replace(f"{side} coverage at ", f"{word} share at α = ")
        rows.append((what, _marked(row["judge"]) or "none", write(row["value"]), second))
    return rows


def _marked(names: str | None) -> str:
    """Mark the controls among names of judges: they read no run."""
    return ", ".join(
        f"{name} (control)" if name in CONTROLS else name for name in (names or "").split(", ")
    )


def _details(number: int, document: Mapping[str, Any]) -> Section:
    corpus, missing = document["corpus"], document["missing"]
    found = [Remark(item["message"]) for item in document["findings"]]
    gist = counted(len(found), "finding") if found else "no finding"
    found += [
        Remark(f"no {item['what']}: {item['reason']}", item["judge"])
        for item in missing
        if item["reason"] != NOT_SCORED
    ]
    if unscored := [item["judge"] for item in missing if item["reason"] == NOT_SCORED]:
        command = f"certify run {corpus} --judge NAME"
        found.append(Remark(f"Not scored: {', '.join(unscored)}. To score one: {command}"))
        gist += f", {counted(len(unscored), 'judge')} not scored"
    return Section(f"Findings on {corpus}", f"details-{number}", gist, findings=found)


def best_markdown(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return which judges are best at what, as a block that Dagster shows inline."""
    rows = [(document["corpus"], *row) for document in documents for row in _best_rows(document)]
    lines = markdown_table(("corpus", "at", "best", "value", "next"), rows, tight=True)
    most = INLINE - len(_MORE)
    while sum(len(line) + 1 for line in lines) >= most:
        lines.pop()
    shown = len(lines) - 2
    return "\n".join(lines) + (_MORE if shown < len(rows) else "\n")


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
