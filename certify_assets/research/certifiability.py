"""Points of the certifiability law over the corpora of a data root, all read off CAL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.certificates import observe
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError, StaleCertificateError
from certify_assets.files import rounded
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, HARVEST_JUDGES, judges
from certify_assets.judges.stored import judge_file
from certify_assets.operations.certifier import certificate_of, load_certificates
from certify_assets.research import paper
from certify_assets.research.law import (
    ENOUGH_POINTS,
    FEWEST_POINTS,
    Law,
    LawPoint,
    fit_law,
    law_findings,
)
from certify_assets.research.paper import law_points
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate


CERTIFIABILITY_SCHEMA = "certify_assets/certifiability/2"
CERTIFIABILITY_KEY = "study/certifiability.json"
_PLAIN = "taskboot"
_DOUBTS = {
    "no_law",
    "no_prediction",
    "carries_the_fit",
}
#: whose AUROC on CAL is A₀: as the paper's, a judge that has seen no verdict of the corpus
BASE = "base"
_FLOOR = "lexical"


@dataclass(frozen=True)
class Measured:
    """A corpus's point and where its numbers come from."""

    point: LawPoint
    # whose certificate covers most; None where nobody's covers anything
    best_judge: str | None
    # best coverage of TaskBoot without the guard, the paper's procedure
    plain_coverage: float
    # of the certificate whose coverage this is; the base judge's where nothing is certified
    certificate_sha256: str
    # judges without certificates that hold now on this corpus
    without: tuple[str, ...] = ()
    # judges with them
    judges: int = 1

    @property
    def source(self) -> str:
        """Say in one sentence which judge and split each number comes from."""
        rows = "half B of CAL" if self.best_judge in HARVEST_JUDGES else "CAL"
        best = (
            f"coverage: certificate of {self.best_judge} on {rows}"
            if self.best_judge
            else "coverage: no judge certifies anything on CAL"
        )
        absent = (
            f"; without certificates that hold now: {', '.join(self.without)}"
            if self.without
            else ""
        )
        return f"success rate and n_eff: CAL; AUROC: {BASE} on CAL; {best}{absent}."

    def to_dict(self) -> dict[str, Any]:
        """Return the point with its sources as plain values."""
        return {
            **self.point.to_dict(),
            "best_judge": self.best_judge,
            "plain_coverage": self.plain_coverage,
            "certificate_sha256": self.certificate_sha256,
            "without": list(self.without),
            "source": self.source,
        }


@dataclass(frozen=True)
class Certifiability:
    """The law over a data root, or why there is none, next to the paper's."""

    measured: tuple[Measured, ...]
    left_out: tuple[tuple[str, str], ...]
    law: Law | None
    reason: str
    paper: Law

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """What a reader should know, as (code, sentence)."""
        found = (
            list(law_findings(self.law))
            if self.law
            else [("no_law", f"No line is fitted: {self.reason}")]
        )
        if not self.measured:
            return tuple(found)
        words = (
            f"A₀ is the AUROC of {BASE}, which has seen no verdict of the corpus, as the paper's."
        )
        found.append(("untrained_base", words))
        words = (
            "AUROC and coverage are read off the same CAL labels: a new corpus must give its AUROC "
            "before it is certified."
        )
        found.append(("one_split", words))
        number = max(item.judges for item in self.measured)
        words = (
            f"The coverage is the best of {number} judges at α = {ALPHAS[0]:g}, each certified by "
            f"itself: no level pays for this choice."
        )
        return (*found, ("best_of_judges", words))

    def to_dict(self) -> dict[str, Any]:
        """Return the document that is stored."""
        return {
            "schema": CERTIFIABILITY_SCHEMA,
            "alpha": ALPHAS[0],
            "points": [item.to_dict() for item in self.measured],
            "left_out": [{"corpus": corpus, "reason": reason} for corpus, reason in self.left_out],
            "law": rounded(self.law.to_dict()) if self.law else None,
            "reason": self.reason,
            "findings": [{"code": code, "message": message} for code, message in self.findings],
            "paper": {
                **rounded(self.paper.to_dict()),
                "published": paper.law_forms(),
                "facts": list(paper.law_facts()),
            },
        }


def gather_points(store: Store) -> tuple[tuple[Measured, ...], tuple[tuple[str, str], ...]]:
    """Return the points of corpora with certificates, and the others with the reason for none."""
    measured, left_out = [], []
    for corpus in registered_corpora(store):
        try:
            measured.append(measure(Corpus(store, corpus)))
        except CertifyError as error:
            left_out.append((corpus, str(error)))
    return tuple(measured), tuple(left_out)


