"""What a reader of a comparison must be told in sentences: above all what does not help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["findings"]

_CONTROLS = ("length_only", "step_count", "agent_only")
_FLOOR = "lexical"
_HEADLINE = ("reject", 0.1)


def findings(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return findings of a comparison as codes with sentences.

    Parameters
    ----------
    document : mapping
        Rows, differences, missing judges and evaluations on unseen agents, as `compare` gathers them.
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
            if item["against"] in _CONTROLS
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
