"""Judges of one corpus compared: ranking, certified coverage, audits, cost, and what does not help.

AUROC is that of labelled RL and CAL rows; TEST is known only through what an audit read by the
ledger. Every difference is taken on the rows that both judges scored, under the same resamples of
tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.certificates.auroc import (
    Ranking,
    name_codes,
    percentile_interval,
    task_resamples,
)
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.evaluation.agent_folds import pretraining_caveat, stored_agent_folds
from certify_assets.evaluation.judge_results import (
    CONTROLS,
    JudgeResults,
    LabelledScores,
    gather_judges,
)
from certify_assets.files import canonical_json, rounded, sha256_bytes
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.evaluation.audit import CertificateAudit

MAIN_TABLE_KEY = "study/main_table.json"
_TABLE_SCHEMA = "certify_assets/main_table/1"
COMPARISON_SCHEMA = "certify_assets/comparison/1"
_SPLITS = ("rl", "cal", "test")
_FLOOR = "lexical"
_HEADLINE = ("reject", 0.1)


def comparison_key(corpus: str, name: str = "comparison.json") -> str:
    """Return where the comparison of a corpus is stored."""
    return f"comparison/{corpus}/{name}"


def compare(corpus: Corpus) -> dict[str, Any]:
    """Compare every judge that scored a corpus.

    Returns
    -------
    dict
        ``rows`` one a judge or leak control, ``missing`` with reasons, ``differences`` of AUROC on
        CAL, ``best`` judge at each thing, ``findings`` as sentences, ``agent_disjoint``
        evaluations that are stored, ``pretraining`` where a base model has seen the agents.

    Raises
    ------
    InputError
        If no judge scored the corpus, or it was never split.
    """
    judged, missing = gather_judges(corpus)
    if not any(item.family != "control" for item in judged):
        reasons = "; ".join(
            f"{item['judge']}: {item['reason']}" for item in missing if item["what"] == "scores"
        )
        raise InputError(f"no judge has current scores on {corpus} ({reasons})")
    rows = [_row(item) for item in judged]
    cal = judged[0].rows["cal"]
    document = {
        "schema": COMPARISON_SCHEMA,
        "corpus": corpus.name,
        "alphas": list(corpus.config.alphas),
        "delta": DELTA,
        "procedure": PROCEDURES[0],
        "cal": {
            "trajectories": cal.outcomes.size,
            "tasks": len(set(cal.tasks)),
            "success_rate": float(cal.outcomes.mean()) if cal.outcomes.size else None,
        },
        "rows": rows,
        "missing": missing,
        "differences": _differences(judged),
        "best": _best(rows, corpus.config.alphas),
        "agent_disjoint": stored_agent_folds(corpus),
        "pretraining": pretraining_caveat(
            [item.name for item in judged], [str(name) for name in cal.agents]
        ),
    }
    document["findings"] = findings(document)
    found: dict[str, Any] = rounded(document)
    return found


def write_comparison(corpus: Corpus) -> dict[str, Any]:
    """Compare, store the document and return it."""
    document = compare(corpus)
    corpus.store.write_json(comparison_key(corpus.name), document)
    return document


def beaten_by_controls(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence for every language-model judge not shown to rank better than a control."""
    reading = readers(document)
    return [
        item["sentence"]
        for item in document["differences"]
        if item["against"] in ("length_only", "agent_only")
        and item["judge"] in reading
        and item["verdict"] != "beats"
    ]


def readers(document: Mapping[str, Any]) -> list[str]:
    """Return the judges that read a language model, here or behind a server."""
    return [row["judge"] for row in document["rows"] if row.get("model")]


