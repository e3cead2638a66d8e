"""Judges of one corpus compared: ranking, certified coverage, audits, cost, and what does not help.

AUROC is measured on labelled RL and CAL rows. Figures of TEST come from audits, which read it
through the ledger. Every difference is taken on the CAL rows that both judges scored, under the
same resamples of tasks. Certificates are computed on the splits that a judge did not learn from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from certify_assets.certificates.auroc import (
    Ranking,
    auroc,
    name_codes,
    percentile_interval,
    task_resamples,
)
from certify_assets.corpora import HALF_B
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.rendering import render_frame
from certify_assets.documents import CLOSED, Document, JsonObject
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import rounded
from certify_assets.judges.base import scores_from_log_odds
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES, judges, upstream
from certify_assets.operations.audit import audited_cell, load_audits
from certify_assets.operations.certifier import deciding_certificates
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

MAIN_TABLE_KEY: Final = "study/main_table.json"
#: judges that read no run
#: why scores are missing of a judge that was never run
NOT_SCORED: Final = "not scored"
CONTROLS: Final = ("length_only", "step_count", "agent_only")
_CONTROL, _FLOOR = "control", "lexical"
_SPLITS = ("rl", "cal", "test")


class ComparedJudge(BaseModel):
    """One judge on one corpus; of the family "control" where it reads no run."""

    model_config = ConfigDict(**CLOSED, frozen=True)

    judge: str
    family: str
    model: str = ""
    trained_on_rl: bool = False
    candidates: int = 1
    # AUROC by split, of all pairs and of pairs of one task; None where no row is known
    auroc: dict[str, dict[str, float | int | None] | None]
    within_task: dict[str, dict[str, float | int | None] | None]
    # labelled CAL rows, and those of them without a score
    rows: int
    unscored: int
    # certificates of the deciding procedure with their audits, and the rows that they are of
    certified: list[JsonObject] = []
    certified_on: JsonObject | None = None
    cost: JsonObject
    # share of failed runs that the worst canary text lifts over the median success
    lift: float | None = None

    def coverage(self, side: str = "reject", alpha: float = 0.1) -> float | None:
        """Return the certified share; None where no certificate is known."""
        wanted = side, alpha
        found = (cell for cell in self.certified if (cell["side"], cell["alpha"]) == wanted)
        return next((float(cell["coverage"]) for cell in found), None)


class Comparison(Document):
    """Every judge that scored a corpus, next to the floor and the controls."""

    TITLE = "comparison"
    SCHEMA = "certify_assets/comparison/1"

    corpus: str
    alphas: list[float]
    delta: float
    procedure: str
    cal: JsonObject
    rows: list[ComparedJudge]
    missing: list[dict[str, str]]
    differences: list[JsonObject]
    best: list[JsonObject]
    findings: list[dict[str, str]]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Labelled rows of a split with a judge's scores, NaN where unscored."""

    frame: pd.DataFrame
    scores: NDArray[np.float64]

    def ranked(self, kept: NDArray[np.bool_], groups: NDArray[np.int64] | None = None) -> Ranking:
        outcomes = self.frame["outcome"].to_numpy(np.float64)
        return Ranking.of(self.scores[kept], outcomes[kept], groups)

    def tasks(self, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
        return name_codes(self.frame["task_id"].to_numpy(object)[kept])


@dataclass(frozen=True, eq=False)
class _Scored:
    """A judge with its scores of CAL."""

    row: ComparedJudge
    cal: _Rows
    # the judge that its training started from, or whose certificate let its pseudo-labels through
    start: str = ""

    @classmethod
    def of(
        cls, judge: str, family: str, rows: Mapping[str, _Rows], *, start: str = "", **about: Any
    ) -> _Scored:
        areas = {split: _areas(rows[split]) if split in rows else (None, None) for split in _SPLITS}
        cal = rows["cal"]
        row = ComparedJudge(
            judge=judge,
            family=family,
            auroc={split: every for split, (every, _) in areas.items()},
            within_task={split: within for split, (_, within) in areas.items()},
            rows=cal.scores.size,
            unscored=int(np.isnan(cal.scores).sum()),
            **about,
        )
        return cls(row, cal, start)


def _areas(rows: _Rows) -> tuple[Any, Any]:
    """AUROC of all pairs, and of pairs of one task."""
    kept = np.isfinite(rows.scores)
    tasks = rows.tasks(kept)
    resamples = task_resamples(tasks)
    return rows.ranked(kept).estimate(resamples), rows.ranked(kept, tasks).estimate(resamples)


def comparison_key(corpus: str, name: str = "comparison.json") -> str:
    """Return where the comparison of a corpus is stored."""
    return f"comparison/{corpus}/{name}"


def compare(corpus: Corpus) -> JsonObject:
    """Compare every judge that scored a corpus; return the document of a `Comparison`.

    Raises
    ------
    InputError
        If no judge has current scores of the corpus.
    """
    frames = {split: labelled_rows(corpus, split) for split in ("rl", "cal")}
    missing: list[dict[str, str]] = []
    scored = [*_judges(corpus, frames, missing)]
    if not scored:
        reasons = "; ".join(
            f"{item['judge']}: {item['reason']}" for item in missing if item["what"] == "scores"
        )
        raise InputError(f"no judge has current scores on {corpus} ({reasons})")
    scored += _controls(corpus, frames)
    rows, differences = [item.row for item in scored], [*_differences(scored)]
    cal, alphas = frames["cal"], [*corpus.config.alphas]
    findings = [
        *_ranking_findings(differences),
        *_coverage_findings(rows),
        *(found for row in rows for found in _limits(row)),
    ]
    made = Comparison(
        corpus=corpus.name,
        alphas=alphas,
        delta=DELTA,
        procedure=PROCEDURES[0],
        cal={
            "trajectories": len(cal),
            "tasks": cal["task_id"].nunique(),
            "success_rate": float(cal["outcome"].mean()) if len(cal) else None,
        },
        rows=rows,
        missing=missing,
        differences=differences,
        best=_best(rows, alphas),
        findings=[{"code": code, "message": message} for code, message in findings],
    )
    document: JsonObject = rounded(made.to_dict())
    return document


def write_comparison(corpus: Corpus) -> JsonObject:
    """Compare, store the document and return it."""
    document = compare(corpus)
    corpus.store.write_json(comparison_key(corpus.name), document)
    return document


def compare_corpora(store: Store, corpora: Iterable[str] | None = None) -> JsonObject:
    """Compare the judges of every corpus, by default of all that are registered."""
    documents, left_out = [], []
    for corpus in registered_corpora(store) if corpora is None else corpora:
        try:
            documents.append(compare(Corpus(store, corpus)))
        except CertifyError as error:
            left_out.append({"corpus": corpus, "reason": str(error)})
    return {"schema": "certify_assets/main_table/1", "corpora": documents, "left_out": left_out}


def write_main_table(store: Store) -> JsonObject:
    """Compare on every corpus, store ``study/main_table.json`` and return it."""
    document = compare_corpora(store)
    store.write_json(MAIN_TABLE_KEY, document)
    return document


def labelled_rows(corpus: Corpus, split: str) -> pd.DataFrame:
    """Return the labelled trajectories of a split other than TEST."""
    if split == "test":
        raise InputError(
            "only an audit reads outcomes of TEST, through the ledger. Compare on rl or cal."
        )
    frame = corpus.split(split)
    return frame[frame["outcome"].notna()].reset_index(drop=True)


def beaten_by_controls(document: JsonObject) -> list[str]:
    """Return a sentence for every judge not shown to rank better than a control it must beat."""
    controlled = controls_to_beat(document)
    return [
        item["sentence"]
        for item in document["differences"]
        if item["against"] in controlled.get(item["judge"], ()) and item["verdict"] != "beats"
    ]


def controls_to_beat(document: JsonObject) -> dict[str, tuple[str, ...]]:
    """Return the controls that judges may not rank as badly as: what they could have learnt."""
    found: dict[str, tuple[str, ...]] = {}
    for row in document["rows"]:
        if row["model"]:
            found[row["judge"]] = ("length_only", "agent_only")
        elif row["family"] in ("structure", "combined"):
            # lengths and steps are among their features
            found[row["judge"]] = CONTROLS
    return found


def unscored_sentences(document: JsonObject) -> list[str]:
    """Return a sentence for every judge that did not score all labelled rows of CAL."""
    codes = ("unscored", "half_of_cal")
    return [item["message"] for item in document["findings"] if item["code"] in codes]


def _judges(
    corpus: Corpus, frames: Mapping[str, pd.DataFrame], missing: list[dict[str, str]]
) -> Iterator[_Scored]:
    """Yield the judges that scored the corpus; note what is missing of each, with the reason."""
    for name, spec in judges(corpus.store.root).items():
        judge = JudgedCorpus.of(corpus, spec)
        if not corpus.store.exists(judge.key("scores.json")):
            missing.append({"judge": name, "what": "scores", "reason": NOT_SCORED})
            continue
        with _noting(missing, name, "scores"):
            judge.require_scores()
            yield _judge(judge, frames, missing)


@contextmanager
def _noting(missing: list[dict[str, str]], judge: str, what: str) -> Iterator[None]:
    """Note why something of a judge is missing, and go on without it."""
    try:
        yield
    except CertifyError as error:
        missing.append({"judge": judge, "what": what, "reason": str(error)})


def _judge(
    judge: JudgedCorpus, frames: Mapping[str, pd.DataFrame], missing: list[dict[str, str]]
) -> _Scored:
    scores = judge.score_table().set_index("trajectory_id")["score"]
    rows = {
        split: _Rows(frame, scores.reindex(frame["trajectory_id"]).to_numpy(np.float64))
        for split, frame in frames.items()
    }
    # rows that let its own pseudo-labels through say nothing of a judge
    own = frames["cal"]["trajectory_id"].isin(
        judge.spec.calibration_rows(frames["cal"])["trajectory_id"]
    )
    rows["cal"] = replace(rows["cal"], scores=np.where(own, rows["cal"].scores, np.nan))
    certificates: list[Certificate] = []
    audits = {}
    # both are recomputed, and checked against the ledger
    with _noting(missing, judge.name, "certificate"):
        certificates = deciding_certificates(judge)
    with _noting(missing, judge.name, "audit"):
        found, test = load_audits(judge)
        audits = {audit.certificate_sha256: audit for audit in found}
        rows["test"] = _Rows(test, test["score"].to_numpy(np.float64))
    certificates.sort(key=lambda item: (SIDES.index(item.side), item.alpha))
    worst = judge.canaries.worst if judge.canaries else None
    return _Scored.of(
        judge.name,
        judge.spec.kind,
        rows,
        start=upstream(judge.spec),
        model=judge.spec.model,
        trained_on_rl="rl" in judge.spec.training_splits,
        candidates=judge.artifact.candidates,
        certified=[audited_cell(item, audits.get(item.sha256)) for item in certificates],
        certified_on=next(
            ({"split": item.provenance["split"], "tasks": item.tasks} for item in certificates),
            None,
        ),
        cost=_cost(judge),
        lift=worst[1] if worst else None,
    )


def _cost(judge: JudgedCorpus) -> JsonObject:
    """Return figures of training and scoring, and what a server's answers cost."""
    score, bill = judge.timings.get("score"), judge.bill
    # a run that resumed another one has paid for a part of its rows only
    whole = score if score and score["rows"] and not score["continued"] else None
    paid: Mapping[str, Any] = bill or {}
    tokens = paid.get("prompt_tokens", 0) + paid.get("completion_tokens", 0)
    return {
        "train": judge.timings.get("train"),
        "score": score,
        "cpu_seconds_per_trajectory": whole and whole["cpu_seconds"] / whole["rows"],
        "tokens_per_decision": tokens / paid["decisions"] if paid.get("decisions") else None,
        # answers whose usage the server did not count make tokens and money lower bounds
        "at_least": bool(paid.get("uncounted_answers")),
        # no price is not a price of nothing
        "money_per_decision": paid.get("cost_per_decision") or None,
        "currency": paid.get("currency", ""),
        "parse_rate": paid.get("parse_rate"),
    }


def _controls(corpus: Corpus, frames: Mapping[str, pd.DataFrame]) -> Iterator[_Scored]:
    """Yield the controls; the better direction of each is taken on CAL, in its favour."""
    sft = labelled_rows(corpus, "sft")
    for name, score in (
        ("length_only", _lengths),
        ("step_count", lambda frame: frame["steps"].map(len).to_numpy(np.float64)),
        ("agent_only", lambda frame: _agent_rates(sft, frame)),
    ):
        # a success rate says nothing where SFT has one outcome
        if name == "agent_only" and sft["outcome"].nunique() < 2:
            continue
        rows = {split: _Rows(frame, score(frame)) for split, frame in frames.items()}
        if auroc(rows["cal"].scores, frames["cal"]["outcome"].to_numpy(np.int8)) < 0.5:
            rows = {split: replace(of, scores=-of.scores) for split, of in rows.items()}
        yield _Scored.of(name, _CONTROL, rows, cost={})


def _lengths(frame: pd.DataFrame) -> NDArray[np.float64]:
    return np.array([len(item.text) + item.cut_chars for item in render_frame(frame)], np.float64)


def _agent_rates(sft: pd.DataFrame, frame: pd.DataFrame) -> NDArray[np.float64]:
    """Score runs by their agent's success rate on SFT, half a success and half a failure added."""
    outcomes = sft["outcome"].astype(float)
    rates = outcomes.groupby(sft["agent"].astype(str)).agg(_log_odds)
    odds = frame["agent"].astype(str).map(rates).fillna(_log_odds(outcomes))
    return scores_from_log_odds(odds.to_numpy(np.float64)).score


def _log_odds(outcomes: pd.Series[float]) -> float:
    successes = float(outcomes.sum())
    return math.log((successes + 0.5) / (len(outcomes) - successes + 0.5))


def _differences(scored: Sequence[_Scored]) -> Iterator[JsonObject]:
    by_name = {item.row.judge: item for item in scored}
    for item in scored:
        if item.row.family != _CONTROL:
            for other in dict.fromkeys((_FLOOR, item.start, *CONTROLS)):
                if other in by_name and other != item.row.judge:
                    yield _difference(item, by_name[other])


def _difference(one: _Scored, other: _Scored) -> JsonObject:
    """Return the difference of two AUROC with its interval over tasks."""
    mine, theirs, name, against = one.cal, other.cal, one.row.judge, other.row.judge
    kept = np.isfinite(mine.scores) & np.isfinite(theirs.scores)
    rankings, resamples = (
        [of.ranked(kept) for of in (mine, theirs)],
        task_resamples(mine.tasks(kept)),
    )
    areas = [ranking.estimate(resamples[:0])["value"] for ranking in rankings]
    value = low = high = None
    if areas[0] is not None and areas[1] is not None:
        value = areas[0] - areas[1]
        if len(resamples):
            first, second = (ranking.aurocs(resamples) for ranking in rankings)
            low, high = percentile_interval(first - second)
    verdict = "level"
    if np.array_equal(mine.scores, theirs.scores, equal_nan=True):
        verdict, sentence = "same", f"{name} gives every CAL row the same score as {against}."
    elif value is None:
        verdict = "unknown"
        sentence = (
            f"{name} and {against} cannot be compared: the CAL rows that both scored have one "
            "outcome."
        )
    else:
        words, span = "is not shown to rank better than", ""
        if low is not None and high is not None:
            span = f", 95 % {low:+.3f} to {high:+.3f}"
            if low > 0:
                verdict, words = "beats", "ranks better than"
            elif high < 0:
                verdict, words = "below", "ranks worse than"
        sentence = f"{name} {words} {against} on CAL: AUROC difference {value:+.3f}{span}."
    return {
        "judge": name,
        "against": against,
        "rows": int(kept.sum()),
        "difference": value,
        "low": low,
        "high": high,
        "verdict": verdict,
        "sentence": sentence,
    }


def _best(rows: Sequence[ComparedJudge], alphas: Sequence[float]) -> list[JsonObject]:
    """Say which judge is best at ranking, at certified coverage, and cheapest."""

    def best(what: str, values: Mapping[str, float | None], *, least: bool = False) -> JsonObject:
        known = {name: value for name, value in values.items() if value}
        order = sorted({*known.values()}, reverse=not least)
        names = [[name for name, value in known.items() if value == place] for place in order[:2]]
        after = {"judge": names[1][0], "value": order[1]} if len(names) > 1 else None
        return {
            "what": what,
            "judge": ", ".join(names[0]) if names else None,
            "value": order[0] if names else None,
            "next": after,
        }

    own = [row for row in rows if row.family != _CONTROL]
    return [
        best("AUROC on CAL", {row.judge: _area(row.auroc) for row in rows}),
        best("AUROC within tasks on CAL", {row.judge: _area(row.within_task) for row in rows}),
        *(
            best(
                f"certified {side} coverage at {alpha:g}",
                {row.judge: row.coverage(side, alpha) for row in own},
            )
            for side in SIDES
            for alpha in alphas
        ),
        best(
            "CPU seconds a trajectory",
            {row.judge: row.cost["cpu_seconds_per_trajectory"] for row in own},
            least=True,
        ),
    ]


def _area(areas: Mapping[str, Mapping[str, float | int | None] | None]) -> float | None:
    area = areas["cal"]
    return area["value"] if area else None


def _ranking_findings(differences: Sequence[JsonObject]) -> Iterator[tuple[str, str]]:
    # of a judge with another's scores nothing else is to be said
    same = {item["judge"] for item in differences if item["verdict"] == "same"}
    for item in differences:
        verdict = item["verdict"]
        if verdict == "same" or (verdict != "beats" and item["judge"] not in same):
            against = item["against"]
            code = "floor" if against == _FLOOR else "control" if against in CONTROLS else "start"
            yield f"not_above_{code}", item["sentence"]


def _coverage_findings(rows: Sequence[ComparedJudge]) -> Iterator[tuple[str, str]]:
    floor = next((row for row in rows if row.judge == _FLOOR), None)
    least = floor and floor.coverage()
    if not floor or not least:
        return
    for row in rows:
        coverage = row.coverage()
        if row is floor or coverage is None or coverage > least:
            continue
        words = "no more than" if coverage == least else "less than"
        yield (
            "coverage_not_above_floor",
            f"{row.judge} certifies {words} the lexical floor: auto-fail coverage {coverage:.3f} "
            f"against {least:.3f} at α = 0.1.",
        )


def _limits(row: ComparedJudge) -> Iterator[tuple[str, str]]:
    """Yield what limits the figures of one judge."""
    if row.certified_on and row.certified_on["split"] == HALF_B:
        yield (
            "half_of_cal",
            f"{row.judge} is certified and compared on half B of CAL: "
            f"{row.rows - row.unscored:,} of {row.rows:,} labelled rows. Half A chose its "
            "pseudo-labels.",
        )
    elif row.unscored:
        yield (
            "unscored",
            f"{row.judge} left {row.unscored:,} of {row.rows:,} labelled CAL rows unscored; its "
            "figures are of the others.",
        )
    if row.candidates > 1:
        yield (
            "chosen_on_cal",
            f"{row.judge} was chosen among {row.candidates} candidates on CAL. Its certificates "
            "account for that; its AUROC on CAL does not.",
        )
