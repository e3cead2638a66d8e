"""Certificates of a judge on a corpus: registered, paid for, issued, stored, recomputed on demand.

A certificate is computed on the splits that its judge did not learn from, and names them. It holds
the hashes of artifact, renderer, manifest, scores and trajectories; every reader compares them with
the stored ones. Its δ is the share that its rows claimed. Its pool consists of stored scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.procedures import AVERAGE, PROMISED
from certify_assets.corpora.config import NAMED_JUDGE
from certify_assets.errors import (
    CertifyError,
    ForgedCertificateError,
    InputError,
    IntegrityError,
    StaleCertificateError,
    UnfitTableError,
)
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.pool import document_of, load_pool, rows_of, stored_pool, takes_pool
from certify_assets.judges.record import JudgeRecord, columns, runs_are_tasks
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES
from certify_assets.judges.stored import judge_file
from certify_assets.operations.certified_before import relabelling_finding
from certify_assets.operations.ledger import record_pool, register
from certify_assets.operations.spending import claim, read_spending
from certify_assets.storage.events import Stored
from certify_assets.storage.moment import remembered
from certify_assets.words import WORDS, at_most

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate, Certifier, Sides
    from certify_assets.certificates.evidence import Pool
    from certify_assets.certificates.inputs import SampleInputs
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.judges.judged import JudgedCorpus


def own_key(corpus: str, judge: str) -> str:
    """Return the key of the certificates that a judge has on CAL."""
    return judge_file(judge, corpus, "certificates.json")


def judges_with_certificates(corpus: Corpus) -> list[str]:
    """Return the names of the judges that have certificates on CAL, sorted."""
    # of this corpus alone: a judge that is stored on another one meanwhile says nothing here
    keys = corpus.store.subjects(corpus.name, Stored)
    found = sorted({key.split("/")[1] for key in keys if key.startswith("judges/")})
    return [name for name in found if corpus.store.exists(own_key(corpus.name, name))]


def certify_judge(judge: JudgedCorpus, *, run_id: str = "cli") -> list[Certificate]:
    """Register the read of TEST, claim δ, issue the certificates and store them.

    Issues both sides at all budgets with every procedure. If the default certifies nothing and
    every task has one run, certificates on average are issued too. Uses the stored scores and pool;
    nothing is trained or scored.
    """
    with judge.corpus.writing():
        return _certify(judge, run_id)


def _certify(judge: JudgedCorpus, run_id: str) -> list[Certificate]:
    from certify_assets.certificates import Certifier, Settings

    corpus, config = judge.corpus, judge.corpus.config
    cal, hashes, adapter = judge.calibration
    leak = corpus.require_leak_checks()
    shared = corpus.require_separate_tasks()
    candidates = paid_candidates(judge, adapter)
    provenance = {
        "corpus": corpus.name,
        "judge": judge.name,
        "split": judge.calibration_name,
        **hashes,
        "registration": register(corpus, _plan(judge, hashes), run_id=run_id),
    }
    if leak is not None:
        provenance["accepted_structural_leak"] = leak
    if shared is not None:
        provenance["accepted_shared_tasks"] = shared
    provenance |= judge.family.provenance(adapter) | relabelling_finding(judge)
    pool = stored_pool(judge) if any(map(takes_pool, PROCEDURES)) else None
    if pool is not None:
        record_pool(corpus, judge=judge.name, configuration=hashes, run_id=run_id)
    # the same test again has the same event, so that its certificates are the same
    test = _test_sha256(judge, cal, candidates, rows_of(pool))
    bare = Certifier.of(
        *columns(cal),
        named=True,
        alone=runs_are_tasks(cal),
        selection=adapter.selection_rule or None,
        provenance=provenance,
        claim=claim(corpus, judge.name, "certificate", test),
    )
    pooled = bare
    if pool is not None:
        pooled = replace(bare, pool=pool.pool, provenance={**provenance, **pool.provenance})
    common = {"grid": config.grid, "candidates": candidates}
    certificates = [
        (pooled if takes_pool(name) else bare).issue(
            Settings(alpha=alpha, side=side, procedure=name, **common)
        )
        for alpha in config.alphas
        for side in SIDES
        for name in PROCEDURES
    ]
    if not any(item.certified for item in deciding(certificates)):
        # where somebody chose which runs have a label, nothing is proved
        open_runs = replace(bare, left_out=judge.unlabelled_calibration)
        certificates += _on_average(open_runs, config.alphas, candidates)
    judge.store.write_json(judge.key("certificates.json"), document_of(certificates, pool))
    return certificates


def _plan(judge: JudgedCorpus, hashes: Mapping[str, str]) -> dict[str, Any]:
    """Return what is registered before TEST is read."""
    config = judge.corpus.config
    # no other judge: one that is added or changed would make the registrations of the rest new, and
    # what they saw of TEST before would not count
    plan: dict[str, Any] = {
        "manifest_sha256": hashes["manifest_sha256"],
        "seed": config.seed,
        "grid": config.thresholds(PROCEDURES[0]),
        "alphas": list(config.alphas),
        "delta": DELTA,
        "sides": list(SIDES),
        # the last one where the first certifies nothing
        "procedures": [*PROCEDURES, PROMISED[AVERAGE]],
        "judges": {judge.name: judge.registration},
        **judge.corpus.version.registered,
    }
    # left out at their defaults: what does not apply is not registered
    if config.judge != NAMED_JUDGE:
        plan["named_judge"] = config.judge
    if config.judges_compared > 1:
        plan["judges_compared"] = config.judges_compared
    if judge.calibration_splits != ("cal",):
        plan["certified_on"] = list(judge.calibration_splits)
    return plan


def _on_average(bare: Certifier, alphas: Sequence[float], candidates: int) -> list[Certificate]:
    """Try the promise on average, once the default certifies nothing at any budget."""
    from certify_assets.certificates import Settings

    found: list[Certificate] = []
    for alpha in alphas:
        # one run a task or nothing; of several judges or budgets from 1/2 there is no such promise
        with suppress(UnfitTableError, InputError):
            asked = Settings(alpha=alpha, procedure=PROMISED[AVERAGE], candidates=candidates)
            made = replace(bare, after=PROCEDURES[0]).issue_set([asked])
            found += made.certificates if made.certified else ()
    return found


@remembered
def load_certificates(judge: JudgedCorpus) -> list[Certificate]:
    """Return the stored certificates of a judge, recomputed; refuse stale and forged ones."""
    # a check guards only the run that it is in, this guards every reader
    from certify_assets.certificates import Certificate

    cal, hashes, adapter = judge.calibration
    whose = f"the certificates of {judge} on {judge.corpus}"
    again = f"materialize judges/{judge}/certificate again."
    document = judge.store.read_json(judge.key("certificates.json"))
    certificates = [Certificate.from_dict(item) for item in document["certificates"]]
    rows, split = judge.calibration_name, certificates[0].provenance["split"]
    if split != rows:
        raise StaleCertificateError(
            f"{whose} were made on {split}, and the judge is certified on {rows} now; {again}"
        )
    require_current(certificates, hashes, whose, again)
    pool = rows_of(load_pool(judge, certificates))
    test = _test_sha256(judge, cal, paid_candidates(judge, adapter), pool)
    claimed = read_spending(judge.corpus).certificates(judge.name)
    delta = next((item.delta for item in claimed if item.inputs_sha256 == test), None)
    for item in certificates:
        if item.ledger is not None:
            judge.store.require_held(item.ledger, f"a certificate of {judge}")
        if item.delta != delta:
            raise StaleCertificateError(
                f"{whose} were made at δ = {item.delta:g}, and the ledger grants them "
                f"{'nothing' if delta is None else f'{delta:g}'}; {again}"
            )
    require_recomputed(certificates, cal, pool, whose)
    return certificates


def require_current(
    certificates: Sequence[Certificate], hashes: Mapping[str, str], whose: str, remedy: str
) -> None:
    """Refuse certificates of other inputs than those that are stored now, by their hashes."""
    for item in certificates:
        for name, value in hashes.items():
            if item.provenance.get(name) != value:
                raise StaleCertificateError(
                    f"{whose} belong to another {name.removesuffix('_sha256')} than the stored "
                    f"one; {remedy}"
                )


#: what this process has recomputed: certificates by their bytes, their rows and their pool
_RECOMPUTED: set[tuple[str, ...]] = set()


def require_recomputed(
    certificates: Sequence[Certificate],
    table: pd.DataFrame,
    pool: Pool | None,
    whose: str,
    sample: SampleInputs | None = None,
) -> None:
    """Refuse certificates that do not recompute from their rows, their pool and their draw."""
    # once in a process: the same bytes of the same rows and pool recompute alike
    from certify_assets.certificates import CertificateSet, observe, verify

    rows = columns(table)
    about = (
        observe(*rows).sha256,
        pool.sha256 if pool else "",
        *(item.sha256 for item in certificates),
    )
    if about in _RECOMPUTED:
        return
    given, alone = CertificateSet(tuple(certificates)), runs_are_tasks(table)
    difference = verify(given, *rows, pool=pool, named=True, alone=alone, sample=sample)
    if difference is not None:
        raise ForgedCertificateError(f"{whose} do not recompute: {difference}")
    _RECOMPUTED.add(about)


def _test_sha256(judge: JudgedCorpus, cal: pd.DataFrame, candidates: int, pool: Pool | None) -> str:
    """Hash what a test on CAL depends on, whatever its budgets: the same again spends nothing."""
    scores, outcomes, tasks = columns(cal)
    rows = zip(tasks.tolist(), _digits(scores), outcomes.tolist(), strict=True)
    grid = judge.corpus.config.thresholds(PROCEDURES[0])
    about = {"rows": [list(row) for row in rows], "grid": grid, "candidates": candidates}
    if pool is not None:
        # the same rows with another pool are another test
        sizes = zip(pool.tasks.tolist(), _digits(pool.scores), strict=True)
        about["pool"] = sorted([pool.labels[task], score or ""] for task, score in sizes)
    return sha256_bytes(canonical_json(about))


def _digits(scores: NDArray[np.float64]) -> list[str | None]:
    # another machine trains the same judge up to the last digits
    return [None if np.isnan(score) else f"{score:.9g}" for score in scores.tolist()]


def deciding_certificates(judge: JudgedCorpus) -> list[Certificate]:
    """Return the stored certificates of the procedure that decides, recomputed."""
    return deciding(load_certificates(judge))


def deciding(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return those that keep a promise; of a side and budget the last one that was tried."""
    promised = [item for item in certificates if item.procedure in PROMISED.values()]
    return [*{(item.alpha, item.side): item for item in promised}.values()]


