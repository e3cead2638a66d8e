"""The platform from Python: a data root, its corpora, their judges and deployments.

A workspace sees the data root as of one moment, and what it writes itself.
Open one for a piece of work and drop it afterwards.

Every method that writes is one step: it stores all of its results, or none if something that it
read was replaced meanwhile. A block `with corpus.writing()` makes one step of several methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.root import default_root
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.corpora.config import CorpusConfig
    from certify_assets.corpora.corpus import DeliveryCheck
    from certify_assets.corpora.imported import ImportSummary
    from certify_assets.operations.audit import AuditResult
    from certify_assets.operations.audit_sample import SamplingPlan
    from certify_assets.operations.batches import BatchRecord
    from certify_assets.operations.deployment import Deployment, DeploymentRecord
    from certify_assets.operations.receiving import Received


_Opened = TypeVar("_Opened", bound="Corpus | JudgedCorpus")
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def _alone(
    step: Callable[Concatenate[_Opened, _Given], _Made],
) -> Callable[Concatenate[_Opened, _Given], _Made]:
    """Store all that a method writes in one step."""

    @wraps(step)
    def held(opened: _Opened, /, *given: _Given.args, **named: _Given.kwargs) -> _Made:
        corpus = opened.corpus if isinstance(opened, JudgedCorpus) else opened
        with corpus.writing():
            return step(opened, *given, **named)

    return held


@dataclass(frozen=True)
class Workspace:
    """A data root, opened for one piece of work.

    Parameters
    ----------
    store : Store
        The data root as of one moment.

    Examples
    --------
    >>> workspace = Workspace.open(".certify")           # doctest: +SKIP
    >>> judge = workspace.corpus("retail").judge("lexical")  # doctest: +SKIP
    >>> judge.train(); judge.score(); judge.certify()    # doctest: +SKIP
    """

    store: Store

    @classmethod
    def open(cls, root: str | None = None) -> Workspace:
        """Open a data root.

        Parameters
        ----------
        root : str, optional
            A folder or an fsspec URL; by default ``CERTIFY_ROOT``, else ``.certify``.
        """
        return cls(Store(root or default_root()).now())

    @property
    def corpora(self) -> list[str]:
        """Names of the embedded and the registered corpora, sorted."""
        return registered_corpora(self.store)

    def corpus(self, name: str) -> WorkspaceCorpus:
        """Open a corpus.

        Raises
        ------
        InputError
            If no such corpus is registered; the sentence lists those that are.
        """
        corpus = WorkspaceCorpus(self.store, name)
        _ = corpus.config
        return corpus


class WorkspaceCorpus(Corpus):
    """A corpus with its judges and its deployment."""

    prepare = _alone(Corpus.prepare)
    prepare_splits = _alone(Corpus.prepare_splits)
    make_splits = _alone(Corpus.make_splits)
    write_split = _alone(Corpus.write_split)
    write_splits = _alone(Corpus.write_splits)
    measure_profile = _alone(Corpus.measure_profile)
    measure_leaks = _alone(Corpus.measure_leaks)

    @_alone
    def import_trajectories(
        self, given: CorpusConfig | None = None, *, check: DeliveryCheck | None = None
    ) -> ImportSummary:
        """Read the source again, unless it labels only the runs of a batch that reviewers read."""
        from certify_assets.operations.returned_runs import checking_delivery

        return super().import_trajectories(given, check=check or checking_delivery(self))

    def judge(self, name: str) -> WorkspaceJudge:
        """Open a judge of this corpus, trained or not.

        Raises
        ------
        InputError
            If there is no such judge.
        """
        judge = WorkspaceJudge(self, name)
        _ = judge.spec
        return judge

    def deployment(self) -> Deployment:
        """Open the deployment; why nothing may be decided is its ``refusal``."""
        from certify_assets.operations.deployment import open_deployment

        return open_deployment(self)

    def decide(self, batch: str) -> BatchRecord:
        """Decide a received batch where it is not, by the deployment; return its decisions."""
        from certify_assets.operations.batches import decided
        from certify_assets.operations.deciding import decide_batch

        return decide_batch(self, batch) or decided(self, batch).content

    def receive(self, paths: Sequence[str] = (), *, format: str = "") -> Received:
        """Import new runs into a batch, from paths or from the inbox; nothing is decided yet."""
        from certify_assets.operations.receiving import receive

        return receive(self, paths, format=format)


class WorkspaceJudge(JudgedCorpus):
    """A judge on a corpus with its certificates and audits."""

    train = _alone(JudgedCorpus.train)
    score = _alone(JudgedCorpus.score)

    @_alone
    def certify(self) -> list[Certificate]:
        """Certify both sides at every budget with every procedure on CAL, and store the result."""
        from certify_assets.operations.certifier import certify_judge

        return certify_judge(self)

    @property
    def certificates(self) -> list[Certificate]:
        """Stored certificates, recomputed from the stored scores.

        Raises
        ------
        StaleCertificateError, ForgedCertificateError
            If they belong to other data than is stored now, or do not recompute.
        """
        from certify_assets.operations.certifier import load_certificates

        return load_certificates(self)

    @_alone
    def audit(self) -> AuditResult:
        """Read TEST through the ledger and audit every certificate that decides."""
        from certify_assets.operations.audit import audit_judge

        return audit_judge(self)

    @_alone
    def deploy(
        self,
        *,
        alpha: float | None = None,
        sampling: SamplingPlan | None = None,
        accepted: Collection[str] = (),
    ) -> DeploymentRecord:
        """Let this judge decide the batches of the corpus from now on.

        `accepted` lists what would otherwise be refused. "resplit_accepted": the runs were first
        certified under another split. "chosen_among_judges": certificates chose the judge without
        a smaller δ. "relabelling_accepted": labels or runs were changed after a certificate.

        Raises
        ------
        GateClosedError
            If nothing is certified at the budget, the audit failed or an alarm was raised. Also in
            the three cases of `accepted`, unless they are listed there.
        """
        from certify_assets.operations.deploying import deploy

        return deploy(self, alpha=alpha, sampling=sampling, accepted=accepted)
