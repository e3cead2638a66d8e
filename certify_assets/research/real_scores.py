"""Every procedure on real scores: certified on CAL, audited on TEST, and on TEST's own scores.

RL is the pilot of betting. The other splits that the judge has scored are the pool of
`pseudo_task`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.certificates import (
    Settings,
    evaluate,
    measure_threshold,
    observe,
    resample_audit,
    table_gates,
)
from certify_assets.certificates.clustering import ClusterSummary
from certify_assets.certificates.evidence import as_pool
from certify_assets.certificates.gates import GateResult
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.profile import cluster_summary
from certify_assets.documents import Document
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, rounded, sha256_bytes, significant
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import takes_pool
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, SIDES, judges
from certify_assets.operations.audit import load_audits
from certify_assets.operations.certifier import load_certificates
from certify_assets.operations.comparison import labelled_rows
from certify_assets.operations.ledger import LedgerEntry, announce_study, record_result

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Evaluation, Observations
    from certify_assets.certificates.evidence import Pool

#: thresholds of the procedures that do not state their own number, as in the paper
GRID = 40
#: the paper's five on real scores, and ours next to them; betting takes its bets from the RL split
REAL_PROCEDURES = (
    "pseudo_task",
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "taskboot",
    "guarded_taskboot",
    "betting",
)
#: task resamples of the naive audit, the paper's
NAIVE_DRAWS = 3000


def real_scores_key(corpus: str) -> str:
    """Return the key of a corpus's document."""
    return f"real_scores/{corpus}.json"


@dataclass(frozen=True, kw_only=True)
class ScoreCell:
    """A procedure on one side at one budget."""

    side: str
    alpha: float
    procedure: str
    certified: bool
    # certified on CAL
    coverage: float
    # of that threshold on TEST, as error and verdict
    test_coverage: float
    test_error: float | None
    verdict: str | None
    # certified on TEST's own scores, as in the paper; nobody deploys such a threshold
    on_test: float


@dataclass(frozen=True, kw_only=True)
class NaiveAudit:
    """How often resampled tasks exceed α at the naive certificate's threshold on TEST."""

    alpha: float
    coverage: float
    threshold: float | None
    exceedance: float | None = None
    draws: int = NAIVE_DRAWS


@dataclass(frozen=True, kw_only=True)
class JudgeScores:
    """Every procedure on the scores of one judge."""

    judge: str
    auroc_test: float | None
    cells: tuple[ScoreCell, ...]
    naive_audit: tuple[NaiveAudit, ...]

    def cell(self, side: str, alpha: float, procedure: str) -> ScoreCell | None:
        """Return one cell; None where it was not run."""
        wanted = (side, alpha, procedure)
        return next(
            (one for one in self.cells if (one.side, one.alpha, one.procedure) == wanted), None
        )


@dataclass(frozen=True)
class BaseGates:
    """The three gates, with the judge whose AUROC is A₀."""

    base: str
    gates: tuple[GateResult, ...]


@dataclass(frozen=True)
class UnauditedJudge:
    """A judge whose certificates or audits are not valid now, and why."""

    judge: str
    reason: str


class RealScores(Document):
    """The stored document of a corpus."""

    TITLE = "document of real scores"
    SCHEMA = "certify_assets/real_scores/1"

    corpus: str
    alphas: tuple[float, ...] = ALPHAS
    delta: float = DELTA
    grid: int = GRID
    cal: ClusterSummary
    test: ClusterSummary
    judges: tuple[JudgeScores, ...]
    gates: BaseGates
    missing: tuple[UnauditedJudge, ...]

    def judge(self, name: str) -> JudgeScores | None:
        """Return the part of a judge; None if it was not audited."""
        return next((one for one in self.judges if one.judge == name), None)


@dataclass(frozen=True, eq=False)
class _Certifying:
    """A calibration table, the pilot of betting and a pool, each sorted once."""

    table: Observations
    pilot: Observations | None
    pool: Pool | None

    @classmethod
    def of(
        cls, table: pd.DataFrame, pilot: pd.DataFrame, others: Sequence[pd.DataFrame]
    ) -> _Certifying:
        """Take score tables; the pool is the other ones without their outcomes."""
        import pandas as pd

        return cls(
            observe(*columns(table)),
            None if pilot.empty else observe(*columns(pilot)),
            as_pool(columns(pd.concat(others))[::2]),
        )

    def evaluate(self, settings: Settings) -> Evaluation:
        """Test every threshold by a procedure, without the findings of a certificate."""
        pilot, pooled = settings.method.pilot, settings.method.calibrated
        return evaluate(
            self.table, settings, self.pilot if pilot else None, self.pool if pooled else None
        )


def _settings(name: str, side: str, alpha: float) -> Settings:
    """Return the settings of a procedure; one that reads a pool has its own grid."""
    own = None if takes_pool(name) else GRID
    return Settings(alpha=alpha, delta=DELTA, side=side, grid=own, procedure=name)


@dataclass(frozen=True, eq=False)
class _Tables:
    """Score tables of one judge: labelled rows of CAL and TEST, and of RL for bets."""

    cal: pd.DataFrame
    test: pd.DataFrame
    pilot: pd.DataFrame


