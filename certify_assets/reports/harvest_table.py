"""Harvest tables: rounds, and controls without a certificate."""

from __future__ import annotations

from collections.abc import Mapping

from certify_assets.judges.harvest.rows import (
    AuditedRow,
    ControlRow,
    HarvestDocument,
    LoopRow,
    RoundRow,
)


def loop_rows(document: HarvestDocument) -> list[dict[str, str]]:
    """Return one row a round: harvest, share of wrong labels, coverage on half B and TEST."""
    return [
        {**_loop(loop), **_round(row, loop["gate"])}
        for loop in document["loops"]
        for row in loop["rounds"]
    ]


def control_rows(document: HarvestDocument) -> list[dict[str, str]]:
    """Return one row a control, once a profile, side and budget: it has no gate."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for loop in document["loops"]:
        for control in loop["controls"]:
            place = {name: value for name, value in _loop(loop).items() if name != "gate"}
            key = (*place.values(), control["control"], str(control.get("size", "")))
            rows.setdefault(key, {**place, **_control(control, loop["gate"])})
    return list(rows.values())


def _loop(loop: LoopRow) -> dict[str, str]:
    return {
        "profile": loop["profile"],
        "side": loop["side"],
        "alpha": f"{loop['alpha']:g}",
        "gate": loop["gate"],
    }


def _round(row: RoundRow, gate: str) -> dict[str, str]:
    about = {"round": str(row["round"]), "harvest": "", "wrong": ""}
    if "harvest" in row:
        found = row["harvest"]
        about["harvest"] = f"{found['size']}/{found['pool']}"
        about["wrong"] = _number(found["contamination"])
    if "skipped" in row:
        return about | _cells({}, gate) | {"note": row["skipped"]}
    return about | _cells(row["certificates"], gate) | {"note": ""}


def _control(control: ControlRow, gate: str) -> dict[str, str]:
    about = {"control": control["control"], "harvest": "", "wrong": ""}
    if "labels" in control:
        about["harvest"] = f"{control['labels']} labels"
    else:
        about["harvest"] = f"{control['size']}/{control['pool']}"
        about["wrong"] = _number(control["contamination"])
    return about | _cells({} if "adapter_sha256" not in control else control["certificates"], gate)


def _cells(cells: Mapping[str, AuditedRow], gate: str) -> dict[str, str]:
    """Coverage by the gate's procedure where it certifies judges, else by the deciding one."""
    cell = cells.get(gate) or cells.get("pseudo_task") or cells.get("guarded_taskboot")
    return {
        "half B": _number(cell["half_b_coverage"] if cell else None),
        "TEST own": _number(cell["test_own_coverage"] if cell else None),
        "TEST deployed": _number(cell["test_coverage"] if cell else None),
        "TEST error": _number(cell["test_error"] if cell else None),
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