def other_rows(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence for every judge that did not score all labelled rows of CAL."""
    return [_other(row) for row in document["rows"] if row["counts"]["cal"]["unscored"]]


def _other(row: Mapping[str, Any]) -> str:
    counts = row["counts"]["cal"]
    if row["family"] == "harvest":
        used = counts["rows"] - counts["unscored"]
        return (
            f"{row['judge']} is compared on {used} of {counts['rows']} labelled CAL rows, those "
            "of half B: half A let its harvest through."
        )
    return (
        f"{row['judge']} left {counts['unscored']} of {counts['rows']} labelled CAL rows unscored."
    )


def _row(item: JudgeResults) -> dict[str, Any]:
    areas = {
        split: _areas(item.rows[split])
        if split in item.rows
        else {"auroc": None, "within_task": None}
        for split in _SPLITS
    }
    return {
        "judge": item.name,
        "family": item.family,
        "summary": item.summary,
        "model": item.model,
        "auroc": {split: found["auroc"] for split, found in areas.items()},
        "within_task": {split: found["within_task"] for split, found in areas.items()},
        "trained_on_rl": item.trained_on_rl,
        "counts": {split: _counts(rows) for split, rows in item.rows.items()},
        "candidates": item.candidates,
        "selection": item.selection,
        "certified": _cells(item),
        "certified_on": _certified_on(item),
        "cost": _cost(item),
    }


def _areas(rows: LabelledScores) -> dict[str, Any]:
    kept = np.isfinite(rows.scores)
    tasks = name_codes(rows.tasks[kept])
    resamples = task_resamples(tasks)
    scores, outcomes = rows.scores[kept], rows.outcomes[kept]
    return {
        "auroc": Ranking.of(scores, outcomes).estimate(resamples).to_dict(),
        "within_task": Ranking.of(scores, outcomes, tasks).estimate(resamples).to_dict(),
    }


def _counts(rows: LabelledScores) -> dict[str, Any]:
    scored = np.isfinite(rows.scores)
    return {
        "rows": rows.scores.size,
        "unscored": int((~scored).sum()),
        "tasks": len(set(rows.tasks)),
        "scored_sha256": sha256_bytes(
            canonical_json(sorted(str(name) for name in rows.trajectories[scored]))
        ),
    }


@dataclass(frozen=True)
class CertifiedCell:
    """One certificate of a judge with its audit; the audit's figures only where certified."""

    side: str
    alpha: float
    certified: bool
    coverage: float
    candidates: int
    certificate_sha256: str
    audit: str | None = None
    test_error: float | None = None
    test_coverage: float | None = None

    @classmethod
    def of(cls, item: Certificate, audit: CertificateAudit | None) -> CertifiedCell:
        """Return the cell of a certificate."""
        known = (item.side, item.alpha, item.certified, item.coverage, item.candidates, item.sha256)
        if audit is None or not item.certified:
            return cls(*known)
        return cls(*known, audit.verdict, audit.realized_error, audit.coverage)


def _cells(item: JudgeResults) -> list[dict[str, Any]]:
    found = {(one.side, one.alpha): one for one in reversed(item.certificates)}
    return [
        asdict(CertifiedCell.of(one, item.audits.get(one.sha256)))
        for side in SIDES
        for alpha in sorted({one.alpha for one in item.certificates})
        if (one := found.get((side, alpha))) is not None
    ]


def _certified_on(item: JudgeResults) -> dict[str, str | int] | None:
    """Return the split of the certificates: CAL, or the half of it that a harvest left."""
    if not item.certificates:
        return None
    one = item.certificates[0]
    split = str(one.provenance["split"])
    return {"split": split, "trajectories": one.trajectories, "tasks": one.tasks}


def _cost(item: JudgeResults) -> dict[str, Any]:
    score = item.timings.get("score")
    each = (
        score["cpu_seconds"] / score["rows"]
        if score and score["rows"] and not score["continued"]
        else None
    )
    decisions = _number(item.cost, "decisions")
    tokens = [_number(item.cost, name) for name in ("prompt_tokens", "completion_tokens")]
    counted = decisions and None not in tokens
    return {
        **{stage: item.timings.get(stage) for stage in ("train", "score")},
        "cpu_seconds_per_trajectory": each,
        "tokens_per_decision": sum(value or 0 for value in tokens) / decisions
        if counted and decisions
        else None,
        # answers whose usage the server did not count make tokens and money lower bounds
        "at_least": bool(_number(item.cost, "uncounted_answers")),
        # no price is not a price of nothing
        "money_per_decision": _number(item.cost, "cost_per_decision") or None,
        "currency": str(item.cost.get("currency", "")),
        "parse_rate": _number(item.cost, "parse_rate"),
    }


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)
        else None
    )


