"""The inputs of a certificate page in one shape: certificates, scores, audits, facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.certificates.inputs import UNCLEAR, UNLABELLED
from certify_assets.corpora import HALF_B
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import AgentError, Audit, Certificate, Sides
    from certify_assets.certificates.evidence import GivenPool
    from certify_assets.corpora.profile import CorpusProfile
    from certify_assets.judges.pool import StoredPool
    from certify_assets.operations.left_out_agents import LeftOutAgents

#: which procedure of several a page is about
DEPLOYED = "pseudo_task"


def recognised_scale(scores: NDArray[np.float64]) -> str:
    """Return "probability" where every score is from 0 to 1, else "score".

    Numbers do not say that they are log-odds: whoever knows it says so.
    """
    known = scores[np.isfinite(scores)]
    within = known.size and known.min() >= 0.0 and known.max() <= 1.0
    return "probability" if within else "score"


def deployed(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return those of the deployed procedure; where there is none, of the first one."""
    names = [item.procedure for item in certificates]
    wanted = DEPLOYED if DEPLOYED in names else names[0]
    kept = [item for item in certificates if item.procedure == wanted]
    return sorted(kept, key=lambda item: (item.alpha, item.side))


@dataclass(frozen=True)
class PageScores:
    """The rows of one split as arrays; rows without an outcome are counted.

    Drawn runs without a clear label stay, with the codes of a certificate (−1, −2).
    """

    tasks: list[str]
    scores: NDArray[np.float64]
    outcomes: NDArray[np.int8]
    unlabelled: int
    agents: list[str] | None = None

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> PageScores:
        """Read a score table."""
        missing = [name for name in ("task_id", "score", "outcome") if name not in frame.columns]
        if missing:
            raise InputError(
                f"the score table has no column {missing[0]}; give task_id, score and outcome."
            )
        outcome = np.asarray(frame["outcome"].astype("float64"))
        known = np.isfinite(outcome)
        if not np.isin(outcome[known], (0, 1, UNLABELLED, UNCLEAR)).all():
            raise InputError(
                "the score table has an outcome that is neither 0 nor 1; leave unknown "
                "outcomes empty."
            )
        return cls(
            tasks=[str(task) for task, keep in zip(frame["task_id"], known, strict=True) if keep],
            scores=np.asarray(frame["score"].astype("float64"))[known],
            outcomes=outcome[known].astype(np.int8),
            unlabelled=int((~known).sum()),
            agents=[str(name) for name, keep in zip(frame["agent"], known, strict=True) if keep]
            if "agent" in frame.columns
            else None,
        )

    @cached_property
    def labelled(self) -> PageScores:
        """Those rows of which the outcome is known."""
        known = np.flatnonzero(self.outcomes >= 0)
        return PageScores(
            tasks=[self.tasks[place] for place in known],
            scores=self.scores[known],
            outcomes=self.outcomes[known],
            unlabelled=self.unlabelled + self.outcomes.size - known.size,
            agents=None if self.agents is None else [self.agents[place] for place in known],
        )


@dataclass(frozen=True)
class PageSource:
    """Everything that the sections of one page read."""

    certificates: Sequence[Certificate]
    issued_on: PageScores
    audits: Sequence[Audit] = ()
    lineage: Mapping[str, str] = field(default_factory=dict)
    profile: CorpusProfile | None = None
    #: AUROC of the judge and of each control, by names that end in ``_auroc``
    controls: Mapping[str, float | None] = field(default_factory=dict)
    score_scale: str = "log-odds"
    #: every agent left out, where the judge's own training is known
    left_out: LeftOutAgents | None = None
    #: of the certificates, as year-month-day; empty where it is not known
    date: str = ""
    #: δ that this judge spent on this corpus, in words
    delta_spent: str = ""
    #: δ that both sides share, where they were certified together
    joint_delta: float | None = None
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

    @property
    def cal(self) -> PageScores:
        """The labelled rows that the certificates are of."""
        return self.issued_on.labelled

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
        from certify_assets.certificates import Sides

        return Sides.strictest(self.deployed)

    @cached_property
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
        from certify_assets.certificates import decide

        return [str(choice) for choice in decide(self.sides, self.cal.scores).decisions]

    @cached_property
    def agents(self) -> Sequence[AgentError]:
        """Every agent, decided by the headline's procedure without it; from three agents on."""
        from certify_assets.certificates import leave_one_agent_out

        if self.left_out is not None:
            return self.left_out.errors.get(self.headline.sha256, ())
        if self.cal.agents is None or self.drawn:
            # a draw without one agent is none
            return []
        return leave_one_agent_out(
            self.headline,
            self.cal.scores,
            self.cal.outcomes,
            np.array(self.cal.tasks),
            self.cal.agents,
        )

    @cached_property
    def agent_shifts(self) -> list[tuple[Certificate, str]]:
        """Certificates on which an agent that was left out is above the budget, and which."""
        from certify_assets.certificates.agents import agent_shift

        known = {self.headline.sha256: self.agents}
        if self.left_out is not None:
            known = dict(self.left_out.errors)
        found = ((c, agent_shift(known.get(c.sha256, ()), c.alpha)) for c in self.deployed)
        return [(certificate, sentence) for certificate, sentence in found if sentence]

    @property
    def evidence(self) -> str:
        """The rows that the certificates are of: CAL, with RL, or the half that a harvest left."""
        split = str(self.headline.provenance.get("split", ""))
        if split == HALF_B:
            return "half B of CAL"
        return "RL and CAL" if "rl" in split.split(" and ") else "CAL"

    @property
    def decided(self) -> float:
        """Return the share of scored runs that no reviewer sees."""
        return self.both.decided

    def pool_of(self, certificate: Certificate) -> GivenPool | None:
        """Return the pool that a certificate names, where the page was given one."""
        if "pool" not in certificate.inputs:
            return None
        return self.given_pool if self.pool is None else self.pool.pool

    def audit_of(self, certificate: Certificate) -> Audit | None:
        """Return the TEST audit of a certificate, matched by the certificate's hash."""
        return next((a for a in self.audits if a.certificate_sha256 == certificate.sha256), None)

    def verdict(self, certificate: Certificate) -> str:
        """Return the verdict of a certificate's audit: NONE where there is none."""
        audit = self.audit_of(certificate)
        return "NONE" if audit is None else audit.verdict

    def confidence(self, certificates: Iterable[Certificate]) -> float:
        """Return the confidence with which several certificates hold together."""
        from certify_assets.certificates import joint_confidence

        return joint_confidence(tuple(certificates), joint_delta=self.joint_delta)
