"""Recalibration and certificates: nothing changes where every order is kept, ties elsewhere.

A threshold is an observed score, so a strictly increasing map of the scores moves it with them:
Platt scaling and a temperature leave every decision as it is. Isotonic regression is constant on
blocks, and what a block holds is decided alike. Maps are fitted on RL or SFT alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.evaluation.certification import paid_candidates
from certify_assets.evaluation.pool import gather_pool, takes_pool
from certify_assets.files import stored_as
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate
    from certify_assets.certificates.pool import Pool
    from certify_assets.corpora.config import CorpusConfig


METHODS = ("none", "temperature", "platt", "isotonic")
TABLE_COLUMNS = ["method", "side, alpha", "coverage", "rank", "distinct", "differing"]

_Floats = NDArray[np.float64]
_SAID = {
    "unchanged": "every decision is as it was",
    "ties": "decisions differ by ties alone: no order is turned round",
    "changed": "orders are turned round: the judge ranks backwards on the rows it was fitted on",
}


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A fitted map from scores to log-odds; NaN stays NaN."""

    method: str
    parameters: dict[str, float]
    apply: Callable[[_Floats], _Floats]


def fit_recalibration(method: str, scores: _Floats, outcomes: NDArray[np.int8]) -> Recalibration:
    """Fit one of `METHODS` on finite scores of labelled rows."""
    if method not in METHODS:
        raise InputError(
            f"there is no recalibration {method!r}; choose one of {', '.join(METHODS)}."
        )
    if np.unique(outcomes).size != 2:
        raise InputError("the rows to recalibrate on have one outcome; label runs of both.")
    if method == "none":
        return Recalibration(method, {}, lambda values: values)
    if method == "isotonic":
        return _isotonic(scores, outcomes)
    slope, intercept = _logistic(scores, outcomes, intercept=method == "platt")
    parameters = (
        {"slope": slope, "intercept": intercept}
        if method == "platt"
        else {"inverse_temperature": slope}
    )
    return Recalibration(method, parameters, lambda values: slope * values + intercept)


def recalibrate(judge: JudgedCorpus) -> RecalibrationReport:
    """Return what each map does to the certificates of a judge on a corpus."""
    config = judge.corpus.config
    rows, hashes, adapter = judge.calibration
    candidates = paid_candidates(judge, adapter)
    pool = gather_pool(judge).pool if takes_pool(PROCEDURES[0]) else None
    # the maps are fitted on RL, so what they do is read on CAL alone
    cal = rows[rows["split"] == "cal"].reset_index(drop=True)
    fitted_on, fit = _fitting_rows(judge)
    table = judge.score_table()
    everything = table.loc[table["split"].isin(["cal", "test"]), "score"].to_numpy(np.float64)
    maps = [fit_recalibration(method, *fit) for method in METHODS]
    plain: dict[tuple[str, float], NDArray[np.bool_]] = {}
    methods = [
        _method(item, config, cal, everything, candidates, plain=plain, pool=pool) for item in maps
    ]
    changed = [item.method for item in methods if item.effect == "changed"]
    ties = [item.method for item in methods if item.effect == "ties"]
    if changed:
        said = f"Orders turned round: {', '.join(changed)}."
    elif ties:
        said = f"Changed by ties alone: {', '.join(ties)}; unchanged by the others."
    else:
        said = "Every certificate is unchanged by every method."
    return RecalibrationReport(
        judge=judge.name,
        corpus=judge.corpus.name,
        fitted_on=fitted_on,
        rows=len(fit[0]),
        trained_on=fitted_on in judge.spec.training_splits,
        delta=DELTA,
        grid=config.thresholds(PROCEDURES[0]),
        verdict=said,
        methods=methods,
        hashes=hashes,
    )


def write_recalibration(judge: JudgedCorpus) -> RecalibrationReport:
    """Recalibrate and store the report next to the judge's certificates."""
    report = recalibrate(judge)
    judge.store.write_json(judge.key("recalibration.json"), report.to_dict())
    return report


@dataclass(frozen=True)
class RecalibratedCertificate:
    """A side and budget under one map; decisions differ from those of the scores as they are."""

    side: str
    alpha: float
    certified: bool
    coverage: float
    threshold: float | None
    threshold_rank: int
    differing_decisions: int


@dataclass(frozen=True)
class RecalibrationEffect:
    """One map with what it does to the certificates."""

    method: str
    parameters: dict[str, float]
    log_loss: float
    distinct_scores: int
    effect: str
    certificates: list[RecalibratedCertificate]


