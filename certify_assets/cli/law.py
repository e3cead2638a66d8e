"""``certify research law``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import OPEN_SHARE, PATH, SHARE, Finite, out_option, store_option
from certify_assets.cli.output import (
    NOTHING,
    answer,
    answers,
    refuse_overwrite,
    table,
    write_document,
)
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.cli.output import TextTable
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
@answers
def law(
    points: Path | None,
    paper: bool,
    out: Path | None,
    store: Store,
    success_rate: float | None,
    auroc: float | None,
    n_eff: float | None,
    alpha: float,
) -> None:
    """Fit the certifiability law: coverage from success rate and base AUROC.

    POINTS is a table (CSV, Parquet, JSON Lines, or JSON) with the columns corpus, success_rate,
    auroc and coverage, and optionally n_eff and tasks. Without POINTS, the corpora of the data root
    are measured on CAL. Their AUROC is that of the judge base, which has seen no verdict. Every
    form is fitted leave-one-corpus-out. With --success-rate and --auroc a new corpus gets an
    expected coverage, its 95 % interval, and what the number rests on. Exit 3 where the data root
    has too few corpora for a fit.
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
    said = [
        *(f"Left out: {item['corpus']}: {item['reason']}" for item in document.get("left_out", ())),
        *(prediction.sentences if prediction else ()),
        *(item["message"] for item in document["findings"]),
        *document.get("facts", ()),
    ]
    blocks = [*_tables(document), *dict.fromkeys(said)]
    answer(document, *blocks, code=0 if fitted is not None else NOTHING)


def _fit(points: Path | None, store: Store, *, paper: bool) -> tuple[Law | None, JsonObject]:
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


def _tables(document: JsonObject) -> Iterator[TextTable]:
    """Return the corpora, what each does to the law, and every form that was fitted."""
    known = ("corpus", "success_rate", "auroc", "n_eff", "index", "coverage")
    yield table("Corpora; index = (1−π)(2A₀−1)", document["points"], known)
    if (law := document.get("law")) is None:
        return
    without = ("corpus", "left_out", "leverage", "loocv_r2_without")
    yield table("What each does to the law", law["influence"], without)
    fitted = ("words", "slope", "intercept", "r2", "loocv_r2", "mae", "reason")
    yield table("coverage = slope · form + intercept; s(K) = 1−exp(−n_eff/K)", law["forms"], fitted)
    if printed := document.get("published"):
        yield table("As the paper prints it", [{"form": name, **printed[name]} for name in printed])
