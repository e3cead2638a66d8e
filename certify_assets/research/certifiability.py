"""Points of the certifiability law over the corpora of a data root, all measured on CAL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from certify_assets.certificates import observe
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.profile import cluster_summary
from certify_assets.errors import CertifyError, InputError, StaleCertificateError
from certify_assets.files import rounded
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, HARVEST_JUDGES, judges
from certify_assets.judges.stored import judge_file
from certify_assets.operations.certifier import certificate_of, load_certificates
from certify_assets.research.law import ENOUGH_POINTS, Law, LawPoint, fit_law, law_findings
from certify_assets.storage.store import Store

CERTIFIABILITY_SCHEMA = "certify_assets/certifiability/5"
CERTIFIABILITY_KEY = "study/certifiability.json"
_DOUBTS = {"no_law", "no_prediction", "carries_the_fit"}
#: whose AUROC on CAL is A₀: as the paper's, a judge that has seen no verdict of the corpus
BASE = "base"
#: what every law over a data root rests on
_RESTS_ON = (
    ("untrained_base", f"A₀ is the AUROC of {BASE}, which has seen no verdict of the corpus."),
    ("one_split", "AUROC and coverage come from the same CAL labels."),
    (
        "best_of_judges",
        f"The coverage is that of the best judge at α = {ALPHAS[0]:g}. No level pays for this "
        "choice.",
    ),
)


@dataclass(frozen=True)
class Measured:
    """The point of a corpus, and the sources of its numbers."""

    point: LawPoint
    # whose certificate covers most; None where nobody's covers anything
    best_judge: str | None
    # judges without certificates that hold now
    without: tuple[str, ...]

    @property
    def source(self) -> str:
        """Say which judge and split each number comes from."""
        rows = "half B of CAL" if self.best_judge in HARVEST_JUDGES else "CAL"
        best = f"the certificate of {self.best_judge} on {rows}"
        absent = f"; without certificates that hold now: {', '.join(self.without)}"
        return (
            f"success rate and n_eff: CAL; AUROC: {BASE} on CAL; coverage: "
            f"{best if self.best_judge else 'no judge certifies anything on CAL'}"
            f"{absent if self.without else ''}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the point with its sources as plain values."""
        about = {"best_judge": self.best_judge, "without": list(self.without)}
        return {**self.point.to_dict(), **about, "source": self.source}


@dataclass(frozen=True)
class Certifiability:
    """The law over a data root, or the reason why it cannot be fitted."""

    measured: tuple[Measured, ...]
    left_out: tuple[tuple[str, str], ...]
    law: Law | None
    reason: str

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """Findings for the reader, as (code, sentence)."""
        nothing = (("no_law", f"No line is fitted: {self.reason}"),)
        found = law_findings(self.law) if self.law else nothing
        return (*found, *(_RESTS_ON if self.measured else ()))

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
        }


def gather_points(store: Store) -> tuple[tuple[Measured, ...], tuple[tuple[str, str], ...]]:
    """Return the points of corpora with certificates, and the reason for each other corpus."""
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
    store, every = corpus.store, judges(corpus.store.root)
    if not store.exists(judge_file(BASE, corpus.name, "scores.json")):
        raise InputError(
            f"{BASE}, whose AUROC is A₀, has not scored {corpus}; call `certify judge train "
            f"{corpus} --judge {BASE}` and `certify judge score {corpus} --judge {BASE}`."
        )
    cal = JudgedCorpus(corpus, BASE).calibration[0]
    area = observe(*columns(cal)).auroc
    if area is None:
        raise InputError(
            f"CAL of {corpus} holds one outcome only, so {BASE} has no AUROC there; import runs "
            f"of both outcomes."
        )
    deciding = {}
    for name in every:
        if store.exists(judge_file(name, corpus.name, "certificates.json")):
            try:
                issued = load_certificates(JudgedCorpus(corpus, name))
            except (StaleCertificateError, InputError):
                continue
            deciding[name] = certificate_of(issued, side="reject", alpha=ALPHAS[0])
    if not deciding:
        raise InputError(
            f"{corpus} has no certificates that hold now; call `certify run {corpus}`."
        )
    clusters = cluster_summary(cal)
    best = max(deciding, key=lambda name: deciding[name].coverage)
    return Measured(
        point=LawPoint(
            corpus=corpus.name,
            success_rate=rounded(clusters.success_rate),
            auroc=rounded(area),
            coverage=deciding[best].coverage,
            n_eff=rounded(clusters.n_eff),
            tasks=clusters.tasks,
        ),
        best_judge=best if deciding[best].certified else None,
        without=tuple(name for name in every if name not in deciding),
    )


def fit_measured(
    measured: Sequence[Measured], left_out: Sequence[tuple[str, str]] = ()
) -> Certifiability:
    """Fit the law to measured corpora; if that fails, say why and keep the points."""
    law, reason = None, ""
    try:
        law = fit_law([item.point for item in measured])
    except InputError as error:
        reason = str(error)
    return Certifiability(tuple(measured), tuple(left_out), law, reason)


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