def measure(corpus: Corpus) -> Measured:
    """Measure one corpus on CAL."""
    # TEST is not touched, so that a fit costs no read of it
    there = [
        name
        for name in judges(corpus.store.root)
        if corpus.store.exists(judge_file(name, corpus.name, "certificates.json"))
    ]
    loaded = _current(corpus, there, (BASE, _FLOOR))
    # size and success rate are those of CAL, in whose certificates they are
    anchor = next((name for name in (BASE, _FLOOR) if name in loaded), None)
    if anchor is None:
        raise InputError(
            f"{_FLOOR} has no certificates on {corpus}; materialize judges/{_FLOOR}/certificate "
            f"of this corpus."
        )
    if not corpus.store.exists(judge_file(BASE, corpus.name, "scores.json")):
        raise InputError(
            f"{BASE}, whose AUROC is A₀, has not scored {corpus}; call `certify judge train "
            f"{corpus} --judge {BASE}` and `certify judge score {corpus} --judge {BASE}`."
        )
    area = observe(*columns(JudgedCorpus(corpus, BASE).calibration[0])).auroc
    if area is None:
        raise InputError(
            f"CAL of {corpus} holds one outcome only, so {BASE} has no AUROC there; import runs "
            f"of both outcomes."
        )
    deciding = {
        name: certificate_of(items, side="reject", alpha=ALPHAS[0])
        for name, items in loaded.items()
    }
    plain = [
        certificate_of(items, side="reject", alpha=ALPHAS[0], procedure=_PLAIN)
        for items in loaded.values()
    ]
    best = max(deciding, key=lambda name: deciding[name].coverage)
    if not deciding[best].certified:
        best = anchor
    whole = deciding[anchor]
    return Measured(
        point=LawPoint(
            corpus=corpus.name,
            success_rate=whole.success_rate,
            auroc=rounded(area),
            coverage=deciding[best].coverage,
            n_eff=whole.n_eff,
            tasks=whole.tasks,
        ),
        best_judge=best if deciding[best].certified else None,
        plain_coverage=max(item.coverage for item in plain),
        certificate_sha256=deciding[best].sha256,
        judges=len(loaded),
        without=tuple(name for name in judges(corpus.store.root) if name not in loaded),
    )


def _current(
    corpus: Corpus, names: Sequence[str], needed: Sequence[str]
) -> dict[str, list[Certificate]]:
    """Return the certificates of each judge; a stale one counts only if it is needed."""
    loaded = {}
    for name in names:
        try:
            loaded[name] = load_certificates(JudgedCorpus(corpus, name))
        except (StaleCertificateError, InputError):
            if name in needed:
                raise
    return loaded


def fit_measured(
    measured: Sequence[Measured], left_out: Sequence[tuple[str, str]] = ()
) -> Certifiability:
    """Fit the law to measured corpora; where that cannot be done, say why and keep the points."""
    law, reason = (
        None,
        f"a fit needs certificates on {FEWEST_POINTS} corpora and here are {len(measured)}.",
    )
    if len(measured) >= FEWEST_POINTS:
        try:
            law, reason = fit_law([item.point for item in measured]), ""
        except InputError as error:
            reason = str(error)
    return Certifiability(tuple(measured), tuple(left_out), law, reason, fit_law(law_points()))


def law_metrics(found: Certifiability) -> dict[str, float]:
    """Return the numbers that Dagster and MLflow plot: the fit and the forms next to it."""
    if found.law is None:
        return {}
    metrics = {"slope": found.law.slope, "intercept": found.law.intercept}
    for name in ("law", "auroc_only", "parameter_free"):
        fit = found.law.form(name)
        metrics |= {
            f"{name}_{key}": value
            for key, value in (("loocv_r2", fit.loocv_r2), ("mae", fit.mae))
            if value is not None
        }
    return metrics


def write_certifiability(store: Store) -> Certifiability:
    """Gather, fit and store ``study/certifiability.json``."""
    found = fit_measured(*gather_points(store))
    store.write_json(CERTIFIABILITY_KEY, found.to_dict())
    return found


def doubts(store: Store) -> list[str]:
    """Return the warnings for readers of the stored model: few corpora, no fit, a weak fit."""
    document = store.read_json(CERTIFIABILITY_KEY)
    count = len(document["points"])
    few = [f"{count} corpora are fewer than {ENOUGH_POINTS}."] if count < ENOUGH_POINTS else []
    return few + [item["message"] for item in document["findings"] if item["code"] in _DOUBTS]