def write_real_scores(corpus: Corpus, *, run_id: str = "cli") -> RealScores:
    """Run every procedure on the scores of every audited judge; store the document."""
    audited, missing = _audited(corpus)
    if not audited:
        raise InputError(
            f"no judge was audited on {corpus}; materialize judges/lexical/audit of this corpus."
        )
    entry = _announced(corpus, audited, run_id)
    tables = {judge.name: _tables(judge) for judge in audited}
    base = next((name for name in ("base", "lexical") if name in tables), audited[0].name)
    found = RealScores(
        corpus=corpus.name,
        cal=cluster_summary(tables[base].cal),
        test=cluster_summary(tables[base].test),
        judges=tuple(_judge(name, one) for name, one in tables.items()),
        gates=BaseGates(base, _gates(tables, base)),
        missing=missing,
    )
    document = rounded(found.to_dict())
    corpus.store.write_json(real_scores_key(corpus.name), document)
    record_result(corpus.store, entry, sha256_bytes(canonical_json(document)))
    return RealScores.from_dict(document)


def _audited(corpus: Corpus) -> tuple[list[JudgedCorpus], tuple[UnauditedJudge, ...]]:
    """Return the judges with valid audits, the others with the reason; TEST is not read."""
    found, missing = [], []
    for name in judges(corpus.store.root):
        judge = JudgedCorpus(corpus, name)
        if not corpus.store.exists(judge.key("audits.json")):
            continue
        try:
            load_certificates(judge)
            load_audits(judge)
        except CertifyError as error:
            missing.append(UnauditedJudge(name, str(error)))
        else:
            found.append(judge)
    return found, tuple(missing)


def _announced(corpus: Corpus, audited: Sequence[JudgedCorpus], run_id: str) -> LedgerEntry:
    """Record in the ledger what is run on TEST, before it is run."""
    plan = {
        "procedures": list(REAL_PROCEDURES),
        "alphas": list(ALPHAS),
        "delta": DELTA,
        "grid": GRID,
        "sides": list(SIDES),
        "draws": NAIVE_DRAWS,
        "manifest_sha256": corpus.manifest.sha256,
        "scores": {
            judge.name: corpus.store.read_json(judge.key("scores.json"))["scores_sha256"]
            for judge in audited
        },
    }
    return announce_study(corpus, reader="real scores", plan={"real_scores": plan}, run_id=run_id)


def _tables(judge: JudgedCorpus) -> _Tables:
    table = judge.store.read_table(judge.key("scores.parquet"))
    rows, _, _ = judge.calibration
    scores, rl = table.set_index("trajectory_id")["score"], labelled_rows(judge.corpus, "rl")
    return _Tables(
        # RL is the pilot of the procedures that need one
        rows[rows["split"] == "cal"].reset_index(drop=True),
        load_audits(judge)[1],
        rl.assign(score=scores.reindex(rl["trajectory_id"]).to_numpy(np.float64)),
    )


def _judge(name: str, tables: _Tables) -> JudgeScores:
    return JudgeScores(
        judge=name,
        auroc_test=judge_auroc(tables.test),
        cells=tuple(_cells(tables)),
        naive_audit=tuple(_naive(tables.test, alpha) for alpha in ALPHAS),
    )


def _cells(tables: _Tables) -> Iterator[ScoreCell]:
    pilot = tables.pilot
    cal = _Certifying.of(tables.cal, pilot, [pilot, tables.test])
    test = _Certifying.of(tables.test, pilot, [pilot, tables.cal])
    for alpha, side, procedure in product(ALPHAS, SIDES, REAL_PROCEDURES):
        if procedure == "betting" and pilot.empty:
            continue
        settings = _settings(procedure, side, alpha)
        found, own = cal.evaluate(settings), test.evaluate(settings)
        audit = measure_threshold(test.table, settings, found.threshold)
        certified = found.threshold is not None
        yield ScoreCell(
            side=side,
            alpha=alpha,
            procedure=procedure,
            certified=certified,
            coverage=significant(found.chosen_coverage),
            test_coverage=audit.coverage,
            test_error=audit.realized_error,
            verdict=audit.verdict if certified else None,
            on_test=significant(own.chosen_coverage),
        )


def _naive(test: pd.DataFrame, alpha: float) -> NaiveAudit:
    """Resample tasks of TEST at the naive certificate's threshold, as the paper does."""
    settings = _settings("naive", "reject", alpha)
    naive = evaluate(observe(*columns(test)), settings)
    coverage = significant(naive.chosen_coverage)
    found = NaiveAudit(alpha=alpha, coverage=coverage, threshold=naive.threshold)
    if naive.threshold is None:
        return found
    audit = resample_audit(
        *columns(test),
        threshold=naive.threshold,
        side="reject",
        alpha=alpha,
        delta=DELTA,
        draws=NAIVE_DRAWS,
    )
    return replace(found, exceedance=audit.exceedance)


def _gates(tables: dict[str, _Tables], base: str) -> tuple[GateResult, ...]:
    """The three gates on CAL; the second needs a fine-tuned judge."""
    return tuple(
        table_gates(
            *columns(tables[base].cal),
            alpha=ALPHAS[0],
            delta=DELTA,
            grid=GRID,
            sft_auroc=judge_auroc(tables["sft"].cal) if "sft" in tables else None,
        )
    )
