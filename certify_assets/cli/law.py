"""``certify research law``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import OPEN_SHARE, PATH, SHARE, Finite, out_option, store_option
from certify_assets.cli.output import (
    NOTHING,
    emit_json,
    json_option,
    refuse_overwrite,
    short,
    show_line,
    show_table,
    write_document,
)
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.research.law import Law, LawPrediction
    from certify_assets.storage.store import Store


@click.command()
@click.argument("points", type=PATH, required=False)
@click.option(
    "--paper", is_flag=True, help="Use the paper's seven points, and print its table next to ours."
)
@click.option("--success-rate", type=SHARE, help="Success rate of the new corpus.")
@click.option("--auroc", type=SHARE, help="AUROC of the base judge on the new corpus.")
@click.option(
    "--n-eff",
    type=Finite(min=0, min_open=True),
    help="Effective trajectories of the new corpus, if known.",
)
@click.option("--alpha", type=OPEN_SHARE, default=0.1, help="Budget of the coverages.")
@out_option
@store_option
@json_option
@click.pass_context
def law(
    ctx: click.Context,
    /,
    points: Path | None,
    paper: bool,
    out: Path | None,
    store: Store,
    as_json: bool,
    success_rate: float | None,
    auroc: float | None,
    n_eff: float | None,
    alpha: float,
) -> None:
    """Fit the certifiability law: coverage from success rate and base AUROC.

    POINTS is a table (CSV, Parquet, JSON Lines, or JSON) with columns corpus, success_rate, auroc,
    coverage, and optionally n_eff and tasks; without it the corpora of the data root are used, each
    measured on CAL, its AUROC being that of the judge base, which has seen no verdict. Every form
    is fitted leave-one-corpus-out. With --success-rate and --auroc a new corpus gets an expected
    coverage, its 95 % interval, and what the number rests on. Exit 3 where the data root has too
    few corpora for a fit.
    """
    new = {"success_rate": success_rate, "auroc": auroc, "n_eff": n_eff}
    asked = any(value is not None for value in new.values())
    if asked and (success_rate is None or auroc is None):
        missing = "--success-rate" if success_rate is None else "--auroc"
        raise InputError(
            f"a prediction needs {missing}; give success rate and base AUROC of the new corpus."
        )
    if paper and points is not None:
        raise InputError("POINTS and --paper name two sets of points; give one of them.")
    refuse_overwrite({"--out": out}, {"POINTS": points})
    fitted, document = _fit(points, store, paper=paper)
    prediction = None
    if asked:
        prediction = _predict(fitted, document, {**new, "alpha": alpha})
        document["prediction"] = {**new, **prediction.to_dict()}
    if out is not None:
        write_document(out, document)
    if as_json:
        emit_json(document)
    else:
        _show(fitted, document, prediction, paper=paper)
    ctx.exit(0 if fitted is not None else NOTHING)


def _fit(points: Path | None, store: Store, *, paper: bool) -> tuple[Law | None, dict[str, Any]]:
    from certify_assets.files import rounded
    from certify_assets.research.certifiability import fit_measured, gather_points
    from certify_assets.research.law import fit_law, law_findings, read_points
    from certify_assets.research.paper import law_facts, law_forms, law_points

    if points is None and not paper:
        found = fit_measured(*gather_points(store))
        return found.law, found.to_dict()
    fitted = fit_law(law_points() if points is None else read_points(points))
    law_document = rounded(fitted.to_dict())
    document = {
        "points": law_document["points"],
        "law": law_document,
        "findings": [{"code": code, "message": message} for code, message in law_findings(fitted)],
    }
    if paper:
        document["published"] = law_forms()
        document["facts"] = list(law_facts())
    return fitted, document


def _predict(
    fitted: Law | None, document: Mapping[str, Any], new: Mapping[str, Any]
) -> LawPrediction:
    from certify_assets.research.law import predict_coverage

    if fitted is None:
        raise InputError(
            f"nothing can be predicted: {document['reason'].removesuffix('.')}. Certify more, "
            "or use --paper, which predicts from the paper's points."
        )
    return predict_coverage(fitted, **new)


def _show(
    fitted: Law | None,
    document: Mapping[str, Any],
    prediction: LawPrediction | None,
    *,
    paper: bool,
) -> None:
    _show_points(document["points"], fitted)
    if fitted is not None:
        _show_forms(fitted, paper=paper)
    for item in document.get("left_out", ()):
        show_line(f"Left out: {item['corpus']}: {item['reason']}")
    said = [
        *(prediction.sentences if prediction else ()),
        *(item["message"] for item in document["findings"]),
        *document.get("facts", ()),
    ]
    for sentence in dict.fromkeys(said):
        show_line(sentence)


def _show_points(points: Sequence[Mapping[str, Any]], fitted: Law | None) -> None:
    rows = []
    for point in points:
        size = "–" if point["n_eff"] is None else f"{point['n_eff']:.0f}"
        known = [short(point[name]) for name in ("success_rate", "auroc")]
        rows.append(
            [
                point["corpus"],
                *known,
                size,
                short(point["index"]),
                short(point["coverage"]),
            ]
        )
    if rows:
        show_table(
            "Corpora; index = (1−π)(2A₀−1)",
            ["corpus", "π", "A₀", "n_eff", "index", "coverage"],
            rows,
        )
    if fitted is not None:
        without = [
            [item.corpus, *map(short, (item.left_out, item.leverage, item.loocv_r2_without))]
            for item in fitted.influence
        ]
        show_table(
            "What each does to the law",
            ["corpus", "predicted by the others", "leverage", "LOOCV R² without"],
            without,
        )


def _show_forms(fitted: Law, *, paper: bool) -> None:
    from certify_assets.research.paper import law_forms

    rows = []
    for fit in fitted.forms:
        words = fit.words.replace("s(K), tuned", f"s({fit.k:g}) tuned") if fit.k else fit.words
        numbers = [
            short(value) for value in (fit.slope, fit.intercept, fit.r2, fit.loocv_r2, fit.mae)
        ]
        printed = " ".join(short(value) for value in law_forms().get(fit.form, {}).values())
        rows.append([words, *numbers, *([printed or "–"] if paper else [])])
    columns = ["form", "a", "b", "R²", "LOOCV R²", "MAE", *(["paper"] if paper else [])]
    show_table(
        f"coverage = a·form + b over {len(fitted.points)} corpora; s(K) = 1−exp(−n_eff/K)",
        columns,
        rows,
    )
    for fit in fitted.forms:
        if fit.reason:
            show_line(f"{fit.words} is not fitted: {fit.reason}.")
