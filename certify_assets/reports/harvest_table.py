"""Harvest tables: rounds, and controls without a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def loop_rows(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one row a round: harvest, share of wrong labels, coverage on half B and TEST."""
    return [
        {**_loop(loop), **_round(row, loop["gate"])}
        for loop in document["loops"]
        for row in loop["rounds"]
    ]


def control_rows(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return one row a control, once a profile, side and budget: it has no gate."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for loop in document["loops"]:
        for control in loop["controls"]:
            place = {name: value for name, value in _loop(loop).items() if name != "gate"}
            key = (*place.values(), control["control"], str(control.get("size", "")))
            rows.setdefault(key, {**place, **_control(control, loop["gate"])})
    return list(rows.values())


def harvest_markdown(document: Mapping[str, Any], limit: int = 8) -> str:
    """Return a short table of the harvests that were made, for an asset's page."""
    made = [
        (loop, row)
        for loop in document["loops"]
        for row in loop["rounds"]
        if row.get("harvest", {}).get("size")
    ]
    lines = [
        "| profile | side | α | gate | round | harvest | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for loop, row in made[:limit]:
        found = row["harvest"]
        lines.append(
            f"| {loop['profile']} | {loop['side']} | {loop['alpha']:g} | {loop['gate']} | "
            f"{row['round']} | {found['size']}/{found['pool']} | "
            f"{found['contamination']:.3f} |"
        )
    rest = f"\n\n{len(made) - limit} more in the document." if len(made) > limit else ""
    return (
        "\n".join(lines) + rest if made else f"No gate opened: {document['gates_closed']} closed."
    )


def _loop(loop: Mapping[str, Any]) -> dict[str, str]:
    return {
        "profile": loop["profile"],
        "side": loop["side"],
        "alpha": f"{loop['alpha']:g}",
        "gate": loop["gate"],
    }


def _round(row: Mapping[str, Any], gate: str) -> dict[str, str]:
    found = row.get("harvest")
    about = {
        "round": str(row["round"]),
        "harvest": f"{found['size']}/{found['pool']}" if found else "",
        "wrong": _number(found and found["contamination"]),
    }
    return about | _cells(row, gate) | {"note": row.get("skipped", "")}


def _control(control: Mapping[str, Any], gate: str) -> dict[str, str]:
    size = (
        f"{control['size']}/{control['pool']}"
        if "size" in control
        else f"{control['labels']} labels"
    )
    return {
        "control": control["control"],
        "harvest": size,
        "wrong": _number(control.get("contamination")),
    } | _cells(control, gate)


def _cells(row: Mapping[str, Any], gate: str) -> dict[str, str]:
    """Coverage by the gate's procedure where it certifies judges, else by the guarded one."""
    cells = row.get("certificates", {})
    cell = cells.get(gate) or cells.get("guarded_taskboot") or {}
    return {
        "half B": _number(cell.get("half_b_coverage")),
        "TEST own": _number(cell.get("test_own_coverage")),
        "TEST deployed": _number(cell.get("test_coverage")),
        "TEST error": _number(cell.get("test_error")),
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
