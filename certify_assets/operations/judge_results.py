"""Scores, certificates, audits and costs of judges, for comparisons here and in MLflow."""

# In MLflow there is one run a judge and version of a corpus. A name means the same in the run of a
# step and in that summary, for every judge. The best judge in these figures on CAL was chosen on
# CAL: docs/comparison.md says what that costs.

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.judges.base import judge_auroc, scores_from_log_odds
from certify_assets.judges.judged import JudgedCorpus, StageFigures
from certify_assets.judges.specs import SIDES, JudgeSpec, judges
from certify_assets.operations.audit import CertificateAudit, audited_cell, load_audits
from certify_assets.operations.certifier import deciding_certificates, deciding_sides
from certify_assets.storage.tracking import DatasetRead, Summary

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate
    from certify_assets.judges.base import Bill


#: figures by name; None where there is none now
Figures = Mapping[str, float | None]
#: what a step reads a split for, in MLflow
_READ_FOR = {"sft": "training", "rl": "calibration", "cal": "calibration", "test": "test"}
#: judges that read no run
CONTROLS = {
    "length_only": "Length of the uncut text alone, in the direction that suits CAL.",
    "step_count": "Number of steps alone, in the direction that suits CAL.",
    "agent_only": "Success rate of the agent on SFT alone, in the direction that suits CAL.",
}


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """Labelled rows with a judge's scores, NaN where unscored."""

    scores: NDArray[np.float64]
    outcomes: NDArray[np.int8]
    tasks: NDArray[np.object_]
    trajectories: NDArray[np.object_]
    agents: NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class JudgeResults:
    """One judge on one corpus; of the family "control" where it reads no run."""

    name: str
    family: str
    # "rl" and "cal", the same rows for every judge; "test" where an audit has read it
    rows: dict[str, LabelledScores]
    # what a comparison says of it beyond its scores
    about: Mapping[str, Any]
    # the judge that its training started from, or whose certificate let its pseudo-labels through
    start: str = ""


def labelled_rows(corpus: Corpus, split: str) -> pd.DataFrame:
    """Return the labelled trajectories of a split other than TEST."""
    if split == "test":
        raise InputError(
            "outcomes of TEST are read by an audit, through the ledger; compare on rl or cal."
        )
    frame = corpus.split(split)
    return frame[frame["outcome"].notna()].reset_index(drop=True)


def gather_judges(corpus: Corpus) -> tuple[list[JudgeResults], list[dict[str, str]]]:
    """Return the judges that scored the corpus, the leak controls, and what is missing of each."""
    frames = {split: labelled_rows(corpus, split) for split in ("rl", "cal")}
    found: list[JudgeResults] = []
    missing: list[dict[str, str]] = []
    for name, spec in judges(corpus.store.root).items():
        judge = JudgedCorpus.of(corpus, spec)
        if not corpus.store.exists(judge.key("scores.json")):
            reason = f"not scored here; materialize judges/{name}/scores of this corpus."
            missing.append({"judge": name, "what": "scores", "reason": reason})
            continue
        try:
            found.append(_judged(judge, frames, missing))
        except CertifyError as error:
            missing.append({"judge": name, "what": "scores", "reason": str(error)})
    return [*found, *_controls(corpus, frames, missing)], missing


def _judged(
    judge: JudgedCorpus, frames: Mapping[str, pd.DataFrame], missing: list[dict[str, str]]
) -> JudgeResults:
    _, _, adapter = judge.calibration
    table = judge.store.read_table(judge.key("scores.parquet")).set_index("trajectory_id")["score"]
    rows = {
        split: _rows(frame, table.reindex(frame["trajectory_id"]).to_numpy(np.float64))
        for split, frame in frames.items()
    }
    rows["cal"] = _certifying(frames["cal"], rows["cal"], judge.spec)
    certificates: list[Certificate] = []
    audits: dict[str, CertificateAudit] = {}
    # recomputed, and checked against the ledger: what is stale is missing with its reason
    try:
        certificates = deciding_certificates(judge)
    except CertifyError as error:
        missing.append({"judge": judge.name, "what": "certificate", "reason": str(error)})
    try:
        found, test = load_audits(judge)
        audits = {audit.certificate_sha256: audit for audit in found}
        rows["test"] = _rows(test, test["score"].to_numpy(np.float64))
    except CertifyError as error:
        missing.append({"judge": judge.name, "what": "audit", "reason": str(error)})
    canaries, spec = judge.canaries, judge.spec
    worst = canaries.worst if canaries else None
    about = {
        "summary": spec.summary,
        "model": spec.model,
        "trained_on_rl": "rl" in spec.training_splits,
        "candidates": adapter.candidates,
        "selection": adapter.selection_rule,
        "certified": [
            audited_cell(item, audits.get(item.sha256))
            for item in sorted(certificates, key=lambda item: (SIDES.index(item.side), item.alpha))
        ],
        "certified_on": _certified_on(certificates),
        "cost": _cost(judge.timings, judge.bill),
        # share of failed runs that the worst text lifts over the median success
        "lift": worst[1] if worst else None,
    }
    return JudgeResults(judge.name, spec.kind, rows, about, spec.upstream)


