"""``certify batch``: the risk-limiting audit of one finite batch, on plain tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from certify_assets.cli.documents import Choice, load_certificates
from certify_assets.cli.options import (
    COUNT,
    NATURAL,
    OPEN_SHARE,
    PATH,
    SIDE,
    Finite,
    column_options,
    read_scores,
    split_option,
)
from certify_assets.cli.output import (
    FIGURES,
    NOTHING,
    emit_json,
    json_option,
    refuse_overwrite,
    say,
    show_line,
    show_table,
)
from certify_assets.errors import InputError
from certify_assets.evaluation.score_table import ColumnNames, read_labels
from certify_assets.evaluation.table_files import read_rows
from certify_assets.files import read_json, sha256_file, write_atomic, write_json_atomic

if TYPE_CHECKING:
    from certify_assets.certificates import Batch, BatchDraw, BatchPlan, Certificate, History
    from certify_assets.evaluation.score_table import ScoreTable

_COLUMNS: Final = ("order", "trajectory_id", "task_id", "seed", "batch_sha256", "level")


@dataclass(frozen=True)
class _Asked:
    """Options that plan, draw and close share."""

    split: str | None
    history: Path | None
    threshold: float | None
    side: str | None
    alpha: float | None
    delta: float | None
    columns: dict[str, str]

    @property
    def named(self) -> list[str]:
        """Options that a plan has fixed already."""
        names = ("history", "threshold", "side", "alpha", "delta")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


def _batch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all three share, and give them to the command as ``asked``."""

    @wraps(command)
    def asked(*given: Any, **options: Any) -> None:
        names = ("split", "history", "threshold", "side", "alpha", "delta")
        shared = {name: options.pop(name) for name in names}
        columns = {name: options.pop(name) for name in ("task_col", "score_col", "outcome_col")}
        command(*given, asked=_Asked(**shared, columns=columns), **options)

    for option in (
        click.option("--delta", type=OPEN_SHARE, help="Risk limit. [default: the certificate's]"),
        click.option("--alpha", type=OPEN_SHARE, help="Error budget. [default: the certificate's]"),
        click.option("--side", type=SIDE, help="Which certificate of a document of both sides."),
        click.option(
            "--threshold", type=Finite(), help="The one threshold to certify. [default: planned]"
        ),
        click.option(
            "--history",
            type=PATH,
            help="Score table of labelled past runs: candidate thresholds, prior and weights.",
        ),
        split_option,
        column_options,
        json_option,
    ):
        asked = option(asked)
    return asked


@click.group()
def batch() -> None:
    """Certify one finite batch by labels drawn from it, whatever its agents.

    `plan` fixes thresholds before any draw, `draw` writes the runs to label, in order, and `close`
    says whether the labels so far certify the batch: at most α of the runs that are decided are
    wrong, with confidence 1 − δ over the draw alone.
    """


@batch.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
@click.option("--out", type=PATH, help="Write the plan here; draw and close take it.")
@_batch_options
def plan(certificate: Path, scores: Path, out: Path | None, asked: _Asked, as_json: bool) -> None:
    """Choose thresholds, prior and weights by the share of the batch that they save.

    CERTIFICATE may certify nothing where --history has labelled past runs. A certified one without
    --history means its threshold and a uniform draw. SCORES is the batch, with trajectory_id.
    """
    given = {"CERTIFICATE": certificate, "SCORES": scores, "--history": asked.history}
    refuse_overwrite({"--out": out}, {name: path for name, path in given.items() if path})
    made = _plan(certificate, _batch(scores, asked), asked)
    if out is not None:
        write_json_atomic(out, made.to_dict())
    prior = [{"mean": mean, "strength": made.strength} for mean in made.predicted_errors]
    document = {
        **made.to_dict(),
        "prior": prior,
        "draw": "uniform" if made.risk is None else "weighted",
    }
    if as_json:
        emit_json(document)
        return
    names = ("side", "alpha", "delta", "draw", "expected_labels", "expected_net_share")
    show_table("Batch plan", FIGURES, [[name, str(document[name])] for name in names])
    rows = [
        [f"{value:g}", f"{mean:.3f}"]
        for value, mean in zip(made.thresholds, made.predicted_errors, strict=True)
    ]
    show_table("Sets, the strictest first", ["threshold", "predicted error"], rows)