@dataclass(frozen=True)
class Difference:
    """Difference of AUROC between two judges on the CAL rows that both scored."""

    judge: str
    against: str
    rows: int
    auroc: float | None
    other: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "unknown"
    sentence: str = ""


def _differences(judged: Sequence[JudgeResults]) -> list[dict[str, Any]]:
    by_name = {item.name: item for item in judged}
    return [
        asdict(_difference(item, by_name[other]))
        for item in judged
        if item.family != "control"
        for other in dict.fromkeys((_FLOOR, item.start, *CONTROLS))
        if other in by_name and other != item.name
    ]


def _difference(one: JudgeResults, other: JudgeResults) -> Difference:
    """Return the difference with its interval over tasks."""
    mine, theirs = one.rows["cal"], other.rows["cal"]
    kept = np.isfinite(mine.scores) & np.isfinite(theirs.scores)
    resamples = task_resamples(name_codes(mine.tasks[kept]))
    rankings = [Ranking.of(rows.scores[kept], rows.outcomes[kept]) for rows in (mine, theirs)]
    values = [ranking.estimate(resamples[:0]).value for ranking in rankings]
    entry = Difference(one.name, other.name, int(kept.sum()), values[0], values[1])
    if np.array_equal(mine.scores, theirs.scores, equal_nan=True):
        said = (
            f"{one.name} gives {other.name}'s scores on CAL: its training or its choice changed "
            "nothing."
        )
        return replace(entry, difference=0.0, low=0.0, high=0.0, verdict="same", sentence=said)
    if values[0] is None or values[1] is None:
        said = (
            f"{one.name} and {other.name} cannot be compared: the CAL rows that both scored have "
            "one outcome."
        )
        return replace(entry, sentence=said)
    low: float | None = None
    high: float | None = None
    if len(resamples):
        difference_of = rankings[0].aurocs(resamples) - rankings[1].aurocs(resamples)
        low, high = percentile_interval(difference_of)
    if low is not None and low > 0:
        verdict, words = "beats", "ranks better than"
    elif high is not None and high < 0:
        verdict, words = "below", "ranks worse than"
    else:
        verdict, words = "level", "is not shown to rank better than"
    difference = values[0] - values[1]
    span = f", 95 % {low:+.3f} to {high:+.3f}" if low is not None and high is not None else ""
    said = (
        f"{one.name} {words} {other.name} on CAL: AUROC {values[0]:.3f} against {values[1]:.3f} "
        f"({difference:+.3f}{span})."
    )
    return replace(entry, difference=difference, low=low, high=high, verdict=verdict, sentence=said)


def _best(rows: Sequence[Mapping[str, Any]], alphas: Sequence[float]) -> list[dict[str, Any]]:
    """Name the best judge at each thing: maybe a control, and none where there is nothing."""
    judges = [row for row in rows if row["family"] != "control"]
    best = [
        _largest(what, {row["judge"]: (row[name]["cal"] or {}).get("value") for row in rows})
        for what, name in (
            ("AUROC on CAL", "auroc"),
            ("AUROC within tasks on CAL", "within_task"),
        )
    ]
    for side in SIDES:
        for alpha in alphas:
            cells = {row["judge"]: _cell(row, (side, alpha)) for row in judges}
            coverage = {name: (cell and cell["coverage"]) or None for name, cell in cells.items()}
            best.append(_largest(f"certified {side} coverage at {alpha:g}", coverage))
    seconds = {row["judge"]: row["cost"]["cpu_seconds_per_trajectory"] for row in judges}
    known = {name: value for name, value in seconds.items() if value is not None}
    cheapest = min(known, key=lambda name: known[name], default=None)
    value = None if cheapest is None else known[cheapest]
    what = "CPU seconds a trajectory"
    return [*best, {"what": what, "judge": cheapest, "value": value, "next": None}]


def _largest(what: str, values: Mapping[str, float | None]) -> dict[str, Any]:
    order = sorted(
        ((value, name) for name, value in values.items() if value is not None),
        key=lambda pair: -pair[0],
    )
    if not order:
        return {"what": what, "judge": None, "value": None, "next": None}
    most = order[0][0]
    tied = ", ".join(name for value, name in order if value == most)
    after = next(({"judge": name, "value": value} for value, name in order if value < most), None)
    return {"what": what, "judge": tied, "value": most, "next": after}


