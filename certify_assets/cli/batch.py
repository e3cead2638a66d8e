"""``certify batch``: the risk-limiting audit of one finite batch, on plain tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from certify_assets.certificates import BatchCertificate, BatchPlan
from certify_assets.cli.batch_tables import (
    BOTH,
    COLUMNS,
    BatchOptions,
    draw_of,
    labels_of,
    plan_of,
    read_draw,
    require_first_draw,
)
from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    OPEN_SHARE,
    PATH,
    SIDE,
    Finite,
    certificate_argument,
    gathered,
    scores_argument,
    split_option,
)
from certify_assets.cli.output import (
    NOTHING,
    TextTable,
    answer,
    answers,
    answers_at_length,
    figures,
    refuse_overwrite,
    write_tables,
)
from certify_assets.cli.reading import column_options
from certify_assets.errors import InputError
from certify_assets.files import write_json_atomic

_CLOSED = (
    "certified",
    "side",
    "alpha",
    "delta",
    "runs",
    "decided",
    "labels_used",
    "errors_found",
    "threshold",
    "net_share",
    "worth_more",
)


_batch_options = gathered(
    "asked",
    BatchOptions,
    click.option("--delta", type=OPEN_SHARE, help="Risk limit. [default: the certificate's]"),
    click.option("--alpha", type=OPEN_SHARE, help="Error budget. [default: the certificate's]"),
    click.option(
        "--side",
        type=click.Choice([*SIDE.choices, BOTH]),
        help="Which certificate of a document of both sides; both certifies them together, "
        "from one draw at half the risk limit a side, with --history or the certified "
        "thresholds. [default: each that the document has]",
    ),
    click.option(
        "--threshold",
        type=Finite(),
        metavar="SCORE",
        help="The one threshold to certify. [default: planned]",
    ),
    click.option(
        "--history",
        type=PATH,
        help="Score table of labelled past runs: candidate thresholds, prior and weights.",
    ),
    split_option,
    column_options,
    answers_at_length,
    answers,
)


@click.group()
def batch() -> None:
    """Certify one finite batch by labels drawn from it, whatever its agents.

    `plan` fixes thresholds before any draw, `draw` writes the runs to label, in order, and `close`
    says whether the labels so far certify the batch: at most α of the runs that are decided are
    wrong, with confidence 1 − δ over the draw alone.
    """


@batch.command()
@certificate_argument
@scores_argument
@click.option("--out", type=PATH, help="Write the plan here; draw and close take it.")
@_batch_options
def plan(
    certificate: Path,
    scores: Path,
    out: Path | None,
    asked: BatchOptions,
) -> None:
    """Choose thresholds, prior and weights by the share of the batch that they save.

    CERTIFICATE may certify nothing where --history has labelled past runs. A certified one without
    --history means its threshold and a uniform draw, a document of both sides both of theirs.
    SCORES is the batch, with trajectory_id.
    """
    inputs = {"CERTIFICATE": certificate, "SCORES": scores, "--history": asked.history}
    refuse_overwrite({"--out": out}, inputs)
    made, _ = plan_of(certificate, scores, asked)
    if out is not None:
        write_json_atomic(out, made.to_dict())
    plans = made.sides.plans
    documents = [_shown(item) for item in plans]
    both = {
        "plans": documents,
        "cut": made.sides.cut,
        "expected_labels": math.fsum(item.expected_labels or 0 for item in plans),
        "expected_net_share": math.fsum(item.expected_net_share or 0 for item in plans),
    }
    names = ("side", "alpha", "delta", "draw", "expected_labels", "expected_net_share")
    blocks: list[Any] = []
    for item, document in zip(plans, documents, strict=True):
        blocks += figures("Batch plan", document, most=names)
        rows = [
            [f"{value:g}", f"{mean:.3f}"]
            for value, mean in zip(item.thresholds, item.predicted_errors, strict=True)
        ]
        blocks.append(
            TextTable("Sets, the strictest first", ["threshold", "predicted error"], rows)
        )
    if made.sides.cut is not None:
        blocks.append(f"Runs up to the score {made.sides.cut:g} may fail, the others pass.")
    elif made.both:
        blocks.append(
            f"Labels are expected to save nothing on the side that is not {plans[0].side}."
        )
    answer(both if made.both else documents[0], *blocks)


def _shown(plan: BatchPlan) -> dict[str, Any]:
    """Return a plan as the command prints it."""
    prior = [{"mean": mean, "strength": plan.strength} for mean in plan.predicted_errors]
    return {
        **plan.to_dict(),
        "prior": prior,
        "draw": "uniform" if plan.risk is None else "weighted",
    }


@batch.command()
@certificate_argument
@scores_argument
@click.option(
    "--seed",
    type=NATURAL,
    required=True,
    help="Seed of the draw, taken by chance after the batch is complete.",
)
@click.option("--out", type=PATH, required=True, help="Write the runs to label here, as CSV.")
@click.option("--labels", type=COUNT, help="Runs to draw. [default: all of the widest set]")
@_batch_options
def draw(
    certificate: Path,
    scores: Path,
    seed: int,
    out: Path,
    labels: int | None,
    asked: BatchOptions,
) -> None:
    """Draw the runs to label, in their order.

    CERTIFICATE is one or a plan. The order follows from the seed and the hash of plan and batch;
    `close` computes it again. SCORES.draw.json keeps seed and plan: another one for the same batch
    is refused, because draws that are repeated until one suits prove nothing.
    """
    inputs = {"CERTIFICATE": certificate, "SCORES": scores, "--history": asked.history}
    refuse_overwrite({"--out": out}, inputs)
    found = draw_of(certificate, scores, seed, asked)
    require_first_draw(scores, found, seed)
    rows = found.rows[:labels]
    frame = {
        name: np.array([row[place] for row in rows], dtype=object)
        for place, name in enumerate(COLUMNS)
    }
    write_tables((out, frame))
    counts = {
        "runs": len(found.sides.batch),
        "widest_set": len(found.sides.order),
        "drawn": len(rows),
        "seed": seed,
    }
    each = {
        item.plan.side: {
            "batch_sha256": item.batch_sha256,
            "thresholds": list(item.plan.thresholds),
        }
        for item in found.sides.sides
    }
    document = {**counts, **(each if found.both else next(iter(each.values())))}
    answer(
        document,
        *figures("Draw", document),
        f"Label the runs of {out} in their order, and give the labels to `certify batch close`.",
    )


@batch.command()
@certificate_argument
@scores_argument
@click.argument("drawn", metavar="DRAW", type=PATH)
@click.argument("labels", type=PATH)
@_batch_options
def close(
    certificate: Path,
    scores: Path,
    drawn: Path,
    labels: Path,
    asked: BatchOptions,
) -> None:
    """Certify the batch by the labels of its draw; exit 3 until the risk limit is met.

    DRAW is the file as `draw` wrote it. LABELS has trajectory_id and outcome (0 or 1), and may hold
    the first part of the draw.
    """
    found, allowed = read_draw(certificate, scores, drawn, asked)
    outcomes = labels_of(labels, drawn, allowed, found.reading)
    try:
        results = [
            item.close({name: outcomes[name] for name in names if name in outcomes})
            for item, names in zip(found.sides.sides, found.sides.orders, strict=True)
        ]
    except InputError as error:
        raise InputError(f"{labels}: {error}") from None
    certified = any(result.certified for result in results)
    blocks: list[Any] = []
    for result in results:
        blocks += [*figures("Batch certificate", result.to_dict(), most=_CLOSED), _sentence(result)]
        if result.certified and result.worth_more:
            blocks.append("More labels are expected to certify a wider set that saves more.")
    document = _together(results) if found.both else results[0].to_dict()
    answer(document, *blocks, code=0 if certified else NOTHING)


def _together(results: Sequence[BatchCertificate]) -> dict[str, Any]:
    """Return the document of both sides; certified where one of them is."""
    return {
        "certified": any(item.certified for item in results),
        "delta": math.fsum(item.delta for item in results),
        "runs": results[0].runs,
        **{
            name: sum(getattr(item, name) for item in results)
            for name in ("decided", "labels_used", "errors_found")
        },
        "certificates": [item.to_dict() for item in results],
    }


def _sentence(result: BatchCertificate) -> str:
    if result.status == "certified":
        share, sure = (f"{100 * number:.10g} %" for number in (result.alpha, 1 - result.delta))
        return (
            f"At most {share} of the {result.decided} decided runs are wrong, with confidence "
            f"{sure} over the draw. Correct the errors that the labels found."
        )
    if result.status == "to_reviewers":
        return "More errors were found than the budget allows: every run goes to review."
    wrong = f"The judge is wrong on {result.errors_found} of the {result.labels_used} labels"
    if result.worth_more:
        return f"{wrong}, which certify nothing yet; label more runs of the draw."
    return f"{wrong}, which certify nothing. More labels are not expected to save any review."
