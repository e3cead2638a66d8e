"""Whether a certified judge may decide: its audit on TEST, and what its monitor last said. Every fault is a code and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.evaluation.audit import CertificateAudit, load_audits
from certify_assets.evaluation.ledger import ledger_violations
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.alarms import read_alarms
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

__all__ = ["REFUSALS", "Refusal", "alarm_fault", "audit_fault", "journal_fault"]

#: why nothing is decided by a judge, in the order in which it is asked
REFUSALS: Final = ("not_deployed", "stale_certificate", "no_certificate", "failed_audit", "alarm")


@dataclass(frozen=True)
class Refusal:
    """Why everything goes to people.

    Parameters
    ----------
    code : str
        One of `REFUSALS`, the reason of every row.
    sentence : str
        What is wrong, and the remedy.
    """

    code: str
    sentence: str

    def to_dict(self) -> dict[str, str]:
        """Return the refusal as a JSON object."""
        return {"code": self.code, "sentence": self.sentence}


def audit_fault(
    judge: JudgedCorpus, certificates: Sequence[Certificate], *, own: bool
) -> Refusal | None:
    """Return what the audit on TEST has against certificates.

    Parameters
    ----------
    store, corpus, judge
    certificates : sequence of Certificate
        Those that are to decide.
    own : bool
        Whether they are the judge's own on CAL, of which the audit must speak by their hashes. Those of a recertification were issued after
        TEST was read, so the audit of their side and budget counts.
    """
    if not judge.store.exists(judge.key("audits.json")):
        return Refusal(
            "failed_audit",
            f"the certificates of {judge} on {judge.corpus} were never read on TEST; materialize judges/{judge}/audit.",
        )
    try:
        audits, _ = load_audits(judge)
        broken = [
            entry
            for entry in ledger_violations(judge.corpus, judge.name)
            if entry.registration in _registrations(certificates)
        ]
    except CertifyError as error:
        return Refusal(
            "failed_audit", f"the audit of {judge} on {judge.corpus} cannot be read: {error}"
        )
    if broken:
        text = f"TEST of {judge.corpus} was read by {judge} against its registration ({broken[0].kind}, {broken[0].time}); its audit proves nothing."
        return Refusal("failed_audit", text)
    for item in certificates:
        found = [
            audit
            for audit in audits
            if (audit.certificate_sha256 == item.sha256 if own else _alike(audit, item))
        ]
        if not found:
            text = f"the {item.side} certificate of {judge} at {item.alpha:g} was not audited on TEST; materialize judges/{judge}/audit."
            return Refusal("failed_audit", text)
        if failed := next((audit for audit in found if audit.verdict == "ERROR"), None):
            return Refusal(
                "failed_audit",
                f"the audit of {judge} on {judge.corpus} failed, {item.side} at {item.alpha:g}: {failed.reason}",
            )
    return None


def journal_fault(corpus: Corpus, certificates: Sequence[Certificate]) -> Refusal | None:
    """Return the alarm of these certificates that stands in the journal of alarms, whatever became of its labels."""
    hashes = {item.sha256 for item in certificates}
    try:
        raised = next(
            (alarm for alarm in read_alarms(corpus) if alarm.certificate_sha256 in hashes), None
        )
    except (CertifyError, KeyError, TypeError, ValueError) as error:
        return Refusal(
            "alarm",
            f"the journal of alarms of {corpus} cannot be read ({error}), so an alarm may have been lost; restore it from a backup.",
        )
    if raised is None:
        return None
    text = (
        f"the monitor raised an alarm for the {raised.side} side at {raised.alpha:g} after {raised.at} tasks ({raised.time}): the error is above the "
        "budget; recertify, or deploy another judge."
    )
    return Refusal("alarm", text)


def alarm_fault(
    store: Store, certificates: Sequence[Certificate], folders: Sequence[str]
) -> Refusal | None:
    """Return the alarm that a monitor raised for any of these certificates.

    Parameters
    ----------
    store : Store
    certificates : sequence of Certificate
        Those that decide.
    folders : sequence of str
        Keys of the folders in which a ``monitor.json`` may lie.

    Notes
    -----
    The document is taken as it stands, also where labels came since: an alarm does not go away because its document is old.
    """
    hashes = {item.sha256 for item in certificates}
    for key in (f"{folder}/monitor.json" for folder in dict.fromkeys(folders)):
        if not store.exists(key):
            continue
        try:
            alarms = [entry for entry in store.read_json(key)["monitors"] if _raised(entry, hashes)]
        except (CertifyError, KeyError, TypeError):
            return Refusal(
                "alarm",
                f"{store.locate(key)} is no monitor document, so an alarm may have been lost; materialize the monitor again.",
            )
        if alarms:
            result, side = alarms[0]["result"], alarms[0]["side"]
            return Refusal(
                "alarm",
                f"the monitor raised an alarm for the {side} side at {alarms[0]['alpha']:g} after {result['first_alarm_at']} tasks: the error is "
                "above the budget; recertify, or deploy another judge.",
            )
    return None


def _raised(entry: dict[str, Any], hashes: set[str]) -> bool:
    return bool(entry["certificate_sha256"] in hashes and entry["result"]["alarm"])


def _alike(audit: CertificateAudit, item: Certificate) -> bool:
    return audit.side == item.side and audit.alpha == item.alpha


def _registrations(certificates: Sequence[Certificate]) -> set[str]:
    return {str(item.provenance.get("registration", "")) for item in certificates}