def findings(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what a reader must know about a comparison, above all what does not help.

    Parameters
    ----------
    document : mapping
        ``rows``, ``differences``, ``agent_disjoint`` and ``pretraining`` of `compare`.
    """
    rows = {row["judge"]: row for row in document["rows"]}
    said = [*_ranking(document["differences"]), *_coverage(rows)]
    said += [
        (
            "audit_error",
            f"The {cell['side']} certificate of {name} at {cell['alpha']:g} failed its audit: "
            f"error {cell['test_error']:.3f} on TEST.",
        )
        for name, row in rows.items()
        for cell in row["certified"]
        if cell["audit"] == "ERROR"
    ]
    said += [found for name, row in rows.items() for found in _limits(name, row)]
    said += [("agent_disjoint", item["sentence"]) for item in document["agent_disjoint"]]
    said += [("agents_in_pretraining", document["pretraining"])] if document["pretraining"] else []
    return [{"code": code, "message": message} for code, message in said]


def _ranking(differences: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    # of a judge with another's scores nothing else is to be reported
    same = {item["judge"] for item in differences if item["verdict"] == "same"}
    for item in differences:
        if item["verdict"] == "beats" or (item["judge"] in same and item["verdict"] != "same"):
            continue
        against = item["against"]
        code = "floor" if against == _FLOOR else "control" if against in CONTROLS else "start"
        yield f"not_above_{code}", item["sentence"]


def _coverage(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    floor = _cell(rows.get(_FLOOR))
    if floor is None or not floor["coverage"]:
        return
    for name, row in rows.items():
        cell = _cell(row)
        if name == _FLOOR or cell is None or cell["coverage"] > floor["coverage"]:
            continue
        words = "no more than" if cell["coverage"] == floor["coverage"] else "less than"
        yield (
            "coverage_not_above_floor",
            f"{name} certifies {words} the lexical floor: reject coverage {cell['coverage']:.3f} "
            f"against {floor['coverage']:.3f} at 0.1.",
        )


def _limits(name: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what limits the figures of one judge."""
    counts, certified_on = row["counts"]["cal"], row.get("certified_on")
    if counts["unscored"]:
        yield (
            "unscored",
            f"{name} left {counts['unscored']} of {counts['rows']} labelled CAL rows unscored; "
            "its figures are of the others.",
        )
    if certified_on and certified_on["split"] != "cal":
        yield (
            "half_of_cal",
            f"{name} is certified on half B of CAL alone, {certified_on['tasks']} tasks; half A "
            "let its pseudo-labels through, and its AUROC on CAL is of both.",
        )
    if row["candidates"] > 1:
        yield (
            "chosen_on_cal",
            f"{name} was chosen among {row['candidates']} candidates on CAL: its certificates "
            "pay for that, its AUROC on CAL does not.",
        )
    if row["trained_on_rl"]:
        yield (
            "trained_on_rl",
            f"The RL rows are rows that {name} was trained on; its AUROC there is no evidence.",
        )


def _cell(
    row: Mapping[str, Any] | None, of: tuple[str, float] = _HEADLINE
) -> Mapping[str, Any] | None:
    cells = row["certified"] if row else []
    return next((cell for cell in cells if (cell["side"], cell["alpha"]) == of), None)


def gather_table(store: Store, corpora: Iterable[str] | None = None) -> dict[str, Any]:
    """Compare the judges of every corpus, by default of all that are registered.

    Returns
    -------
    dict
        ``corpora``, a comparison each, and ``left_out``, those without one with the reason.
    """
    documents, left_out = [], []
    for corpus in registered_corpora(store) if corpora is None else corpora:
        try:
            documents.append(compare(Corpus(store, corpus)))
        except CertifyError as error:
            left_out.append({"corpus": corpus, "reason": str(error)})
    return {"schema": _TABLE_SCHEMA, "corpora": documents, "left_out": left_out}


def write_main_table(store: Store) -> dict[str, Any]:
    """Gather, store ``study/main_table.json`` and return it."""
    document = gather_table(store)
    store.write_json(MAIN_TABLE_KEY, document)
    return document