@batch.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
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
    asked: _Asked,
    as_json: bool,
) -> None:
    """Draw the runs to label, in their order.

    CERTIFICATE is one or a plan. The order follows from the seed and the hash of plan and batch;
    `close` computes it again. SCORES.draw.json keeps the seed: another one for the same batch is
    refused, because draws that are repeated until one suits prove nothing.
    """
    given = {"CERTIFICATE": certificate, "SCORES": scores, "--history": asked.history}
    refuse_overwrite({"--out": out}, {name: path for name, path in given.items() if path})
    found = _draw(certificate, scores, seed, asked)
    _require_first_seed(scores, seed)
    rows = _rows(found)[:labels]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([_COLUMNS, *rows])
    write_atomic(out, stream.getvalue().encode("utf-8"))
    document = {
        "runs": len(found.batch),
        "widest_set": len(found.order),
        "drawn": len(rows),
        "seed": seed,
        "batch_sha256": found.batch_sha256,
        "thresholds": list(found.plan.thresholds),
    }
    if as_json:
        emit_json(document)
    else:
        show_table("Draw", FIGURES, [[name, str(value)] for name, value in document.items()])
        say(
            f"Label the runs of {out} in their order, and give the labels to `certify batch close`."
        )


@batch.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
@click.argument("drawn", metavar="DRAW", type=PATH)
@click.argument("labels", type=PATH)
@_batch_options
@click.pass_context
def close(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    drawn: Path,
    labels: Path,
    asked: _Asked,
    as_json: bool,
) -> None:
    """Certify the batch by the labels of its draw; exit 3 until the risk limit is met.

    DRAW is the file as `draw` wrote it. LABELS has trajectory_id and outcome (0 or 1), and may hold
    the first part of the draw.
    """
    found, allowed = _opened(certificate, scores, drawn, asked)
    outcomes = _labels(labels, asked.columns["outcome_col"])
    if strange := sorted(set(outcomes) - allowed):
        raise InputError(
            f"{labels} labels {strange[0]!r}, which {drawn} does not have ({len(strange)} such "
            "labels); label the runs of the draw, in its order."
        )
    result = found.close(outcomes)
    if as_json:
        emit_json(result.to_dict())
    else:
        rows = [[name, str(value)] for name, value in result.to_dict().items()]
        show_table("Batch certificate", FIGURES, rows)
        show_line(_sentence(result.status, result.decided, result.alpha))
        if result.certified and result.worth_more:
            show_line("More labels are expected to certify a wider set that saves more.")
    ctx.exit(0 if result.certified else NOTHING)


def _sentence(status: str, decided: int, alpha: float) -> str:
    if status == "certified":
        share = f"{100 * alpha:.10g}%"
        return f"At most {share} of the {decided} decided runs are wrong; correct those found."
    if status == "to_reviewers":
        return "More errors were found than the budget allows: every run goes to human review."
    return "The labels so far certify nothing; label more runs of the draw."


def _opened(
    certificate: Path, scores: Path, drawn: Path, asked: _Asked
) -> tuple[BatchDraw, set[str]]:
    """Compute the draw of a file again, and return it with the runs of the file.

    A file that is not the draw is refused.
    """
    names, columns, rows = read_rows(drawn, set(_COLUMNS))
    if set(_COLUMNS) - set(columns):
        raise InputError(
            f"{drawn} has the columns {', '.join(names[:12])}; give the file as `certify batch "
            f"draw` wrote it, with {', '.join(_COLUMNS)}."
        )
    written = [
        tuple(str(columns[name][place]) for name in _COLUMNS) for place in range(len(rows.numbers))
    ]
    seeds = {row[3] for row in written}
    # longer than any seed that `draw` takes: a number of thousands of digits is no number
    if len(seeds) != 1 or not re.fullmatch("[0-9]{1,1000}", seed := next(iter(seeds))):
        raise InputError(f"{drawn} does not name one seed; give it as the draw was written.")
    found = _draw(certificate, scores, int(seed), asked)
    if {row[4] for row in written} != {found.batch_sha256}:
        raise InputError(
            f"{drawn} is of another batch or plan than {scores} under {certificate}; give the "
            "files that were drawn from, with the same options."
        )
    expected = [tuple(map(str, row)) for row in _rows(found)]
    for place, row in enumerate(written):
        if place >= len(expected) or row != expected[place]:
            raise InputError(
                f"{drawn}, {rows.name(place)} is not what the seed draws: the file was edited; "
                "give it as it was written."
            )
    return found, {row[1] for row in written}


def _draw(certificate: Path, scores: Path, seed: int, asked: _Asked) -> BatchDraw:
    from certify_assets.certificates import BatchDraw

    frozen = _batch(scores, asked)
    return BatchDraw(_plan(certificate, frozen, asked), frozen, seed)


