"""``certify judge arms``: the candidates of a GRPO judge on CAL and TEST."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

import click

from certify_assets.cli.options import corpus_option
from certify_assets.cli.output import emit_json, json_option, show_line, show_table
from certify_assets.cli.progress import progress
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import judges

if TYPE_CHECKING:
    from certify_assets.evaluation.arms_audit import ArmsAudit
    from certify_assets.judges.record import JudgeRecord

_COLUMNS = [
    "candidate",
    "",
    "AUROC CAL",
    "on CAL",
    "alone",
    "AUROC TEST",
    "on TEST",
    "TEST's own",
    "error",
    "audit",
]


@click.command("arms")
@click.argument("corpus")
@click.option(
    "--judge",
    "name",
    default="grpo",
    show_default=True,
    help="Which judge of the family grpo; that of judges.yaml too.",
)
@click.option(
    "--audit",
    is_flag=True,
    help=(
        "Train missing controls, register every certificate, and read TEST for each through the "
        "ledger."
    ),
)
@corpus_option
@json_option
def arms(corpus: Corpus, name: str, audit: bool, as_json: bool) -> None:
    """Show the candidates that a GRPO judge was chosen among.

    `certify judge train CORPUS --judge grpo` trains the arms. Without --audit nothing is trained
    and TEST is not read: what an earlier audit found is shown, after checking it against the
    ledger.
    """
    from certify_assets.cli.launching import report_stored
    from certify_assets.evaluation.arms_audit import audit_arms, load_arms_audit
    from certify_assets.reports.arms import MEANINGS, improvement

    judged = JudgedCorpus(corpus, name)
    if not judged.spec.arms:
        known = [name for name, spec in judges(judged.store.root).items() if spec.arms]
        raise InputError(f"{name} has no arms; name one of {', '.join(known)}.")
    if not judged.store.exists(judged.key("adapter.json")):
        raise InputError(
            f"{name} was not trained on {corpus}; call `certify judge train {corpus} --judge "
            f"{name}` first."
        )
    record = judged.artifact
    if audit:
        with corpus.writing("judge arms"), progress() as report:
            audit_arms(judged, report=report)
            report_stored(corpus, "judge arms --audit", f"judges/{name}/arms_audit")
    done = judged.store.exists(judged.key("arms_audit.json"))
    seen = load_arms_audit(judged) if done else None
    if not as_json:
        _show(judged, record, seen)
        return
    pairs = zip(seen["plan"]["cells"], seen["brackets"], strict=True) if seen else ()
    emit_json(
        {
            "judge": name,
            "corpus": corpus.name,
            "chosen": record.details["chosen"],
            "selection_rule": record.selection_rule,
            "candidates": list(record.selection),
            "audit": seen,
            "sentences": [improvement(cell, found) for cell, found in pairs],
            "meanings": MEANINGS,
        }
    )


def _show(judge: JudgedCorpus, record: JudgeRecord, seen: ArmsAudit | None) -> None:
    from certify_assets.reports.arms import MEANINGS, arm_cells

    title = f"{judge} on {judge.corpus}"
    if seen is None:
        rows = [
            [
                row["name"],
                f"{row['alpha']:g}",
                f"{row['coverage']:.3f}",
                f"{row['uncorrected']:.3f}",
            ]
            for row in record.selection
        ]
        show_table(f"{title}: candidates on CAL", ["candidate", "alpha", "on CAL", "alone"], rows)
        show_line(
            f"Chosen: {record.details['chosen']}. TEST was not read for the arms yet; --audit does "
            "it."
        )
    for cell in arm_cells(seen) if seen else ():
        if cell.certified:
            show_table(
                f"{title}: {cell.side}, alpha {cell.alpha:g} (gain {cell.gain}, regret "
                f"{cell.regret})",
                _COLUMNS,
                [list(astuple(row)) for row in cell.rows],
            )
        show_line(cell.sentence)
    show_line(f"The choice: {record.selection_rule}.")
    for word, meaning in MEANINGS.items():
        show_line(f"{word}: {meaning}.")
