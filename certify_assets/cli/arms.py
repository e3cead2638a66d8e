"""``certify judge arms``: the candidates of a GRPO judge on CAL and TEST."""

from __future__ import annotations

from typing import Any

import click

from certify_assets.cli.options import corpus_option
from certify_assets.cli.output import emit_json, json_option, say, show_line, show_table
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import JUDGES

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
    type=click.Choice(tuple(name for name, spec in JUDGES.items() if spec.arms)),
    default="grpo",
    help="Which judge.",
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
    judged = JudgedCorpus(corpus, name)
    if not judged.store.exists(judged.key("adapter.json")):
        raise InputError(
            f"{name} was not trained on {corpus}; call `certify judge train {corpus} --judge "
            f"{name}` first."
        )
    document = _document(judged, audit=audit)
    if as_json:
        emit_json(document)
        return
    _show(document)


def _document(judge: JudgedCorpus, *, audit: bool) -> dict[str, Any]:
    from certify_assets.evaluation.arms_audit import audit_arms, load_arms_audit
    from certify_assets.reports.arms import MEANINGS, improvement
    from certify_assets.storage.progress import ProgressLines

    adapter = judge.artifact
    if audit:
        audit_arms(judge, report=ProgressLines(say))
    seen = load_arms_audit(judge) if judge.store.exists(judge.key("arms_audit.json")) else None
    pairs = zip(seen["plan"]["cells"], seen["brackets"], strict=True) if seen else ()
    return {
        "judge": judge.name,
        "corpus": judge.corpus.name,
        "chosen": adapter.details["chosen"],
        "selection_rule": adapter.selection_rule,
        "candidates": list(adapter.selection),
        "audit": seen,
        "sentences": [improvement(cell, found) for cell, found in pairs],
        "meanings": MEANINGS,
    }


def _show(document: dict[str, Any]) -> None:
    from certify_assets.reports.arms import arm_cells

    title = f"{document['judge']} on {document['corpus']}"
    if document["audit"] is None:
        rows = [
            [
                row["name"],
                f"{row['alpha']:g}",
                f"{row['coverage']:.3f}",
                f"{row['uncorrected']:.3f}",
            ]
            for row in document["candidates"]
        ]
        show_table(f"{title}: candidates on CAL", ["candidate", "alpha", "on CAL", "alone"], rows)
        show_line(
            f"Chosen: {document['chosen']}. TEST was not read for the arms yet; --audit does it."
        )
    for cell in arm_cells(document["audit"]) if document["audit"] else ():
        if cell.certified:
            shown = [
                [
                    r.name,
                    r.roles,
                    r.cal_auroc,
                    r.cal,
                    r.alone,
                    r.test_auroc,
                    r.test,
                    r.own,
                    r.error,
                    r.verdict,
                ]
                for r in cell.rows
            ]
            show_table(
                (
                    f"{title}: {cell.side}, alpha {cell.alpha:g} (gain {cell.gain}, regret "
                    f"{cell.regret})"
                ),
                _COLUMNS,
                shown,
            )
        show_line(cell.sentence)
    show_line(f"The choice: {document['selection_rule']}.")
    for word, meaning in document["meanings"].items():
        show_line(f"{word}: {meaning}.")
