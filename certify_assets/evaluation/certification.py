"""Certificates of one judge on one corpus: made, stored, recomputed on demand.

A certificate is of the splits that its judge did not learn from, and names them. It depends on the
hashes of artifact, renderer, manifest, scores and trajectories; every reader compares them with
what is stored now. Its δ is the share that its rows claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from certify_assets.corpora.config import NAMED_JUDGE
from certify_assets.errors import (
    CertifyError,
    ForgedCertificateError,
    InputError,
    IntegrityError,
    StaleCertificateError,
)
from certify_assets.evaluation.ledger import register
from certify_assets.evaluation.pool import (
    document_of,
    gather_pool,
    load_pool,
    pool_difference,
    takes_pool,
)
from certify_assets.evaluation.relabelling import relabelling_finding
from certify_assets.evaluation.spending import claim_certificate, read_spending
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import JudgeRecord, columns, runs_are_tasks
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES
from certify_assets.storage.snapshot import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate, Sides
    from certify_assets.certificates.pool import Pool
    from certify_assets.corpora.config import CorpusConfig


def certify_judge(
    judge: JudgedCorpus, *, run_id: str = "cli", procedures: Sequence[str] = PROCEDURES
) -> list[Certificate]:
    """Certify both sides at all budgets with every procedure, and register the read of TEST.

    Procedures that take a pool take every task that certifies nothing; see `pool.gather_pool`.
    """
    with judge.corpus.writing():
        return _certified(judge, run_id, procedures)


def _certified(judge: JudgedCorpus, run_id: str, procedures: Sequence[str]) -> list[Certificate]:
    from certify_assets.certificates import certify

    cal, hashes, adapter = judge.calibration
    leak = judge.corpus.require_leak_checks(hashes["manifest_sha256"])
    shared = judge.corpus.require_separate_tasks()
    require_paid(judge, adapter.candidates)
    config = judge.corpus.config
    plan = {**_plan(hashes["manifest_sha256"], config, judge), **judge.corpus.version.registered}
    # left out at their defaults: what does not apply is not registered
    if config.judge != NAMED_JUDGE:
        plan["named_judge"] = config.judge
    if config.judges_compared > 1:
        plan["judges_compared"] = config.judges_compared
    if judge.calibration_splits != ("cal",):
        plan["certified_on"] = list(judge.calibration_splits)
    registration = register(judge.corpus, plan, run_id=run_id)
    provenance = {
        "corpus": judge.corpus.name,
        "judge": judge.name,
        "split": judge.calibration_name,
        **hashes,
        "registration": registration,
    }
    if leak is not None:
        provenance["accepted_structural_leak"] = leak
    if shared is not None:
        provenance["accepted_shared_tasks"] = shared
    provenance |= judge.family.provenance(adapter) | relabelling_finding(judge)
    scores, outcomes, tasks = columns(cal)
    gathered, pool, of_pool = None, None, dict[str, str]()
    if any(map(takes_pool, procedures)):
        gathered = gather_pool(judge, run_id=run_id)
        pool, of_pool = gathered.pool, gathered.provenance
    candidates = paid_candidates(judge, adapter)
    # the same test again has the same event, so that its certificates are the same
    claim = claim_certificate(judge.corpus, judge.name, _test_sha256(judge, cal, candidates, pool))
    issued = [
        certify(
            scores,
            outcomes,
            tasks,
            alpha=alpha,
            delta=claim.delta,
            side=side,
            procedure=procedure,
            grid=config.grid,
            candidates=candidates,
            selection=adapter.selection_rule or None,
            pool=pool if takes_pool(procedure) else None,
            provenance={**provenance, **(of_pool if takes_pool(procedure) else {})},
            named=True,
            alone=runs_are_tasks(cal),
        )
        for alpha in config.alphas
        for side in SIDES
        for procedure in procedures
    ]
    certificates = [item.replace(ledger=claim.ledger) for item in issued]
    judge.store.write_json(judge.key("certificates.json"), document_of(certificates, gathered))
    return certificates


@remembered
def load_certificates(judge: JudgedCorpus) -> list[Certificate]:
    """Return the stored certificates of a judge, recomputed; refuse stale and forged ones."""
    # a check guards only the run that it is in, this guards every reader
    from certify_assets.certificates import Certificate

    cal, hashes, adapter = judge.calibration
    document = judge.store.read_json(judge.key("certificates.json"))
    certificates = [Certificate.from_dict(item) for item in document["certificates"]]
    rows = judge.calibration_name
    for certificate in certificates:
        if certificate.provenance.get("split", rows) != rows:
            raise StaleCertificateError(
                f"the certificates of {judge} on {judge.corpus} are of "
                f"{certificate.provenance['split']}, and {rows} certifies it now; materialize "
                f"judges/{judge}/certificate again."
            )
        stale = next(
            (name for name, value in hashes.items() if certificate.provenance.get(name) != value),
            None,
        )
        if stale is not None:
            raise StaleCertificateError(
                f"the certificates of {judge} on {judge.corpus} belong to another "
                f"{stale.removesuffix('_sha256')} than the stored one; materialize "
                f"judges/{judge}/certificate again."
            )
    pool = _pool(judge, certificates)
    delta = _claimed_delta(judge, _test_sha256(judge, cal, paid_candidates(judge, adapter), pool))
    for certificate in certificates:
        _require_held(judge, certificate)
        if certificate.delta != delta:
            raise StaleCertificateError(
                f"the certificates of {judge} on {judge.corpus} were made at δ = "
                f"{certificate.delta:g}, and the ledger gives them "
                f"{'nothing' if delta is None else f'{delta:g}'}; materialize "
                f"judges/{judge}/certificate again."
            )
        difference = recomputed_difference(
            certificate, cal, pool if takes_pool(certificate.procedure) else None
        )
        if difference is not None:
            raise ForgedCertificateError(
                f"a stored certificate of {judge} on {judge.corpus} does not recompute: "
                f"{difference}"
            )
    return certificates


def _require_held(judge: JudgedCorpus, certificate: Certificate) -> None:
    if certificate.ledger is None:
        raise ForgedCertificateError(
            f"a stored certificate of {judge} on {judge.corpus} names no event of the ledger; "
            f"materialize judges/{judge}/certificate again."
        )
    judge.store.require_held(certificate.ledger, f"a certificate of {judge}")


#: certificates that this process has recomputed, each by its bytes, its rows and its pool
_RECOMPUTED: set[tuple[str, str, str]] = set()
_MOST_RECOMPUTED: Final = 10_000


def recomputed_difference(
    certificate: Certificate, table: pd.DataFrame, pool: Pool | None
) -> str | None:
    """Return where a certificate differs from its recomputation; None where it does not.

    Recomputed once in a process: the same bytes of the same rows and pool recompute alike.
    """
    from certify_assets.certificates import verify_certificate
    from certify_assets.certificates.inputs import observe

    rows = columns(table)
    about = certificate.sha256, observe(*rows).sha256, "" if pool is None else pool.sha256
    if about in _RECOMPUTED:
        return None
    difference = verify_certificate(
        certificate, *rows, pool=pool, named=True, alone=runs_are_tasks(table)
    )
    if difference is None:
        if len(_RECOMPUTED) >= _MOST_RECOMPUTED:
            _RECOMPUTED.clear()
        _RECOMPUTED.add(about)
    return difference


def _pool(judge: JudgedCorpus, certificates: Sequence[Certificate]) -> Pool | None:
    """Return the pool that the certificates of a judge name, if it is that of the rule."""
    stored = load_pool(judge, certificates)
    return None if stored is None else stored.pool


def _test_sha256(judge: JudgedCorpus, cal: pd.DataFrame, candidates: int, pool: Pool | None) -> str:
    """Hash what a test on CAL depends on, whatever its budgets: the same again spends nothing."""
    scores, outcomes, tasks = columns(cal)
    rows = zip(tasks.tolist(), _digits(scores), outcomes.tolist(), strict=True)
    grid = judge.corpus.config.thresholds(PROCEDURES[0])
    about = {"rows": [list(row) for row in rows], "grid": grid}
    if pool is not None:
        # the same rows with another pool are another test
        sizes = zip(pool.tasks.tolist(), _digits(pool.scores), strict=True)
        about["pool"] = sorted([pool.labels[task], score or ""] for task, score in sizes)
    return sha256_bytes(canonical_json({**about, "candidates": candidates}))


def _digits(scores: NDArray[np.float64]) -> list[str | None]:
    # another machine trains the same judge up to the last digits
    return [None if np.isnan(score) else f"{score:.9g}" for score in scores.tolist()]


def _claimed_delta(judge: JudgedCorpus, test_sha256: str) -> float | None:
    """Return the δ that was claimed for a test; None where none was."""
    claimed = read_spending(judge.corpus).certificates(judge.name)
    return next((item.delta for item in claimed if item.inputs_sha256 == test_sha256), None)


def deciding_certificates(judge: JudgedCorpus) -> list[Certificate]:
    """Return the stored certificates of the procedure that decides, recomputed."""
    return deciding(load_certificates(judge))


def deciding(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return those of the procedure that decides."""
    return [item for item in certificates if item.procedure == PROCEDURES[0]]


