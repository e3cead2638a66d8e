"""``certify decide``."""

from __future__ import annotations

from pathlib import Path

import click

from certify_assets.cli.documents import Choice, choice_options, load_certificates, one_a_side
from certify_assets.cli.options import PATH, column_options, read_scores, split_option
from certify_assets.cli.output import (
    NOTHING,
    emit_json,
    json_option,
    refuse_overwrite,
    show_line,
    show_table,
    write_tables,
)

_QUEUE_HELP = (
    "Write the rows that go to human review here (CSV, Parquet or JSON Lines). Names are written "
    "as they are; a CSV is refused where one begins like a formula, which a spreadsheet would run."
)


@click.command()
@click.argument("certificate", type=PATH)
@click.argument("scores", type=PATH)
@click.option("--queue", type=PATH, help=_QUEUE_HELP)
@click.option("--decisions", type=PATH, help="Write every row with its decision and reason here.")
@split_option
@choice_options
@column_options
@json_option
@click.pass_context
def decide(
    ctx: click.Context,
    /,
    certificate: Path,
    scores: Path,
    queue: Path | None,
    decisions: Path | None,
    split: str | None,
    side: str | None,
    alpha: float | None,
    procedure: str | None,
    as_json: bool,
    **columns: str,
) -> None:
    """Decide new trajectories: reject, release or human review.

    CERTIFICATE is one certificate, or a document with one a side; --side, --alpha and --procedure
    choose from a document of more. A row in both regions, an unscored row and every row where
    nothing was certified go to human review (exit 3 when nothing was certified at all).
    """
    from certify_assets.evaluation.decisions import decide_table

    refuse_overwrite(
        {"--queue": queue, "--decisions": decisions}, {"CERTIFICATE": certificate, "SCORES": scores}
    )
    certificates = one_a_side(
        certificate, load_certificates(certificate, Choice(side, alpha, procedure))
    )
    result = decide_table(
        certificates, read_scores(scores, **columns).choose_split(split, required=True)
    )
    write_tables((queue, result.queue()), (decisions, result.frame))
    counts = {name: result.count(name) for name in ("reject", "release", "human")}
    hashes = result.certificate_sha256
    if as_json:
        emit_json(
            {
                **counts,
                "reasons": result.reasons(),
                "certificate_sha256": hashes[0] if len(hashes) == 1 else list(hashes),
            }
        )
    else:
        total = max(1, sum(counts.values()))
        show_table(
            "Decisions",
            ["decision", "trajectories", "share"],
            [[name, str(n), f"{100 * n / total:.1f} %"] for name, n in counts.items()],
        )
        for reason, number in result.reasons().items():
            show_line(f"  {reason}: {number}")
    ctx.exit(0 if any(item.certified for item in certificates) else NOTHING)
