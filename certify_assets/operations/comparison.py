"""Judges of one corpus compared: ranking, certified coverage, audits, cost, and what does not help.

AUROC is that of labelled RL and CAL rows; TEST is known only through what an audit read by the
ledger. Every difference is taken on the CAL rows that both judges scored, under the same resamples
of tasks; certificates are of the splits that each judge did not learn from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from certify_assets.certificates.auroc import AurocFigures, Ranking, name_codes, task_resamples
from certify_assets.corpora import HALF_B
from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.files import canonical_json, rounded, sha256_bytes
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES
from certify_assets.operations.judge_results import (
    CONTROLS,
    JudgeResults,
    LabelledScores,
    gather_judges,
)
from certify_assets.operations.unseen_agents import (
    FoldsDocument,
    paired_difference,
    pretraining_caveat,
    stored_agent_folds,
)
from certify_assets.storage.store import Store

MAIN_TABLE_KEY = "study/main_table.json"
_TABLE_SCHEMA = "certify_assets/main_table/1"
COMPARISON_SCHEMA = "certify_assets/comparison/1"
_SPLITS = ("rl", "cal", "test")
_FLOOR = "lexical"
_HEADLINE = ("reject", 0.1)
#: a document as it is stored and printed, or a part of it
Document = dict[str, Any]


def comparison_key(corpus: str, name: str = "comparison.json") -> str:
    """Return where the comparison of a corpus is stored."""
    return f"comparison/{corpus}/{name}"


def compare(corpus: Corpus) -> Document:
    """Compare every judge that scored a corpus."""
    judged, missing = gather_judges(corpus)
    if not any(item.family != "control" for item in judged):
        reasons = "; ".join(
            f"{item['judge']}: {item['reason']}" for item in missing if item["what"] == "scores"
        )
        raise InputError(f"no judge has current scores on {corpus} ({reasons})")
    rows, differences = [_row(item) for item in judged], _differences(judged)
    cal, folds = judged[0].rows["cal"], stored_agent_folds(corpus)
    caveat = pretraining_caveat([item.name for item in judged], [str(name) for name in cal.agents])
    document: Document = {
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
        "differences": differences,
        "best": _best(rows, corpus.config.alphas),
        "agent_disjoint": folds,
        "pretraining": caveat,
        "findings": _findings(rows, differences, folds, caveat),
    }
    found: Document = rounded(document)
    return found


def write_comparison(corpus: Corpus) -> Document:
    """Compare, store the document and return it."""
    document = compare(corpus)
    corpus.store.write_json(comparison_key(corpus.name), document)
    return document


def beaten_by_controls(document: Document) -> list[str]:
    """Return a sentence for every judge not shown to rank better than a control it must beat."""
    controlled = controls_to_beat(document)
    return [
        item["sentence"]
        for item in document["differences"]
        if item["against"] in controlled.get(item["judge"], ()) and item["verdict"] != "beats"
    ]


def controls_to_beat(document: Document) -> dict[str, tuple[str, ...]]:
    """Return the controls that judges may not rank as badly as: what they could have learnt."""
    found: dict[str, tuple[str, ...]] = {}
    for row in document["rows"]:
        if row.get("model"):
            found[row["judge"]] = ("length_only", "agent_only")
        elif row["family"] in ("structure", "combined"):
            # lengths and steps are among their features
            found[row["judge"]] = ("length_only", "step_count", "agent_only")
    return found


def other_rows(document: Document) -> list[str]:
    """Return a sentence for every judge that did not score all labelled rows of CAL."""
    return [_other(row) for row in document["rows"] if row["counts"]["cal"]["unscored"]]


def _other(row: Document) -> str:
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


def _row(item: JudgeResults) -> Document:
    # TEST has rows only where an audit has read it
    areas = {split: _areas(item.rows[split]) for split in _SPLITS if split in item.rows}
    return {
        "judge": item.name,
        "family": item.family,
        **item.about,
        "auroc": {split: areas.get(split, (None, None))[0] for split in _SPLITS},
        "within_task": {split: areas.get(split, (None, None))[1] for split in _SPLITS},
        "counts": {split: _counts(rows) for split, rows in item.rows.items()},
    }


def _areas(rows: LabelledScores) -> tuple[AurocFigures, AurocFigures]:
    """AUROC of all pairs, and of pairs of one task."""
    kept = np.isfinite(rows.scores)
    tasks = name_codes(rows.tasks[kept])
    resamples = task_resamples(tasks)
    scores, outcomes = rows.scores[kept], rows.outcomes[kept]
    return (
        Ranking.of(scores, outcomes).estimate(resamples),
        Ranking.of(scores, outcomes, tasks).estimate(resamples),
    )


def _counts(rows: LabelledScores) -> Document:
    scored = np.isfinite(rows.scores)
    return {
        "rows": rows.scores.size,
        "unscored": int((~scored).sum()),
        "tasks": len(set(rows.tasks)),
        "scored_sha256": sha256_bytes(
            canonical_json(sorted(str(name) for name in rows.trajectories[scored]))
        ),
    }


def _differences(judged: Sequence[JudgeResults]) -> list[Document]:
    by_name = {item.name: item for item in judged}
    return [
        _difference(item, by_name[other])
        for item in judged
        if item.family != "control"
        for other in dict.fromkeys((_FLOOR, item.start, *CONTROLS))
        if other in by_name and other != item.name
    ]


def _difference(one: JudgeResults, other: JudgeResults) -> Document:
    """Return the difference with its interval over tasks."""
    mine, theirs = one.rows["cal"], other.rows["cal"]
    kept = np.isfinite(mine.scores) & np.isfinite(theirs.scores)
    resamples = task_resamples(name_codes(mine.tasks[kept]))
    rankings = [Ranking.of(rows.scores[kept], rows.outcomes[kept]) for rows in (mine, theirs)]
    auroc, against = (ranking.estimate(resamples[:0])["value"] for ranking in rankings)
    found = paired_difference(rankings[0], rankings[1], resamples)
    value, low, high = found["value"], found["low"], found["high"]
    if np.array_equal(mine.scores, theirs.scores, equal_nan=True):
        verdict, value, low, high = "same", 0.0, 0.0, 0.0
        sentence = (
            f"{one.name} gives {other.name}'s scores on CAL: its training or its choice changed "
            "nothing."
        )
    elif value is None:
        verdict = "unknown"
        sentence = (
            f"{one.name} and {other.name} cannot be compared: the CAL rows that both scored have "
            "one outcome."
        )
    else:
        if low is not None and low > 0:
            verdict, words = "beats", "ranks better than"
        elif high is not None and high < 0:
            verdict, words = "below", "ranks worse than"
        else:
            verdict, words = "level", "is not shown to rank better than"
        span = "" if low is None or high is None else f", 95 % {low:+.3f} to {high:+.3f}"
        sentence = (
            f"{one.name} {words} {other.name} on CAL: AUROC {auroc:.3f} against {against:.3f} "
            f"({value:+.3f}{span})."
        )
    return {
        "judge": one.name,
        "against": other.name,
        "rows": int(kept.sum()),
        "auroc": auroc,
        "other": against,
        "difference": value,
        "low": low,
        "high": high,
        "verdict": verdict,
        "sentence": sentence,
    }


def _best(rows: Sequence[Document], alphas: Sequence[float]) -> list[Document]:
    judges = [row for row in rows if row["family"] != "control"]
    best = [
        _largest("AUROC on CAL", {row["judge"]: _value(row["auroc"]) for row in rows}),
        _largest(
            "AUROC within tasks on CAL", {row["judge"]: _value(row["within_task"]) for row in rows}
        ),
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


def _value(areas: Mapping[str, AurocFigures | None]) -> float | None:
    area = areas["cal"]
    return area["value"] if area else None


def _largest(what: str, values: Mapping[str, float | None]) -> Document:
    order = sorted(
        ((value, name) for name, value in values.items() if value is not None),
        key=lambda pair: -pair[0],
    )
    if not order:
        return {"what": what, "judge": None, "value": None, "next": None}
    most = order[0][0]
    tied = ", ".join(name for value, name in order if value == most)
    after: list[Document] = [
        {"judge": name, "value": value} for value, name in order if value < most
    ]
    return {"what": what, "judge": tied, "value": most, "next": after[0] if after else None}


def _findings(
    judged: Sequence[Document],
    differences: Sequence[Document],
    folds: Sequence[FoldsDocument],
    caveat: str,
) -> list[dict[str, str]]:
    """Return what a reader must know about a comparison, above all what does not help."""
    rows = {row["judge"]: row for row in judged}
    said = [*_ranking(differences), *_coverage(rows)]
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
    said += [("agent_disjoint", item["sentence"]) for item in folds]
    said += [("agents_in_pretraining", caveat)] if caveat else []
    return [{"code": code, "message": message} for code, message in said]


def _ranking(differences: Sequence[Document]) -> Iterator[tuple[str, str]]:
    # of a judge with another's scores nothing else is to be reported
    same = {item["judge"] for item in differences if item["verdict"] == "same"}
    for item in differences:
        if item["verdict"] == "beats" or (item["judge"] in same and item["verdict"] != "same"):
            continue
        against = item["against"]
        code = "floor" if against == _FLOOR else "control" if against in CONTROLS else "start"
        yield f"not_above_{code}", item["sentence"]


def _coverage(rows: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    floor = _cell(rows.get(_FLOOR))
    if floor is None or not floor["coverage"]:
        return
    for name, row in rows.items():
        cell = _cell(row)
        if name == _FLOOR or cell is None or cell["coverage"] > floor["coverage"]:
            continue
        words = "no more than" if cell["coverage"] == floor["coverage"] else "less than"
        mine, theirs = (rows[of]["certified_on"] for of in (name, _FLOOR))
        other = (
            f" It is certified on {mine['tasks']} tasks and the floor on {theirs['tasks']}: what a "
            "judge learned from does not certify it."
            if mine and theirs and mine["split"] != theirs["split"]
            else ""
        )
        yield (
            "coverage_not_above_floor",
            f"{name} certifies {words} the lexical floor: reject coverage {cell['coverage']:.3f} "
            f"against {floor['coverage']:.3f} at 0.1.{other}",
        )


def _limits(name: str, row: Document) -> Iterator[tuple[str, str]]:
    """Yield what limits the figures of one judge."""
    counts, certified_on = row["counts"]["cal"], row["certified_on"]
    if counts["unscored"]:
        yield (
            "unscored",
            f"{name} left {counts['unscored']} of {counts['rows']} labelled CAL rows unscored; "
            "its figures are of the others.",
        )
    if certified_on and certified_on["split"] == HALF_B:
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


def _cell(row: Document | None, of: tuple[str, float] = _HEADLINE) -> Document | None:
    cells = row["certified"] if row else []
    return next((cell for cell in cells if (cell["side"], cell["alpha"]) == of), None)


def gather_table(store: Store, corpora: Iterable[str] | None = None) -> Document:
    """Compare the judges of every corpus, by default of all that are registered."""
    documents, left_out = [], []
    for corpus in registered_corpora(store) if corpora is None else corpora:
        try:
            documents.append(compare(Corpus(store, corpus)))
        except CertifyError as error:
            left_out.append({"corpus": corpus, "reason": str(error)})
    return {"schema": _TABLE_SCHEMA, "corpora": documents, "left_out": left_out}


def write_main_table(store: Store) -> Document:
    """Gather, store ``study/main_table.json`` and return it."""
    document = gather_table(store)
    store.write_json(MAIN_TABLE_KEY, document)
    return document
