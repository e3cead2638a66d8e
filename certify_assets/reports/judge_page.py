"""Pages of the platform's own judges: what is stored in the data root, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import load_pool
from certify_assets.operations.audit import CertificateAudit, load_audits
from certify_assets.operations.certifier import load_certificates
from certify_assets.operations.spending import read_spending
from certify_assets.reports.page import home_of, inline_block, markdown_table, store_page
from certify_assets.reports.wording import percent, signed
from certify_assets.words import WORDS

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate, Sides
    from certify_assets.judges.record import JudgeRecord


def write_page(judge: JudgedCorpus) -> str:
    """Draw a judge's certificates on a corpus; return where the page is."""
    from certify_assets.reports.certificate_page import render_page

    cal, hashes, adapter = judge.calibration
    audits, _ = load_audits(judge)
    controls = judge.corpus.leak_checks.to_dict()
    certificates = load_certificates(judge)
    spending = read_spending(judge.corpus).of(judge.name)
    page = render_page(
        certificates,
        cal,
        title=f"{judge.corpus}, {judge} judge",
        audits=audits,
        lineage={
            **hashes,
            "training": str(judge.family.describe(adapter)),
            **reading_facts(judge, adapter),
            **({"answers": judge.unread} if judge.unread else {}),
        },
        profile=judge.corpus.profile,
        controls={name: value for name, value in controls.items() if name.endswith("_auroc")},
        canaries=canary_sentence(judge) if judge.canaries else "",
        certificate_file="certificates.json",
        scores_file="scores.parquet",
        # of other families the record has no name of a candidate
        arms=adapter.selection if "chosen" in adapter.details else (),
        chosen_arm=str(adapter.details.get("chosen", "")),
        delta_spent=spending.total(),
        pool=load_pool(judge, certificates),
        date=max((claim.time[:10] for claim in spending.tests), default=""),
        home=home_of(judge.key("page.html"), judge.corpus.name),
    )
    return store_page(judge.store, judge.key("page.html"), page)


def reading_facts(judge: JudgedCorpus, record: JudgeRecord) -> dict[str, str]:
    """Return what a judge reads of a run, and its prompt."""
    facts = {"reads": record.reads.describe()}
    prompt = (record.registered or {}).get("auditor", {})
    if judge.spec.uses_language_model:
        prompt = record.reads.prompt.model_dump()
        facts |= _base_model(judge, record)
    facts |= {f"prompt, {name}": str(text).strip() for name, text in prompt.items()}
    return {name: text for name, text in facts.items() if text}


def _base_model(judge: JudgedCorpus, record: JudgeRecord) -> dict[str, str]:
    """Return the language model that was read, and its commit or the hash of its files."""
    # as the training recorded it
    found = record.detail("provenance").get("settings", {})
    return {
        "base model": str(found.get("model") or judge.spec.model),
        "base model revision": str(found.get("revision") or judge.spec.revision or ""),
    }


def verdict(sides: Sides) -> str:
    """Return the verdict block of the certificate asset, short enough to be shown in line."""
    status = "**\N{EN DASH} Nothing certified**, every run to review"
    if sides.certified:
        decided, human = percent(sides.decided), percent(sides.human)
        status = f"**\N{CHECK MARK} {decided} decided**, {human} to review"
    rows = [
        (
            WORDS[item.side],
            percent(item.coverage) if item.certified else "nothing",
            f"≤{percent(item.alpha)}",
            percent(item.selective_error if item.certified else None),
            signed(item.threshold),
            f"{item.covered_tasks}/{item.tasks}",
        )
        for item in sides.certificates
    ]
    heads = ("side", "share", "budget", "error", "θ", "tasks")
    return inline_block([status, "", *markdown_table(heads, rows, tight=True)])


def gates(cal: pd.DataFrame, certificate: Certificate) -> str:
    """Return the three gates of the scores of CAL as a Markdown list."""
    from certify_assets.certificates import table_gates
    from certify_assets.judges.record import columns

    # the level tells among how many thresholds, chains and candidates δ is shared
    found = table_gates(
        *columns(cal),
        alpha=certificate.alpha,
        delta=certificate.delta,
        grid=certificate.delta / certificate.level,
    )
    return "\n".join(f"- {gate.sentence()}" for gate in found)


def canary_sentence(judge: JudgedCorpus) -> str:
    """Return how far texts that claim success lift failed runs, and whether that is too far."""
    found, most = judge.canaries, judge.corpus.config.canary_lift
    if found is None:
        return f"not measured. Materialize judges/{judge}/scores again."
    if found.worst is None or found.worst[1] <= most:
        return found.sentence()
    return f"{found.sentence()} The largest is above the limit of {most:g} (canary_lift)."


def audit_table(audits: Sequence[CertificateAudit]) -> str:
    """Return audits as a Markdown table: one row a side and a budget."""
    rows = [
        (
            WORDS[audit.side],
            f"{audit.alpha:g}",
            audit.verdict,
            "" if audit.realized_error is None else f"{audit.realized_error:.3f}",
            f"{audit.coverage:.3f}",
        )
        for audit in audits
    ]
    columns = ("side", "α", "verdict", "error on TEST", "coverage on TEST")
    return "\n".join(markdown_table(columns, rows))