def deciding_sides(certificates: Sequence[Certificate]) -> Sides:
    """Return both sides as they decide: of the deciding procedure, the strictest budgets.

    Page, index, checks, metadata and deployment show these.
    """
    from certify_assets.certificates import Sides

    return Sides.strictest(deciding(certificates))


def certificate_of(
    certificates: list[Certificate], *, side: str, alpha: float, procedure: str = PROCEDURES[0]
) -> Certificate:
    """Return the one certificate of a side, a budget and a procedure."""
    for certificate in certificates:
        if (
            certificate.side == side
            and certificate.alpha == alpha
            and certificate.procedure == procedure
        ):
            return certificate
    issued = " and ".join(
        f"{budget:g}"
        for budget in sorted({item.alpha for item in certificates if item.side == side})
    )
    remedy = (
        f"those of {issued} were issued: give one."
        if issued
        else "materialize the certificate asset."
    )
    raise InputError(
        f"there is no {procedure} certificate of the {side} side at alpha {alpha:g}; {remedy}"
    )


def verify_stored(judge: JudgedCorpus) -> list[str]:
    """Score the certified runs again and recompute every certificate; return what differs."""
    from certify_assets.certificates import Certificate, verify_certificate

    cal, hashes, _ = judge.calibration
    again = judge.rescored()
    if not np.array_equal(again, cal["score"].to_numpy(np.float64), equal_nan=True):
        return [
            "the stored adapter gives other scores than those certified; materialize "
            f"judges/{judge}/scores again."
        ]
    documents = judge.store.read_json(judge.key("certificates.json"))["certificates"]
    found = []
    try:
        certificates = [Certificate.parse(document)[0] for document in documents]
        stored = load_pool(judge, certificates)
    except CertifyError as error:
        return [str(error)]
    if difference := pool_difference(judge, stored):
        found.append(difference)
    pool = None if stored is None else stored.pool
    for certificate, document in zip(certificates, documents, strict=True):
        difference = verify_certificate(
            document,
            *columns(cal),
            pool=pool if takes_pool(certificate.procedure) else None,
            named=True,
            alone=runs_are_tasks(cal),
        )
        stale = [
            name
            for name, value in hashes.items()
            if document.get("provenance", {}).get(name) != value
        ]
        if difference is not None:
            found.append(difference)
        elif stale:
            found.append(
                f"provenance.{stale[0]} is not that of what is stored now; materialize "
                f"judges/{judge}/certificate again."
            )
    return found


