"""Computations of the certificate component: certificate, metadata, decisions and monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import numpy as np
import pandas as pd

from certify_assets.certificates import (
    CertificateSet,
    Certifier,
    audit_certificate,
    monitor_certificate,
)
from certify_assets.certificates.inputs import known_tasks, task_codes
from certify_assets.certificates.ladder import issue
from certify_assets.certificates.sides import budget_words
from certify_assets.tables.decisions import decide_table
from certify_assets.words import WORDS, number_of, percent

if TYPE_CHECKING:
    from certify_assets.tables.score_table import ScoreTable

_MEANING: Final = "https://github.com/certify-assets/certify_assets/blob/main/docs/promise.md"


def certified(table: ScoreTable, *, alpha: float, side: str, promise: str | None) -> CertificateSet:
    """Certify the labelled rows of a table; if it has splits, only those with split=cal."""
    certifier = Certifier.of(**table.choose_split("cal").labelled().evidence)
    return issue(certifier, {"alpha": alpha}, side=side, promise=promise)


def by_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Rename shares or counts by decision: reject becomes auto-fail, and so on."""
    return {word: values[name] for name, word in WORDS.items() if name in values}


def figures(found: CertificateSet, table: ScoreTable) -> dict[str, Any]:
    """Return the metadata of a certificate: its meaning, its figures, and a link to the promise."""
    sides, lead = found.sides, found.certificates[0]
    findings = {
        f"- {finding['code']}: {finding['message']}"
        for item in found.certificates
        for finding in item.findings
    }
    return {
        "what it means": dg.MetadataValue.md(f"**{sides.sentence}**\n\n{found.promise}"),
        "decided": sides.decided,
        **by_words(sides.shares),
        "at most": budget_words(lead),
        "confidence": 1 - lead.delta,
        "held out": _held_out(found, table),
        "runs": lead.trajectories,
        "tasks": lead.tasks,
        "findings": dg.MetadataValue.md("\n".join(sorted(findings)) or "none"),
        "promise": dg.MetadataValue.url(_MEANING),
    }


def _held_out(found: CertificateSet, table: ScoreTable) -> str:
    """Say what labelled rows with split=test show of the certified thresholds."""
    if table.splits is None or table.outcomes is None:
        return "no row has split=test"
    rows = table.take((table.splits == "test") & (table.outcomes >= 0))
    if not len(rows):
        return "no labelled row has split=test"
    said = []
    for item in found.certificates:
        audit = audit_certificate(item, rows.scores, rows.labels, rows.tasks)
        said.append(f"{WORDS[item.side]}: {audit.verdict}. {audit.reason}")
    return " ".join(said)


def decided(issued: CertificateSet, table: ScoreTable) -> tuple[dict[str, pd.DataFrame], str]:
    """Return the runs without an outcome as the frames auto_decided and needs_review.

    Runs in the middle between the thresholds come first for review. The sentence says how many
    of these tasks the certificate was computed from; it is empty if all are new.
    """
    if table.outcomes is not None:
        table = table.take(table.outcomes < 0)
    found = decide_table(issued.certificates, table)
    places = {
        "auto_decided": np.flatnonzero(found.rows.decisions != "human"),
        "needs_review": found.queue(),
    }
    known = known_tasks(issued.certificates[0].inputs, task_codes(table.tasks)[0])
    return (
        {name: pd.DataFrame(found.columns(place)) for name, place in places.items()},
        known.sentence.replace("give new tasks", "its promise is on new tasks"),
    )


def follow(issued: CertificateSet, table: ScoreTable) -> tuple[bool, str, dict[str, float]]:
    """Monitor each certified side on the labelled rows of new tasks.

    Returns whether there is an alarm, the result in words, and the e-value of each side.
    """
    certified = [item for item in issued.certificates if item.certified]
    if not certified:
        return False, "Nothing is certified.", {}
    rows = None
    if table.outcomes is not None:
        rows = table.take(table.outcomes >= 0)
        rows = rows if rows.splits is None else rows.take(rows.splits == "cal")
    names = () if rows is None else task_codes(rows.tasks)[0]
    if rows is None or known_tasks(certified[0].inputs, names).known.all():
        return False, "No new task is labelled yet.", {}
    said, values, alarm = [], {}, False
    for item in certified:
        found = monitor_certificate(item, rows.scores, rows.labels, rows.tasks)
        alarm |= found.alarm
        low, high = map(percent, found.interval)
        said.append(
            f"{WORDS[item.side]}: {'alarm' if found.alarm else 'no alarm'} after "
            f"{number_of(found.tasks, 'new task')}. Wrong: {found.errors:,} of "
            f"{number_of(found.covered_trajectories, 'decided run')}; the error is from {low} to "
            f"{high}. The e-value is {found.e_value:.3g}, alarm from {1 / item.delta:g}."
        )
        values[f"{WORDS[item.side]} e-value"] = found.e_value
    if alarm:
        said.append("Label more tasks, and materialize the certificate again.")
    return alarm, " ".join(said), values