def _certified_on(certificates: Sequence[Certificate]) -> dict[str, Any] | None:
    """Return of what certificates are: CAL, with or without RL, or the half a harvest left."""
    if not certificates:
        return None
    one = certificates[0]
    return {"split": one.provenance["split"], "trajectories": one.trajectories, "tasks": one.tasks}


def _cost(timings: Mapping[str, StageFigures], bill: Bill | None) -> dict[str, Any]:
    """Return figures of training and scoring, and what a server's answers cost."""
    score = timings.get("score")
    # a run that resumed another one has paid for a part of its rows only
    whole = score if score and score["rows"] and not score["continued"] else None
    paid: Mapping[str, Any] = bill or {}
    tokens = bill and bill["prompt_tokens"] + bill["completion_tokens"]
    return {
        "train": timings.get("train"),
        "score": score,
        "cpu_seconds_per_trajectory": whole and whole["cpu_seconds"] / whole["rows"],
        "tokens_per_decision": tokens / bill["decisions"] if bill and bill["decisions"] else None,
        # answers whose usage the server did not count make tokens and money lower bounds
        "at_least": bool(paid.get("uncounted_answers")),
        # no price is not a price of nothing
        "money_per_decision": paid.get("cost_per_decision") or None,
        "currency": paid.get("currency", ""),
        "parse_rate": paid.get("parse_rate"),
    }


def _certifying(cal: pd.DataFrame, rows: LabelledScores, spec: JudgeSpec) -> LabelledScores:
    """Leave out the scores of rows that chose the judge's own pseudo-labels."""
    own = set(spec.calibration_rows(cal)["trajectory_id"])
    return replace(
        rows, scores=np.where([name in own for name in rows.trajectories], rows.scores, np.nan)
    )


def _rows(frame: pd.DataFrame, scores: NDArray[np.float64]) -> LabelledScores:
    names = [frame[column].to_numpy(object) for column in ("task_id", "trajectory_id", "agent")]
    return LabelledScores(scores, frame["outcome"].to_numpy(np.int8), *names)


def _controls(
    corpus: Corpus, frames: Mapping[str, pd.DataFrame], missing: list[dict[str, str]]
) -> list[JudgeResults]:
    """Return the leak controls; the better direction of each is taken on CAL, in its favour."""
    values: dict[str, dict[str, NDArray[np.float64]]] = {
        "length_only": {split: _lengths(frame) for split, frame in frames.items()},
        "step_count": {
            split: frame["steps"].map(len).to_numpy(np.float64) for split, frame in frames.items()
        },
    }
    try:
        values["agent_only"] = _agent_rates(labelled_rows(corpus, "sft"), frames)
    except InputError as error:
        missing.append(
            {
                "judge": "agent_only",
                "what": "control",
                "reason": f"it cannot be fitted on SFT: {error}",
            }
        )
    found = []
    for name, scores in values.items():
        sign = (
            -1.0 if auroc(scores["cal"], frames["cal"]["outcome"].to_numpy(np.int8)) < 0.5 else 1.0
        )
        found.append(
            JudgeResults(
                name,
                "control",
                {split: _rows(frame, sign * scores[split]) for split, frame in frames.items()},
                {
                    "summary": CONTROLS[name],
                    "model": "",
                    "trained_on_rl": False,
                    "candidates": 1,
                    "selection": "",
                    "certified": [],
                    "certified_on": None,
                    "cost": _cost({}, None),
                    "lift": None,
                },
            )
        )
    return found