def why_nothing(judge: JudgedCorpus) -> list[str]:
    """Return what stopped a side, a sentence for each side and budget without a certificate."""
    from certify_assets.certificates import diagnose, settings_of

    cal, _, _ = judge.calibration
    if judge.unread and cal["score"].isna().all():
        return [judge.unread]
    deciding = deciding_certificates(judge)
    pool, tasks = _pool(judge, deciding), judge.corpus.profile.tasks

    def reason(item: Certificate) -> str:
        found = diagnose(*columns(cal), pool=pool, **asdict(settings_of(item)))
        words = replace(found, corpus_tasks=tasks).sentence
        return f"{item.side.capitalize()} at {item.alpha:g}: {words}"

    return [reason(item) for item in deciding if not item.certified]


def require_paid(judge: JudgedCorpus, paid: int) -> None:
    """Refuse an artifact that counts fewer candidates than its judge has."""
    # the level of a certificate is divided by their number
    number = judge.spec.candidates
    if paid < number:
        raise IntegrityError(
            f"the adapter document of {judge} on {judge.corpus} counts {paid} candidates, and "
            f"the judge has {number}; materialize judges/{judge}/model again."
        )


def paid_candidates(judge: JudgedCorpus, record: JudgeRecord) -> int:
    """Return what δ is divided by: the candidates of a judge, and the judges compared."""
    return record.candidates * judge.corpus.config.judges_compared


class CertificationPlan(TypedDict):
    """What is registered before certificates are audited on TEST."""

    manifest_sha256: str
    seed: int
    grid: int
    alphas: list[float]
    delta: float
    sides: list[str]
    procedures: list[str]
    # what each family fixes of its judge
    judges: dict[str, object]


def _plan(manifest_sha256: str, config: CorpusConfig, judge: JudgedCorpus) -> CertificationPlan:
    # no other judge: one that is added or changed would make the registrations of the rest new, and
    # what they saw of TEST before would not count
    return {
        "manifest_sha256": manifest_sha256,
        "seed": config.seed,
        "grid": config.thresholds(PROCEDURES[0]),
        "alphas": list(config.alphas),
        "delta": DELTA,
        "sides": list(SIDES),
        "procedures": list(PROCEDURES),
        "judges": {judge.name: judge.registration},
    }
