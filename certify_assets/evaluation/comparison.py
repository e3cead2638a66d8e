"""Judges of one corpus side by side: how they rank, what they certified, what an audit found, what they cost, and what does not help.

AUROC is that of labelled RL and CAL rows; TEST is known only through what an audit read by the ledger. Every difference is taken on the rows that both
judges scored, under the same resamples of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
from certify_assets.judges.specs import ALPHAS, DELTA, PROCEDURES, SIDES
from certify_assets.storage.store import Store

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


def _cells(item: JudgeResults) -> list[dict[str, Any]]:
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


def _certified_on(item: JudgeResults) -> dict[str, Any] | None:
    """Return the rows that the certificates are of: all labelled CAL, or the half of it that a harvest left; None where there are none."""
    if not item.certificates:
        return None
    one = item.certificates[0]
    return {
        "split": str(one.provenance["split"]),
        "trajectories": one.trajectories,
        "tasks": one.tasks,
    }


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


def _differences(judged: Sequence[JudgeResults]) -> list[dict[str, Any]]:
    by_name = {item.name: item for item in judged}
    found = []
    for item in judged:
        if item.family == "control":
            continue
        for other in dict.fromkeys((_FLOOR, item.start, *CONTROLS)):
            if other in by_name and other != item.name:
                found.append(_difference(item, by_name[other]))
    return found


def _difference(one: JudgeResults, other: JudgeResults) -> dict[str, Any]:
    """Difference of AUROC on the CAL rows that both scored, with its interval over tasks."""
    mine, theirs = one.rows["cal"], other.rows["cal"]
    kept = np.isfinite(mine.scores) & np.isfinite(theirs.scores)
    resamples = task_resamples(name_codes(mine.tasks[kept]))
    rankings = [Ranking.of(rows.scores[kept], rows.outcomes[kept]) for rows in (mine, theirs)]
    values = [ranking.estimate(resamples[:0]).value for ranking in rankings]
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
        percentile_interval(rankings[0].aurocs(resamples) - rankings[1].aurocs(resamples))
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


def findings(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return findings of a comparison as codes with sentences.

    Parameters
    ----------
    document : mapping
        LabelledScores, differences, missing judges and evaluations on unseen agents, as `compare` gathers them.
    """
    rows = {row["judge"]: row for row in document["rows"]}
    said = [
        *_ranking(document["differences"]),
        *_coverage(rows),
        *_audits(rows),
        *_reading(rows),
        *_agents(document["agent_disjoint"]),
    ]
    said += [("agents_in_pretraining", document["pretraining"])] if document["pretraining"] else []
    return [{"code": code, "message": message} for code, message in said]


def _ranking(differences: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    # a judge with another's scores has nothing of its own to be said of
    same = {item["judge"] for item in differences if item["verdict"] == "same"}
    for item in differences:
        if item["verdict"] == "beats" or (item["judge"] in same and item["verdict"] != "same"):
            continue
        code = (
            "floor"
            if item["against"] == _FLOOR
            else "control"
            if item["against"] in CONTROLS
            else "start"
        )
        yield f"not_above_{code}", item["sentence"]


def _coverage(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    floor = _cell(rows.get(_FLOOR))
    if floor is None:
        return
    for name, row in rows.items():
        cell = _cell(row)
        nothing_to_beat = (
            cell is None or cell["coverage"] > floor["coverage"] or not floor["coverage"]
        )
        if name == _FLOOR or cell is None or nothing_to_beat:
            continue
        words = "no more than" if cell["coverage"] == floor["coverage"] else "less than"
        yield (
            "coverage_not_above_floor",
            f"{name} certifies {words} the lexical floor: reject coverage {cell['coverage']:.3f} against {floor['coverage']:.3f} at 0.1.",
        )


def _audits(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, row in rows.items():
        for cell in row["certified"]:
            if cell["audit"] == "ERROR":
                yield (
                    "audit_error",
                    f"The {cell['side']} certificate of {name} at {cell['alpha']:g} failed its audit: error {cell['test_error']:.3f} on TEST.",
                )


def _reading(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, row in rows.items():
        counts = row["counts"]["cal"]
        if counts["unscored"]:
            yield (
                "unscored",
                f"{name} left {counts['unscored']} of {counts['rows']} labelled CAL rows unscored; its figures are of the others.",
            )
        on = row.get("certified_on")
        if on and on["split"] != "cal":
            yield (
                "half_of_cal",
                f"{name} is certified on half B of CAL alone, {on['tasks']} tasks; half A let its pseudo-labels through, and its AUROC on CAL is of both.",
            )
        if row["candidates"] > 1:
            yield (
                "chosen_on_cal",
                f"{name} was chosen among {row['candidates']} candidates on CAL: its certificates pay for that, its AUROC on CAL does not.",
            )
        if row["trained_on_rl"]:
            yield (
                "trained_on_rl",
                f"The RL rows are rows that {name} was trained on; its AUROC there is no evidence.",
            )


def _agents(evaluations: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for item in evaluations:
        yield "agent_disjoint", item["sentence"]


def _cell(row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    cells = row["certified"] if row else []
    return next((cell for cell in cells if (cell["side"], cell["alpha"]) == _HEADLINE), None)


def gather_table(store: Store, corpora: Iterable[str] | None = None) -> dict[str, Any]:
    """Compare the judges of every corpus; a corpus that gives no row is left out with the reason.

    Parameters
    ----------
    store : Store
    corpora : iterable of str, optional
        All that the data root has where it is not given.

    Returns
    -------
    dict
        ``corpora``, a comparison each, and ``left_out``.
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