def deciding_sides(certificates: Sequence[Certificate]) -> Sides:
    """Return both sides as they decide: of the deciding procedure, the strictest budgets.

    Page, index, checks, metadata and deployment show these.
    """
    from certify_assets.certificates import Sides

    return Sides.strictest(deciding(certificates))


def certificate_of(
    certificates: Sequence[Certificate],
    *,
    side: str,
    alpha: float,
    procedure: str | None = PROCEDURES[0],
) -> Certificate:
    """Return the one certificate of a side and a budget, and of a procedure unless it is None."""
    for item in certificates:
        if (item.side, item.alpha) == (side, alpha) and procedure in (None, item.procedure):
            return item
    issued = sorted({f"{item.alpha:g}" for item in certificates if item.side == side})
    raise InputError(
        f"there is no {procedure or 'such'} certificate of {WORDS[side]} at α = {alpha:g}. "
        f"Budgets with a certificate: {' and '.join(issued) or 'none'}."
    )


def verify_stored(judge: JudgedCorpus) -> list[str]:
    """Score the certified runs again and recompute every certificate; return what differs first."""
    from certify_assets.certificates import Certificate

    if not np.array_equal(judge.rescored(), judge.calibration[0]["score"], equal_nan=True):
        return [
            "the stored adapter gives other scores than those certified. Materialize "
            f"judges/{judge}/scores again."
        ]
    documents = judge.store.read_json(judge.key("certificates.json"))["certificates"]
    try:
        pool = load_pool(judge, [Certificate.from_dict(item) for item in documents])
        if pool is not None and stored_pool(judge) != pool:
            return [
                f"the pool of the certificates of {judge} on {judge.corpus} is not the one that "
                f"was stored with its scores. Materialize judges/{judge}/certificate again."
            ]
        load_certificates(judge)
    except CertifyError as error:
        return [str(error)]
    return []


