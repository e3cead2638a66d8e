"""``certify batch``: the risk-limiting audit of one finite batch, on plain tables."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from certify_assets.certificates.batch import Batch, BatchPlan
from certify_assets.certificates.batch_draw import (
    BatchCertificate,
    BatchDraw,
    SideDraw,
    certificate_sentence,
)
from certify_assets.certificates.batch_planning import History, plan_certified
from certify_assets.certificates.certificate_files import Choice, load_certificates
from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    OPEN_SHARE,
    SIDE,
    Finite,
    as_given,
    certificate_argument,
    out_option,
    scores_argument,
    split_option,
)
from certify_assets.cli.output import (
    NOTHING,
    OUT,
    PATH,
    answer,
    answers,
    figures,
    write_document,
    write_tables,
)
from certify_assets.cli.reading import (
    column_options,
    labelled,
    read_run_labels,
    read_scores,
    reading_words,
)
from certify_assets.documents import JsonObject
from certify_assets.errors import InputError
from certify_assets.files import read_json, sha256_file, write_json_atomic
from certify_assets.tables.drawn import (
    draw_rows,
    draw_sheet,
    keep_labels,
    names_of,
    read_draw,
    require_drawn,
    require_first_draw,
)
from certify_assets.tables.run_labels import RunLabels
from certify_assets.tables.settings import IssuedReading, ReadingOptions, reading_of
from certify_assets.words import WORDS

_BOTH: Final = "both"
_CLOSED: Final = (
    "certified",
    "side",
    "alpha",
    "delta",
    "runs",
    "decided",
    "labels_used",
    "errors_found",
    "state",
    "threshold",
)
# figures of a list that people are shown
_SHOWN: Final = 3


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what all three take: how tables are read."""
    for option in (answers, column_options, split_option):
        command = option(command)
    return command


@click.group()
def batch() -> None:
    """Certify one finite batch by labels drawn from it, even if its agents are new.

    `plan` fixes sets of runs before any draw. `draw` writes the runs to label, in order. `close`
    says whether the labels so far certify the batch. At most α of the decided runs are wrong then,
    with confidence 1 − δ over the draw alone.
    """


@batch.command()
@certificate_argument
@scores_argument
@click.option("--out", type=OUT, help="Write the plan here, for draw and close.")
@click.option("--history", type=PATH, help="Labelled past runs, to choose the sets.")
@click.option("--threshold", type=Finite(), metavar="SCORE", help="The one threshold to certify.")
@click.option(
    "--side",
    type=click.Choice([*SIDE.choices, _BOTH]),
    help="Side to plan; both share the risk limit. [default: each of CERTIFICATE]",
)
@click.option("--alpha", type=OPEN_SHARE, help="Error budget. [default: the certificate's]")
@click.option("--delta", type=OPEN_SHARE, help="Risk limit. [default: the certificate's]")
@_shared
def plan(
    certificate: Path,
    scores: Path,
    out: Path | None,
    split: str | None,
    reading: ReadingOptions,
    **asked: Any,
) -> None:
    """Choose the sets of runs whose certificate is expected to save the most review.

    Without --history, the sets are those at the certified thresholds. With --history or
    --threshold, CERTIFICATE may certify nothing. SCORES is the batch, with trajectory_id.
    """
    made, frozen, _ = _planned(certificate, scores, reading, split, **asked)
    if out is not None:
        write_json_atomic(out, made.to_dict())
    parts = BatchDraw(made, frozen, 0).sides
    sides = [{**part.plan.model_dump(mode="json"), "sets": _sets(part)} for part in parts]
    blocks = [f"{WORDS[part.plan.side].capitalize()}: {_start(part)}" for part in parts]
    if made.cut is not None:
        blocks.append(f"Scores up to {made.cut:g} may auto-fail, higher ones may auto-pass.")
    document = made.to_dict() | {"sides": sides}
    for name in ("expected_labels", "expected_net_share"):
        document[name] = math.fsum(item[name] for item in sides)
    answer(document | (sides[0] if len(sides) == 1 else {}), *blocks)


def _sets(part: SideDraw) -> list[JsonObject]:
    """Return the sets of a side with the labels that certify them."""
    errors = np.array(part.plan.weights) @ np.array(part.plan.means)
    predicted = dict(zip(part.plan.thresholds, errors.tolist(), strict=True))
    return [
        {
            "threshold": one.threshold,
            "runs": one.table.runs,
            "predicted_error": round(predicted[one.threshold], 6),
            "critical_value": one.table.critical_value,
            "labels": one.table.needed.tolist(),
        }
        for one in part.sets
    ]


def _start(part: SideDraw) -> str:
    """Say which labels certify what."""
    tables = [one.table for one in part.sets]
    needed = tables[0].needed.tolist()
    said = (
        f"Start with the surest {tables[0].runs:,} runs. They are certified if the first "
        f"{needed[0]:,} labels show no error"
    )
    if len(needed) > 1:
        said += f", or the first {needed[1]:,} at most one"
    if len(tables) > 1:
        said += f". Then widen to {' and '.join(f'{table.runs:,}' for table in tables[1:])}"
    return f"{said}. About {part.plan.expected_labels:,.0f} labels are expected."


