"""The page of the certifiability model: figure, forms beside the paper's, what each corpus does to the fit, and how far to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.reports.templating import environment
from certify_assets.reports.wording import DASH, count, rate
from certify_assets.research.pages.law_figure import law_figure

if TYPE_CHECKING:
    from certify_assets.research.certifiability import Certifiability, Measured
    from certify_assets.research.law import FormFit, Law
    from certify_assets.storage.store import Store

__all__ = ["law_markdown", "law_metrics", "render_law", "write_law_page"]

_KEY = "study/certifiability.html"
_INLINE = 1000
_FORMS = ("law", "auroc_only", "parameter_free")


def write_law_page(store: Store, page: str) -> str:
    """Store the page beside the document; return where it is."""
    store.write_bytes(_KEY, page.encode("utf-8"))
    return store.locate(_KEY)


def render_law(found: Certifiability) -> str:
    """Render the page.

    Parameters
    ----------
    found : Certifiability

    Returns
    -------
    str
        HTML; the same text for the same inputs.
    """
    from certify_assets.research.law_points import PAPER_FACTS

    points = [item.point for item in found.measured]
    view = {
        "version": __version__,
        "title": "Coverage before training",
        "corpora": _corpora(len(points)),
        "state": _state(found)[0],
        "heading": _state(found)[1],
        "sentence": _sentence(found),
        "figure": law_figure(points, found.law, found.paper, name="law"),
        "caption": _caption(found.law),
        "forms": _form_rows(found.law, found.paper),
        "fitted": found.law is not None,
        "rows": [_row(item, found.law) for item in found.measured],
        "findings": [message for _, message in found.findings],
        "left_out": found.left_out,
        "paper_points": found.paper.points,
        "paper_rows": [_influence_cells(found.paper, point.corpus) for point in found.paper.points],
        "facts": PAPER_FACTS,
        "rate": rate,
    }
    return environment().get_template("law.html").render(**view)


def law_metrics(found: Certifiability) -> dict[str, float]:
    """Return the numbers that Dagster and MLflow plot: the fit, and the forms that it is compared with."""
    if found.law is None:
        return {}
    metrics = {"slope": found.law.slope, "intercept": found.law.intercept}
    for name in _FORMS:
        fit = found.law.form(name)
        metrics |= {
            f"{name}_{key}": value
            for key, value in (("loocv_r2", fit.loocv_r2), ("mae", fit.mae))
            if value is not None
        }
    return metrics


def law_markdown(found: Certifiability) -> str:
    """Return the asset's block: under 1,000 characters of Markdown, so that it is shown in line. No text of a corpus enters it."""
    fits = [("corpora here", found.law), ("the paper's", found.paper)]
    # a reason may name a corpus, so it stays off this block
    status = (
        _sentence(found)
        if found.law
        else f"No line is fitted to {_corpora(len(found.measured))}; the page says why."
    )
    lines = [f"**{status}**", ""]
    lines += [
        "| fit | n | a | b | R² | LOOCV R² | MAE | no parameters: R² / MAE |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for words, law in fits:
        if law is not None:
            fit, free = law.form("law"), law.form("parameter_free")
            cells = [
                rate(value) for value in (fit.slope, fit.intercept, fit.r2, fit.loocv_r2, fit.mae)
            ]
            lines.append(
                f"| {words} | {len(law.points)} | {' | '.join(cells)} | {rate(free.r2)} / {rate(free.mae)} |"
            )
    block = "\n".join(lines) + "\n"
    if len(block) >= _INLINE:
        raise RuntimeError(
            f"the block of the law has {len(block)} characters; it must stay under {_INLINE} to be shown inline"
        )
    return block


def _state(found: Certifiability) -> tuple[str, str]:
    """Return the banner's look and heading."""
    from certify_assets.research.law_prediction import ENOUGH_POINTS

    codes = {code for code, _ in found.findings}
    if found.law is None:
        return "nothing", "No fit yet"
    if "no_prediction" in codes:
        return "warn", "A line that does not predict"
    if len(found.measured) < ENOUGH_POINTS or "carries_the_fit" in codes:
        return "warn", "A line, with its limits"
    return "certified", "A line that no single corpus carries"


def _sentence(found: Certifiability) -> str:
    if found.law is None:
        return f"The law cannot be fitted here: {found.reason.removeprefix('the law cannot be fitted to ')}"
    fit = found.law.form("law")
    return (
        f"Certified coverage = {rate(fit.slope)} (1−π)(2A₀−1) {'+' if found.law.intercept >= 0 else '−'} {rate(abs(found.law.intercept))} over "
        f"{len(found.law.points)} corpora; leave-one-corpus-out R² {rate(fit.loocv_r2)}, mean absolute error {rate(fit.mae)}."
    )


def _caption(law: Law | None) -> str:
    if law is None:
        return "The corpora of this data root, with no line of their own. The squares and the dotted line are the paper's, for reference."
    return (
        "One mark a corpus. The band is where one further corpus is expected with 95 % confidence if residuals are normal; the dotted line is the "
        "paper's fit to its own seven corpora, for reference."
    )


def _form_rows(law: Law | None, paper: Law) -> list[dict[str, Any]]:
    from certify_assets.research.law_points import PAPER_FORMS

    rows = []
    for fit in paper.forms:
        here = None if law is None else law.form(fit.form)
        rows.append(
            {
                "words": fit.words,
                "here": _cells(here),
                "reason": "" if here is None else here.reason,
                "again": _cells(fit),
                "published": [rate(value) for value in PAPER_FORMS.get(fit.form, ())] or [DASH] * 3,
                "main": fit.form == "law",
            }
        )
    return rows


def _cells(fit: FormFit | None) -> list[str]:
    if fit is None or fit.reason:
        return [DASH] * 3
    return [rate(value) for value in (fit.r2, fit.loocv_r2, fit.mae)]


def _row(item: Measured, law: Law | None) -> dict[str, Any]:
    point = item.point
    return {
        "point": point,
        "n_eff": count(point.n_eff),
        "plain": rate(item.plain_coverage),
        "source": item.source,
        "base_judge": item.base_judge,
        "cells": [DASH] * 4 if law is None else _influence_cells(law, point.corpus),
    }


def _influence_cells(law: Law, corpus: str) -> list[str]:
    item = next(item for item in law.influence if item.corpus == corpus)
    return [
        rate(item.coverage - item.fitted),
        rate(item.left_out),
        rate(item.leverage),
        rate(item.loocv_r2_without),
    ]


def _corpora(number: int) -> str:
    return "1 corpus" if number == 1 else f"{count(number)} corpora"