@dataclass(frozen=True)
class RecalibrationReport:
    """What every map does to the certificates of a judge, with the hashes of what was read."""

    judge: str
    corpus: str
    fitted_on: str
    rows: int
    trained_on: bool
    delta: float
    grid: int
    verdict: str
    methods: list[RecalibrationEffect]
    hashes: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as it is stored."""
        document = asdict(self)
        del document["hashes"]
        return document | self.hashes

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> RecalibrationReport:
        """Read a stored report."""
        names = {entry.name for entry in fields(cls)}
        hashes = {name: document[name] for name in document.keys() - names}
        return stored_as(cls, {**document, "hashes": hashes})

    def table_rows(self) -> list[list[str]]:
        """Return a row for each method, side and budget, under `TABLE_COLUMNS`."""
        return [
            [
                item.method,
                f"{cell.side}, {cell.alpha:g}",
                f"{cell.coverage:.4f}" if cell.certified else "nothing",
                str(cell.threshold_rank),
                str(item.distinct_scores),
                str(cell.differing_decisions),
            ]
            for item in self.methods
            for cell in item.certificates
        ]

    def sentences(self) -> list[str]:
        """Say of each method how well its numbers are probabilities, and how it decides."""
        said = [
            f"{item.method}: log loss {item.log_loss:.4f} on CAL; {_SAID[item.effect]}."
            for item in self.methods
        ]
        if self.trained_on:
            said.append(
                f"The {self.fitted_on.upper()} runs are runs that {self.judge} was trained on: it "
                "is surer of them than of others."
            )
        return said


def _method(
    item: Recalibration,
    config: CorpusConfig,
    cal: pd.DataFrame,
    everything: _Floats,
    candidates: int,
    *,
    plain: dict[tuple[str, float], NDArray[np.bool_]],
    pool: Pool | None,
) -> RecalibrationEffect:
    from certify_assets.certificates import certify

    scores, outcomes, tasks = columns(cal)
    mapped, elsewhere = item.apply(scores), item.apply(everything)
    others = None
    if pool is not None:
        others = item.apply(pool.scores), [pool.labels[task] for task in pool.tasks.tolist()]
    cells = []
    for side in SIDES:
        for alpha in config.alphas:
            found = certify(
                mapped,
                outcomes,
                tasks,
                alpha=alpha,
                delta=DELTA,
                side=side,
                procedure=PROCEDURES[0],
                grid=config.grid,
                candidates=candidates,
                pool=others,
            )
            decided = _decided(found, elsewhere)
            differing = int((decided != plain.setdefault((side, alpha), decided)).sum())
            rank = int(_decided(found, mapped).sum())
            cells.append(
                RecalibratedCertificate(
                    side, alpha, found.certified, found.coverage, found.threshold, rank, differing
                )
            )
    distinct = int(np.unique(mapped[np.isfinite(mapped)]).size)
    effect = _effect(everything, elsewhere, cells)
    loss = _log_loss(mapped, outcomes)
    return RecalibrationEffect(item.method, item.parameters, loss, distinct, effect, cells)


def _decided(certificate: Certificate, scores: _Floats) -> NDArray[np.bool_]:
    """Rows that a certificate decides alone."""
    from certify_assets.certificates import decide

    return np.asarray(decide(certificate, scores).decisions != "human")


def _effect(before: _Floats, after: _Floats, cells: list[RecalibratedCertificate]) -> str:
    known = np.isfinite(before)
    order = np.argsort(before[known], kind="stable")
    if (np.diff(after[known][order]) < 0).any():
        return "changed"
    return "ties" if any(cell.differing_decisions for cell in cells) else "unchanged"


def _fitting_rows(judge: JudgedCorpus) -> tuple[str, tuple[_Floats, NDArray[np.int8]]]:
    """Scored, labelled rows of RL; where they do not hold both outcomes, SFT is scored for it."""
    from certify_assets.judges.base import score_table

    table = judge.score_table()
    found = _labelled(table[table["split"] == "rl"])
    if np.unique(found[1]).size == 2:
        return "rl", found
    sft = judge.corpus.split("sft")
    expected = judge.artifact.adapter_sha256
    model = judge.load(expected_sha256=expected)
    return "sft", _labelled(score_table(model, sft[sft["outcome"].notna()], judge.renderer))


def _labelled(table: pd.DataFrame) -> tuple[_Floats, NDArray[np.int8]]:
    kept = table[table["outcome"].notna() & table["score"].notna()]
    return kept["score"].to_numpy(np.float64), kept["outcome"].to_numpy(np.int8)


def _logistic(
    scores: _Floats, outcomes: NDArray[np.int8], *, intercept: bool
) -> tuple[float, float]:
    from sklearn.linear_model import LogisticRegression

    successes = int(outcomes.sum())
    failures = len(outcomes) - successes
    # 1 and 0 as targets would send the slope to infinity where a score separates the rows; these
    # are those of Platt (1999)
    target = np.where(outcomes == 1, (successes + 1) / (successes + 2), 1 / (failures + 2))
    # a target between 0 and 1 is a row of both outcomes, each with its weight
    x, y = np.concatenate([scores, scores])[:, None], np.repeat([1, 0], len(scores))
    model = LogisticRegression(C=np.inf, fit_intercept=intercept, tol=1e-10, max_iter=1000)
    model.fit(x, y, sample_weight=np.concatenate([target, 1 - target]))
    return float(model.coef_[0, 0]), float(np.ravel(model.intercept_)[0]) if intercept else 0.0


def _isotonic(scores: _Floats, outcomes: NDArray[np.int8]) -> Recalibration:
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip").fit(
        scores, outcomes
    )
    least = 1 / (2 * len(scores))

    def apply(values: _Floats) -> _Floats:
        mapped = np.full(values.shape, np.nan)
        known = np.isfinite(values)
        p = np.clip(model.predict(values[known]), least, 1 - least)
        # a share of 0 or 1 among few rows is no certainty, and a score must be finite
        mapped[known] = np.log(p / (1 - p))
        return mapped

    return Recalibration("isotonic", {"blocks": float(np.unique(model.y_thresholds_).size)}, apply)


def _log_loss(log_odds: _Floats, outcomes: NDArray[np.int8]) -> float:
    known = np.isfinite(log_odds)
    signed = np.where(outcomes[known] == 1, -log_odds[known], log_odds[known])
    return float(np.logaddexp(0.0, signed).mean())