@batch.command()
@certificate_argument
@scores_argument
@click.option(
    "--seed",
    type=NATURAL,
    required=True,
    help="Seed of the draw, taken by chance after the batch is complete.",
)
@click.option("--out", type=OUT, required=True, help="Write the runs to label here, as CSV.")
@click.option("--count", type=COUNT, help="Runs to draw. [default: all of the widest set]")
@_shared
def draw(
    certificate: Path,
    scores: Path,
    seed: int,
    out: Path,
    count: int | None,
    split: str | None,
    reading: ReadingOptions,
) -> None:
    """Draw the runs to label, in their order.

    CERTIFICATE is a plan, or a certificate whose thresholds are to be certified. The order follows
    from the seed and the hash of plan and batch; `close` computes it again. SCORES.draw.json keeps
    seed and hash. A second draw of the same batch is refused: choosing among draws would void the
    confidence.
    """
    keep_labels(out)
    found, _ = _drawn(certificate, scores, seed, reading, split)
    rows = draw_rows(found)[:count]
    require_first_draw(scores, found)
    write_tables((out, draw_sheet(rows)))
    document = {
        "runs": len(found.batch),
        "widest_set": len(found.order),
        "drawn": len(rows),
        "seed": seed,
        "batch_sha256": found.batch_sha256,
    }
    words = ["certify", "batch", "close", str(certificate), as_given(scores), str(out), "LABELS"]
    answer(
        document,
        *figures("Draw", document),
        f"Label the runs of {out} from the first on; you can close after any number of them.",
        f"next: {shlex.join([*words, *reading_words(reading)])}",
    )


@batch.command()
@certificate_argument
@scores_argument
@click.argument("drawn", metavar="DRAW", type=PATH)
@click.argument("labels", type=PATH)
@out_option
@_shared
def close(
    certificate: Path,
    scores: Path,
    drawn: Path,
    labels: Path,
    out: Path | None,
    split: str | None,
    reading: ReadingOptions,
) -> None:
    """Certify the batch by the labels of its draw; exit 3 until the risk limit is met.

    DRAW is the file as `draw` wrote it. LABELS has trajectory_id and outcome (0 or 1) of any part
    of the draw. In each set, labels count up to the first run without one.
    """
    seed, rows = read_draw(drawn)
    found, reading = _drawn(certificate, scores, seed, reading, split)
    require_drawn(drawn, rows, found, scores)
    given = read_run_labels(labels, reading)
    given.refuse_others(
        (row[1] for row in rows),
        f"which {drawn} does not have",
        "Label the runs of the draw, with the ids that they have there.",
    )
    # an unclear run has no label, and a set counts none beyond it
    outcomes = {name: outcome for name, outcome in given.outcomes.items() if outcome >= 0}
    results = found.close(outcomes)
    blocks: list[Any] = []
    for side, result in zip(found.sides, results, strict=True):
        blocks += figures("Batch certificate", result.to_dict(), most=_CLOSED)
        blocks.append(certificate_sentence(result, side.progress(outcomes)))
        blocks += _to_do(result.label_next, given, side.wrong)
    certified = any(result.certified for result in results)
    document = BatchCertificate.together(results)
    if out is not None:
        write_document(out, document)
        blocks.append(f"wrote {out}")
    answer(document, *blocks, code=0 if certified else NOTHING)


def _to_do(wanted: Sequence[str], given: RunLabels, wrong: int) -> Iterator[str]:
    """Say which of the runs that are wanted to settle, and which to label."""
    unclear = [name for name in wanted if name in given.outcomes]
    tied = [name for name in wanted if name in given.tied]
    for word, runs in (("Unclear", unclear), ("Tied", tied)):
        if runs:
            yield (
                f"{word}: {_shown(runs)}. Labels after such a run do not count. Settle it, or give "
                f"it the outcome {wrong}, which is an error."
            )
    if missing := [name for name in wanted if name not in {*unclear, *tied}]:
        yield f"Label next: {_shown(missing)}."


def _shown(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _SHOWN:,} more" if len(runs) > _SHOWN else ""
    return f"{', '.join(runs[:_SHOWN])}{more}"


def _drawn(
    path: Path, scores: Path, seed: int, reading: ReadingOptions, split: str | None
) -> tuple[BatchDraw, ReadingOptions]:
    """Return the draw of a seed, and how its tables are read."""
    try:
        document = read_json(path) if path.is_file() else None
    except InputError:
        # which names a table as one
        load_certificates(path)
        raise
    if not isinstance(document, dict) or document.get("schema") != BatchPlan.SCHEMA:
        made, frozen, reading = _planned(path, scores, reading, split)
        return BatchDraw(made, frozen, seed), reading
    made = BatchPlan.from_dict(document)
    reading = reading.under(IssuedReading(str(path), made.scores, made.score_range))
    return BatchDraw(made, _batch(scores, reading, split), seed), reading


def _planned(
    path: Path,
    scores: Path,
    reading: ReadingOptions,
    split: str | None,
    *,
    side: str | None = None,
    history: Path | None = None,
    **asked: float | None,
) -> tuple[BatchPlan, Batch, ReadingOptions]:
    """Plan a batch, and return how its tables are read."""
    issued = load_certificates(path, Choice(None if side == _BOTH else side))
    reading = reading.as_issued(path, issued)
    frozen = _batch(scores, reading, split)
    past = None if history is None else _history(history, reading)
    made = plan_certified(frozen, issued, side=side, history=past, **asked)
    if made is None:
        raise InputError(
            f"Labels of {scores} are expected to save no review. Review all of its runs, or name "
            "a --threshold."
        )
    return made.replace(scores=reading_of(issued[0].provenance)), frozen, reading


def _batch(scores: Path, reading: ReadingOptions, split: str | None) -> Batch:
    table = read_scores(scores, reading, outcomes=False).choose_split(split, required=True)
    tasks, runs = names_of(table)
    return Batch.of(runs, tasks, table.scores)


def _history(path: Path, reading: ReadingOptions) -> History:
    table = labelled(read_scores(path, reading, further=True))
    keep = np.isfinite(table.scores)
    if not keep.any():
        raise InputError(f"{path} has no scored row. Give labelled runs with scores.")
    return History(table.scores[keep], table.labels[keep].astype(np.int64), sha256_file(path))
