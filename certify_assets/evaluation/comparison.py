"""Judges of one corpus side by side: how they rank, what they certified, what an audit found, what they cost, and what does not help.

AUROC is that of labelled RL and CAL rows; TEST is known only through what an audit read by the ledger. Every difference is taken on the rows that both
judges scored, under the same resamples of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from certify_assets.corpora.auroc_interval import (
    PairRanking,
    area_of,
    codes,
    interval,
    task_resamples,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.evaluation.agent_folds import pretraining_caveat, stored_agent_folds
from certify_assets.evaluation.comparison_findings import findings
from certify_assets.evaluation.judged import CONTROLS, Judged, Rows, gather_judges
from certify_assets.files import canonical_json, rounded, sha256_bytes
from certify_assets.judges.specs import ALPHAS, DELTA, PROCEDURES, SIDES

__all__ = [
    "COMPARISON_SCHEMA",
    "beaten_by_controls",
    "compare",
    "comparison_key",
    "other_rows",
    "readers",
    "write_comparison",
]

COMPARISON_SCHEMA = "certify_assets/comparison/1"
_SPLITS = ("rl", "cal", "test")
_FLOOR = "lexical"


def comparison_key(corpus: str, name: str = "comparison.json") -> str:
    """Return where the comparison of a corpus is stored."""
    return f"comparison/{corpus}/{name}"


def compare(corpus: Corpus) -> dict[str, Any]:
    """Compare every judge that scored a corpus.

    Parameters
    ----------
    store : Store
    corpus : str

    Returns
    -------
    dict
        ``rows`` one a judge or leak control, ``missing`` with reasons, ``differences`` of AUROC on CAL, ``best`` judge at each thing, ``findings`` as
        sentences, ``agent_disjoint`` evaluations that are there, ``pretraining`` where
        a base model has seen the agents. Plain values, floats at ten significant digits.

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
        "alphas": list(ALPHAS),
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
        "best": _best(rows),
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
    """Return a sentence for every language-model judge that is not shown to rank better than length or agent alone."""
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
    """Return a sentence for every judge that scored other rows of CAL than all of them."""
    return [_other(row) for row in document["rows"] if row["counts"]["cal"]["unscored"]]


def _other(row: Mapping[str, Any]) -> str:
    counts = row["counts"]["cal"]
    if row["family"] == "harvest":
        used = counts["rows"] - counts["unscored"]
        return f"{row['judge']} is compared on {used} of {counts['rows']} labelled CAL rows, those of half B: half A let its harvest through."
    return (
        f"{row['judge']} left {counts['unscored']} of {counts['rows']} labelled CAL rows unscored."
    )


def _row(item: Judged) -> dict[str, Any]:
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


def _areas(rows: Rows) -> dict[str, Any]:
    kept = np.isfinite(rows.scores)
    tasks = codes(rows.tasks[kept])
    resamples = task_resamples(tasks)
    scores, outcomes = rows.scores[kept], rows.outcomes[kept]
    return {
        "auroc": area_of(PairRanking.of(scores, outcomes), resamples).to_dict(),
        "within_task": area_of(PairRanking.of(scores, outcomes, tasks), resamples).to_dict(),
    }


def _counts(rows: Rows) -> dict[str, Any]:
    scored = np.isfinite(rows.scores)
    return {
        "rows": rows.scores.size,
        "unscored": int((~scored).sum()),
        "tasks": len(set(rows.tasks)),
        "scored_sha256": sha256_bytes(
            canonical_json(sorted(str(name) for name in rows.trajectories[scored]))
        ),
    }


def _cells(item: Judged) -> list[dict[str, Any]]:
    cells = []
    for side in SIDES:
        for alpha in ALPHAS:
            found = next(
                (one for one in item.certificates if one.side == side and one.alpha == alpha), None
            )
            if found is None:
                continue
            audit = item.audits.get(found.sha256, {})
            cells.append(
                {
                    "side": side,
                    "alpha": alpha,
                    "certified": found.certified,
                    "coverage": found.coverage,
                    "candidates": found.candidates,
                    "certificate_sha256": found.sha256,
                    "audit": audit.get("verdict") if found.certified else None,
                    "test_error": audit.get("realized_error") if found.certified else None,
                    "test_coverage": audit.get("coverage") if found.certified else None,
                }
            )
    return cells


def _certified_on(item: Judged) -> dict[str, Any] | None:
    """Return the rows that the certificates are of: all labelled CAL, or the half of it that a harvest left; None where there are none."""
    if not item.certificates:
        return None
    one = item.certificates[0]
    return {
        "split": str(one.provenance["split"]),
        "trajectories": one.trajectories,
        "tasks": one.tasks,
    }