def _lengths(frame: pd.DataFrame) -> NDArray[np.float64]:
    from certify_assets.corpora.rendering import render_frame

    return np.array(
        [len(item.text) + item.cut_chars for item in render_frame(frame)], dtype=np.float64
    )


def _agent_rates(
    sft: pd.DataFrame, frames: Mapping[str, pd.DataFrame]
) -> dict[str, NDArray[np.float64]]:
    """Score runs by their agent's success rate on SFT, half a success and half a failure added."""
    if sft["outcome"].nunique() < 2:
        raise InputError(
            f"{len(sft)} training runs need as many outcomes, 0 and 1 and some of each; train on "
            "labelled runs of both."
        )
    rates = sft["outcome"].astype(float).groupby(sft["agent"].astype(str)).agg(_log_odds)
    default = _log_odds(sft["outcome"].astype(float))
    return {
        split: scores_from_log_odds(
            frame["agent"].astype(str).map(rates).fillna(default).to_numpy(np.float64)
        ).score
        for split, frame in frames.items()
    }


def _log_odds(outcomes: pd.Series[float]) -> float:
    successes = float(outcomes.sum())
    return math.log((successes + 0.5) / (len(outcomes) - successes + 0.5))


def judge_summary(
    judge: JudgedCorpus, figures: Figures | None = None, splits: Sequence[str] = ()
) -> Summary:
    """Return what a step adds to the run of its judge: figures, and the splits that it read."""
    corpus = judge.corpus
    learned = judge.spec.training_splits
    return Summary(
        name=f"{judge} on {corpus}",
        tags={
            "certify.judge": judge.name,
            "certify.corpus": corpus.name,
            "certify.family": judge.spec.kind,
            "certify.domain": corpus.domain.name or "not stated",
            "certify.corpus_version": str(corpus.version.number),
            **corpus.hashes,
        },
        metrics=figures or {},
        datasets=[
            DatasetRead(
                name=f"{corpus} {split}",
                key=corpus.split_key(split),
                sha256=corpus.store.sha256(corpus.split_key(split)),
                context="training" if split in learned else _READ_FOR[split],
            )
            for split in splits
        ],
    )


def training_figures(judge: JudgedCorpus) -> Figures:
    """Return what the training took."""
    return {"train_cpu_seconds": _cpu_seconds(judge, "train")}


def scoring_figures(judge: JudgedCorpus, table: pd.DataFrame) -> Figures:
    """Return how a judge ranks the labelled runs of CAL that certify it, and what scores took."""
    cal = table[(table["split"] == "cal") & table["outcome"].notna()]
    seconds = _cpu_seconds(judge, "score")
    bill = judge.bill
    return {
        "auroc": judge_auroc(judge.spec.calibration_rows(cal)),
        "score_cpu_seconds": seconds,
        "cpu_seconds_per_run": seconds and seconds / max(1, len(table)),
        # nothing is paid without a server; one without a price is not one that costs nothing
        "cost": (bill["cost"] or None) if bill else 0.0,
        "cost_per_decision": (bill["cost_per_decision"] or None) if bill else 0.0,
    }


def certified_figures(certificates: Sequence[Certificate]) -> Figures:
    """Return the share that each certificate decides, both sides at a budget, and the strictest."""
    coverage = {f"coverage_{_cell(item)}": float(item.coverage) for item in certificates}
    # judges are compared at one budget: the strictest that one has certified may be another's next
    budgets = sorted({item.alpha for item in certificates})
    decided = {
        f"decided_at_{alpha:g}": deciding_sides(
            [item for item in certificates if item.alpha == alpha]
        ).decided
        for alpha in budgets
    }
    return {**coverage, **decided, "decided": deciding_sides(certificates).decided}


def audited_figures(audits: Sequence[CertificateAudit]) -> Figures:
    """Return error and coverage on TEST; None of a side that is not certified."""
    errors = {f"error_{_cell(item)}": item.realized_error for item in audits}
    decided = {
        f"test_coverage_{_cell(item)}": None if item.realized_error is None else item.coverage
        for item in audits
    }
    return {**errors, **decided}


def _cell(item: Certificate | CertificateAudit) -> str:
    return f"{item.side}_at_{item.alpha:g}"


def _cpu_seconds(judge: JudgedCorpus, stage: str) -> float | None:
    """Return the CPU seconds of a stage; None where another one made a part of its product."""
    found = judge.timings.get(stage)
    return None if found is None or found["continued"] else float(found["cpu_seconds"])