@remembered
def why_nothing(judge: JudgedCorpus) -> list[str]:
    """Return what stopped a side, a sentence for each side and budget without a certificate."""
    from certify_assets.certificates import diagnose, settings_of

    cal, _, _ = judge.calibration
    if judge.unread and cal["score"].isna().all():
        return [judge.unread]
    deciding = deciding_certificates(judge)
    pool, tasks = rows_of(load_pool(judge, deciding)), judge.corpus.profile.tasks

    def reason(item: Certificate) -> str:
        found = diagnose(*columns(cal), pool=pool, **dict(settings_of(item)))
        words = replace(found, corpus_tasks=tasks).sentence
        return f"{WORDS[item.side].capitalize()}, {at_most(item.alpha)}: {words}"

    return [reason(item) for item in deciding if not item.certified]


def paid_candidates(judge: JudgedCorpus, record: JudgeRecord) -> int:
    """Return what δ is divided by: the candidates of a judge, and the judges compared."""
    number = judge.spec.candidates
    if record.candidates < number:
        raise IntegrityError(
            f"the adapter document of {judge} on {judge.corpus} counts {record.candidates} "
            f"candidates, but the judge has {number}. Materialize judges/{judge}/model again."
        )
    return record.candidates * judge.corpus.config.judges_compared
