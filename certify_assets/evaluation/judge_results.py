"""Scores, certificates, audits and costs of every judge of a corpus, with what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.auroc import auroc
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.evaluation.audit import CertificateAudit, load_audits
from certify_assets.evaluation.certification import deciding_certificates
from certify_assets.judges.base import scores_from_log_odds
from certify_assets.judges.judged import JudgedCorpus, StageFigures
from certify_assets.judges.specs import JudgeSpec, judges

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


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


@dataclass(frozen=True)
class AnswerCost:
    """What the stored scores of a judge say of tokens and money; None where they say nothing."""

    decisions: float | None = None
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    cost_per_decision: float | None = None
    parse_rate: float | None = None
    uncounted_answers: float | None = None
    currency: str = ""

    @classmethod
    def from_scores(cls, document: Mapping[str, object]) -> AnswerCost:
        """Read the bill of a ``scores.json``."""
        bill = document.get("cost", document.get("bill"))
        if not isinstance(bill, Mapping):
            return cls()
        numbers = {entry.name: _number(bill.get(entry.name)) for entry in fields(cls)[:-1]}
        return cls(**numbers, currency=str(bill.get("currency", "")))

    @property
    def tokens_per_decision(self) -> float | None:
        """Tokens in and out, over decisions."""
        if not self.decisions or self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return (self.prompt_tokens + self.completion_tokens) / self.decisions


def _number(value: object) -> float | None:
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)
        else None
    )


@dataclass(frozen=True, eq=False)
class JudgeResults:
    """One judge on one corpus; of the family "control" where it reads no run."""

    name: str
    family: str
    summary: str
    # "rl" and "cal", the same rows for every judge; "test" where an audit has read it
    rows: dict[str, LabelledScores]
    # that its certificates pay for, and how it was chosen among them
    candidates: int = 1
    selection: str = ""
    trained_on_rl: bool = False
    # of the deciding procedure, recomputed; audits by the hash of their certificate
    certificates: tuple[Certificate, ...] = ()
    audits: dict[str, CertificateAudit] = field(default_factory=dict)
    timings: dict[str, StageFigures] = field(default_factory=dict)
    cost: AnswerCost = AnswerCost()
    # the judge that its training started from, or whose certificate let its pseudo-labels through
    start: str = ""
    # language model that it reads
    model: str = ""
    # share of failed runs that the worst text lifts over the median success; None where not known
    lift: float | None = None


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
    certificates: tuple[Certificate, ...] = ()
    audits: dict[str, CertificateAudit] = {}
    # recomputed, and checked against the ledger: what is stale is missing with its reason
    try:
        certificates = tuple(deciding_certificates(judge))
    except CertifyError as error:
        missing.append({"judge": judge.name, "what": "certificate", "reason": str(error)})
    try:
        found, test = load_audits(judge)
        audits = {audit.certificate_sha256: audit for audit in found}
        rows["test"] = _rows(test, test["score"].to_numpy(np.float64))
    except CertifyError as error:
        missing.append({"judge": judge.name, "what": "audit", "reason": str(error)})
    canaries = judge.canaries
    worst = canaries.worst if canaries else None
    return JudgeResults(
        name=judge.name,
        family=judge.spec.kind,
        summary=judge.spec.summary,
        rows=rows,
        candidates=adapter.candidates,
        selection=adapter.selection_rule,
        trained_on_rl="rl" in judge.spec.training_splits,
        certificates=certificates,
        audits=audits,
        timings=judge.timings,
        cost=AnswerCost.from_scores(judge.store.read_json(judge.key("scores.json"))),
        start=judge.spec.upstream,
        model=judge.spec.model,
        lift=worst[1] if worst else None,
    )


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
                CONTROLS[name],
                {split: _rows(frame, sign * scores[split]) for split, frame in frames.items()},
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