def _require_first_seed(scores: Path, seed: int) -> None:
    """Keep the seed of a batch next to its table; refuse another one."""
    trace = scores.with_name(f"{scores.name}.draw.json")
    now = {
        "schema": "certify_assets/draw_seed/1",
        "scores_sha256": sha256_file(scores),
        "seed": seed,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    before = read_json(trace) if trace.exists() else now
    same = isinstance(before, dict) and before.get("scores_sha256") == now["scores_sha256"]
    if same and before.get("seed") != seed:
        raise InputError(
            f"{scores} was drawn with seed {before.get('seed')} at {before.get('time')}; give that "
            "seed, since a draw that is repeated until it suits proves nothing. A second draw "
            "needs "
            f"a share of δ of its own: plan it with a smaller --delta, and move {trace} away."
        )
    if not same or before is now:
        write_json_atomic(trace, now)


def _rows(found: BatchDraw) -> list[tuple[int | str, ...]]:
    return [
        (
            number,
            found.batch.trajectories[place],
            found.batch.tasks[place],
            found.seed,
            found.batch_sha256,
            int(found.levels[place]),
        )
        for number, place in enumerate(found.order.tolist(), 1)
    ]


def _batch(scores: Path, asked: _Asked) -> Batch:
    from certify_assets.certificates import Batch

    table = read_scores(scores, **asked.columns).choose_split(asked.split, required=True)
    if table.trajectories is None:
        raise InputError(
            f"{scores} has no column trajectory_id; a draw names the runs to label by it."
        )
    return Batch.of(_texts(table.trajectories), _texts(table.tasks), table.scores)


def _texts(values: Sequence[Any] | Any) -> list[str]:
    return [str(value) for value in values]


def _plan(certificate: Path, frozen: Batch, asked: _Asked) -> BatchPlan:
    from certify_assets.certificates import BatchPlan, plan_batch
    from certify_assets.certificates.batch import SCHEMA

    document = read_json(certificate) if certificate.is_file() else None
    if isinstance(document, dict) and document.get("schema") == SCHEMA:
        if asked.named:
            raise InputError(
                f"{certificate} is a plan, which fixes {', '.join(asked.named)} already; leave "
                "these options out."
            )
        return BatchPlan.from_dict(document)
    item = _one(certificate, asked)
    history = None if asked.history is None else _history(asked)
    threshold = asked.threshold
    if threshold is None and history is None:
        threshold = item.threshold
    return plan_batch(
        frozen,
        side=item.side,
        alpha=item.alpha if asked.alpha is None else asked.alpha,
        delta=item.delta if asked.delta is None else asked.delta,
        threshold=threshold,
        predicted_error=item.selective_error if item.certified else None,
        history=history,
        certificate_sha256=item.sha256,
    )


def _one(certificate: Path, asked: _Asked) -> Certificate:
    """Return the certificate of the side, at the budget where the document has one of it.

    Of several procedures, as in a document of the platform, the deciding one counts.
    """
    from certify_assets.judges.specs import PROCEDURES

    found = load_certificates(certificate, Choice(asked.side))
    for chosen in (
        [item for item in found if item.alpha == asked.alpha],
        [item for item in found if item.procedure == PROCEDURES[0]],
    ):
        found = [item for item in found if item in chosen] or found
    if len(found) > 1:
        held = ", ".join(f"{item.procedure} {item.side} at {item.alpha:g}" for item in found)
        raise InputError(f"{certificate} holds {held}; choose one by --side and --alpha.")
    return found[0]


def _history(asked: _Asked) -> History:
    from certify_assets.certificates import History

    assert asked.history is not None
    table: ScoreTable = read_scores(asked.history, **asked.columns)
    outcomes = table.labelled()
    keep = np.isfinite(table.scores)
    if not keep.any():
        raise InputError(f"{asked.history} has no scored row; give labelled runs with scores.")
    return History(
        table.scores[keep],
        outcomes[keep].astype(np.int64),
        _texts(table.tasks[keep]),
        sha256_file(asked.history),
        () if table.agents is None else _texts(table.agents[keep]),
    )


def _labels(path: Path, outcome_col: str) -> dict[str, int]:
    """Read the outcomes of runs by trajectory_id; an empty one is no label yet."""
    ids, outcomes, rows = read_labels(path, ColumnNames(outcome=outcome_col))
    found: dict[str, int] = {}
    for place, (name, outcome) in enumerate(zip(ids.tolist(), outcomes.tolist(), strict=True)):
        if outcome >= 0 and found.setdefault(name, outcome) != outcome:
            raise InputError(
                f"{path}, {rows.name(place)} gives {name!r} another outcome than an earlier "
                "row; settle which one holds."
            )
    return found
