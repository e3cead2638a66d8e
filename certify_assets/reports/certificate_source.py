"""The inputs of a certificate page in one shape: certificates, scores, audits, facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from certify_assets.certificates import Sides
from certify_assets.corpora import HALF_B
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.certificates import Audit, Certificate
    from certify_assets.certificates.evidence import GivenPool
    from certify_assets.corpora.profile import CorpusProfile
    from certify_assets.judges.pool import StoredPool
    from certify_assets.judges.record import CandidateScore

#: which procedure of several a page is about
DEPLOYED = "pseudo_task"


def deployed(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return those of the procedure that was tried last, the deployed one, or the first one."""
    names = [item.procedure for item in certificates]
    later = [item.procedure for item in certificates if item.after]
    wanted = later[0] if later else DEPLOYED if DEPLOYED in names else names[0]
    kept = [item for item in certificates if item.procedure == wanted]
    return sorted(kept, key=lambda item: (item.alpha, item.side))


@dataclass(frozen=True, kw_only=True)
class PageSource:
    """Everything that the sections of one page read."""

    certificates: Sequence[Certificate]
    #: one split; columns task_id, score, outcome and perhaps trajectory_id, agent and link
    scores: pd.DataFrame
    audits: Sequence[Audit] = ()
    lineage: Mapping[str, str] = field(default_factory=dict)
    profile: CorpusProfile | None = None
    #: AUROC of each control, by names that end in ``_auroc``
    controls: Mapping[str, float | None] = field(default_factory=dict)
    canaries: str = ""
    score_scale: str = "log-odds"
    #: names of the command that verifies the page
    certificate_file: str = "CERTIFICATE.json"
    scores_file: str = "SCORES"
    labels_file: str = ""
    #: candidates that the judge was chosen from
    arms: Sequence[CandidateScore] = ()
    chosen_arm: str = ""
    #: of the certificates, as year-month-day; empty where it is not known
    date: str = ""
    #: δ that this judge spent on this corpus, in words
    delta_spent: str = ""
    #: scores and sizes of the tasks that certify nothing, where the procedure takes them
    pool: StoredPool | None = None
    #: … and the one that was given by hand
    given_pool: GivenPool | None = None

    def __post_init__(self) -> None:
        if not self.certificates:
            raise InputError(
                "a page needs at least one certificate; give what certify returned, certified "
                "or not."
            )

    @cached_property
    def issued_on(self) -> pd.DataFrame:
        """The rows that have an outcome; of drawn runs also the codes of unclear labels."""
        known = self.scores[self.scores["outcome"].notna()]
        types = {"outcome": "int8", "score": "float64", "task_id": str}
        return known.astype(types).reset_index(drop=True)

    @cached_property
    def cal(self) -> pd.DataFrame:
        """The labelled rows that the certificates are of."""
        rows = self.issued_on
        return rows[rows["outcome"] >= 0].reset_index(drop=True)

    @property
    def drawn(self) -> bool:
        """Whether the rows were drawn for labels."""
        return "sample" in self.headline.inputs

    @cached_property
    def deployed(self) -> list[Certificate]:
        """The deployed procedure's certificates; where there is none, those of the first given."""
        return deployed(self.certificates)

    @cached_property
    def both(self) -> Sides:
        """Both sides as they decide, each at the strictest budget that certifies."""
        return Sides.strictest(self.deployed)

    @property
    def headline(self) -> Certificate:
        """The certified one of the strictest budget, then of the larger share."""
        return self.both.lead

    @cached_property
    def sides(self) -> list[Certificate]:
        """The certified sides, the headline first."""
        return sorted(self.both.certified, key=lambda c: c is not self.headline) or [self.headline]

    @cached_property
    def decisions(self) -> list[str]:
        """Reject, release or human for each of their labelled runs; overlaps go to review."""
        return self._decided(self.cal)

    @cached_property
    def disagreements(self) -> pd.DataFrame:
        """Their labelled runs that were decided otherwise, the worst first; with run and link."""
        from certify_assets.certificates.sides import disagreements

        cal, decisions = self.cal, np.array(self.decisions)
        places = disagreements(decisions, cal["score"], cal["outcome"])
        rows = cal.iloc[places].assign(decision=decisions[places])
        run = rows.get("trajectory_id", pd.Series(rows.index + 1, rows.index)).astype(str)
        return rows.assign(run=run, link=rows.get("link", ""))

    @cached_property
    def counts(self) -> Counter[str]:
        """How many runs get each decision: of drawn ones also those that needed no label."""
        return Counter(self._decided(self.issued_on))

    def _decided(self, rows: pd.DataFrame) -> list[str]:
        from certify_assets.certificates import decide

        return [str(one) for one in decide(self.sides, rows["score"].to_numpy()).decisions]

    @property
    def evidence(self) -> str:
        """The rows that the certificates are of: CAL, with RL, or the half that a harvest left."""
        split = str(self.headline.provenance.get("split", ""))
        if split == HALF_B:
            return "half B of CAL"
        return "RL and CAL" if "rl" in split.split(" and ") else "CAL"

    def recomputing(self, certificate: Certificate) -> tuple[list[Any], dict[str, Any]]:
        """Return the columns and the settings by which a certificate is computed again."""
        from certify_assets.certificates import settings_of

        columns = [self.issued_on[name].to_numpy() for name in ("score", "outcome", "task_id")]
        pool = self.given_pool if self.pool is None else self.pool.pool
        named = pool if "pool" in certificate.inputs else None
        return columns, {**dict(settings_of(certificate)), "pool": named}

    def audit_of(self, certificate: Certificate) -> Audit | None:
        """Return the TEST audit of a certificate, matched by the certificate's hash."""
        return next((a for a in self.audits if a.certificate_sha256 == certificate.sha256), None)

    def verdict(self, certificate: Certificate) -> str:
        """Return the verdict of a certificate's audit: NONE where there is none."""
        audit = self.audit_of(certificate)
        return "NONE" if audit is None else audit.verdict

    @property
    def next_promise(self) -> str:
        """What the next promise costs; empty where no number of tasks helps."""
        from certify_assets.certificates import CertificateSet, Certifier, settings_of
        from certify_assets.certificates.ladder import next_rung

        columns, settings = self.recomputing(self.headline)
        sample = self.headline.inputs.get("sample")
        certifier = Certifier.of(*columns, pool=settings["pool"], sample=sample)
        found = CertificateSet(self.both.certificates)
        rung = next_rung(certifier, found, settings_of(self.headline))
        return "" if rung is None else rung.sentence

    @property
    def confidence(self) -> float:
        """The confidence with which the certified sides hold together."""
        from certify_assets.certificates import joint_confidence

        return joint_confidence(tuple(self.sides))
