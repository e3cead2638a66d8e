"""The labels that are there, put to certificates that are not in use yet, so that none is deployed which the monitor would stop at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.deployment_record import load_deployment
from certify_assets.operations.monitor_stream import operation_stream
from certify_assets.operations.monitoring import monitor_entry, monitor_judge, read_audit_sample
from certify_assets.operations.recertified import load_recertification
from certify_assets.operations.standing import Refusal

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = ["label_alarm", "watch"]

_NUMBER = re.compile(r"operations/[^/]+/recertifications/([0-9]+)/.*")


def label_alarm(
    judge: JudgedCorpus, key: str, certificates: Sequence[Certificate]
) -> Refusal | None:
    """Return the alarm that the labels of now raise against certificates; None where they raise none.

    Parameters
    ----------
    store, corpus, judge
    key : str
        Where the certificates lie: of a recertification, tasks that were complete when it was made may be in it, and stay out.
    certificates : sequence of Certificate

    Notes
    -----
    An alarm of the certificate in use says nothing of one with a wider budget or of another day; these labels do, and the false alarms of each are
    bounded by its own δ.
    """
    found = _NUMBER.fullmatch(key)
    after = (
        int(load_recertification(judge.corpus, int(found[1]))["labels"]["lines"]) if found else 0
    )
    sample = read_audit_sample(judge)
    for item in certificates:
        entries: list[dict[str, Any]] = []
        if sample is not None and not found:
            entries.append(monitor_entry(item, sample.scores, sample.outcomes, sample.tasks))
        stream = operation_stream(judge.corpus, item, after=after)
        if len(stream.tasks):
            entries.append(monitor_entry(item, stream.scores, stream.outcomes, stream.tasks))
        if raised := next((entry["result"] for entry in entries if entry["result"]["alarm"]), None):
            return Refusal(
                "alarm",
                f"the labels that are there raise an alarm for its {item.side} side at {item.alpha:g} after {raised['first_alarm_at']} tasks: the error is "
                "above the budget; recertify, or deploy another judge.",
            )
    return None


def watch(corpus: Corpus) -> None:
    """Put the labels that came since to the certificates in use, as the asset operation_monitor does, before they decide again."""
    deployment = load_deployment(corpus)
    if deployment is not None:
        monitor_judge(JudgedCorpus(corpus, deployment.judge))