def _cost(item: Judged) -> dict[str, Any]:
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


def _differences(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    by_name = {item.name: item for item in judged}
    found = []
    for item in judged:
        if item.family == "control":
            continue
        for other in dict.fromkeys((_FLOOR, item.start, *CONTROLS)):
            if other in by_name and other != item.name:
                found.append(_difference(item, by_name[other]))
    return found


def _difference(one: Judged, other: Judged) -> dict[str, Any]:
    """Difference of AUROC on the CAL rows that both scored, with its interval over tasks."""
    mine, theirs = one.rows["cal"], other.rows["cal"]
    kept = np.isfinite(mine.scores) & np.isfinite(theirs.scores)
    resamples = task_resamples(codes(mine.tasks[kept]))
    rankings = [PairRanking.of(rows.scores[kept], rows.outcomes[kept]) for rows in (mine, theirs)]
    values = [area_of(ranking, resamples[:0]).value for ranking in rankings]
    entry = {
        "judge": one.name,
        "against": other.name,
        "rows": int(kept.sum()),
        "auroc": values[0],
        "other": values[1],
    }
    if np.array_equal(mine.scores, theirs.scores, equal_nan=True):
        said = f"{one.name} gives {other.name}'s scores on CAL: its training or its choice changed nothing."
        return {
            **entry,
            "difference": 0.0,
            "low": 0.0,
            "high": 0.0,
            "verdict": "same",
            "sentence": said,
        }
    if values[0] is None or values[1] is None:
        said = f"{one.name} and {other.name} cannot be compared: the CAL rows that both scored have one outcome."
        return {
            **entry,
            "difference": None,
            "low": None,
            "high": None,
            "verdict": "unknown",
            "sentence": said,
        }
    low, high = (
        interval(rankings[0].areas(resamples) - rankings[1].areas(resamples))
        if len(resamples)
        else (None, None)
    )
    verdict = (
        "beats"
        if low is not None and low > 0
        else "below"
        if high is not None and high < 0
        else "level"
    )
    words = {
        "beats": "ranks better than",
        "below": "ranks worse than",
        "level": "is not shown to rank better than",
    }[verdict]
    difference = values[0] - values[1]
    span = f", 95 % {low:+.3f} to {high:+.3f}" if low is not None and high is not None else ""
    said = f"{one.name} {words} {other.name} on CAL: AUROC {values[0]:.3f} against {values[1]:.3f} ({difference:+.3f}{span})."
    return {
        **entry,
        "difference": difference,
        "low": low,
        "high": high,
        "verdict": verdict,
        "sentence": said,
    }


def _best(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Name the best judge at each thing; a control may be it, and nobody where there is nothing."""
    judges = [row for row in rows if row["family"] != "control"]
    things: dict[str, dict[str, float | None]] = {
        "AUROC on CAL": {row["judge"]: (row["auroc"]["cal"] or {}).get("value") for row in rows},
        "AUROC within tasks on CAL": {
            row["judge"]: (row["within_task"]["cal"] or {}).get("value") for row in rows
        },
    }
    for side in SIDES:
        for alpha in ALPHAS:
            cells = {
                row["judge"]: [
                    cell
                    for cell in row["certified"]
                    if (cell["side"], cell["alpha"]) == (side, alpha)
                ]
                for row in judges
            }
            things[f"certified {side} coverage at {alpha:g}"] = {
                name: found[0]["coverage"] or None if found else None
                for name, found in cells.items()
            }
    best = [_largest(what, values) for what, values in things.items()]
    seconds = {row["judge"]: row["cost"]["cpu_seconds_per_trajectory"] for row in judges}
    cheapest = min(
        (name for name, value in seconds.items() if value is not None),
        key=lambda name: seconds[name] or 0.0,
        default=None,
    )
    return [
        *best,
        {
            "what": "CPU seconds a trajectory",
            "judge": cheapest,
            "value": seconds.get(cheapest or ""),
            "next": None,
        },
    ]


def _largest(what: str, values: Mapping[str, float | None]) -> dict[str, Any]:
    order = sorted(
        ((value, name) for name, value in values.items() if value is not None),
        key=lambda pair: -pair[0],
    )
    if not order:
        return {"what": what, "judge": None, "value": None, "next": None}
    tied = [name for value, name in order if value == order[0][0]]
    after = next(
        ({"judge": name, "value": value} for value, name in order if value < order[0][0]), None
    )
    return {"what": what, "judge": ", ".join(tied), "value": order[0][0], "next": after}
