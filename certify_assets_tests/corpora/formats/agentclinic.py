"""AgentClinic runs: two runs of twelve cases and one of two, which is too small."""

import json
from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=20,
    tasks=10,
    successes=10,
    dropped={"infrastructure_error": 1, "no_label": 2, "no_trajectory": 1, "small_run": 2},
)


def case(
    number: int = 0,
    correct: bool | None = True,
    canary: str | None = None,
    said: str = "",
    **changes: Any,
) -> dict[str, Any]:
    """An AgentClinic case, written by hand."""
    secret = {"payload": canary, "kind": canary or "question", "refusal": canary, "via": canary}
    return {
        "scenario_id": f"MedQA-{number}",
        "dataset": "MedQA",
        "correct_diagnosis": canary or "Common cold",
        "answer_options": [canary],
        "score": {
            "outcome": canary,
            "correctness": correct,
            "moderator_raw": canary,
            "doctor_diagnosis": canary,
        },
        "infra_fail": False,
        "error": None,
        "findings": [canary],
        "refusals": [canary],
        "dialogue": [
            {"role": "doctor", "inference": 1, "text": f"How do you feel, patient {number}? {said}"}
            | secret,
            {"role": "patient", "text": "I sneeze."},
            {"role": "doctor", "inference": 2, "text": "REQUEST TEST: Temperature"} | secret,
            {"role": "measurement", "text": "RESULTS: 37.2"},
            {"role": "doctor", "inference": 3, "text": "DIAGNOSIS READY: Cold"} | secret,
        ],
        "doctor_turns": [{"incoming": canary, "reply": canary}],
        "diagnostics": {"note": canary},
    } | changes


def write(root: Path, canary: str | None = None) -> None:
    for name in ("20260101T000000Z-alpha", "20260101T010000Z-beta"):
        records = [case(number, number % 2 == 0, canary, name[-5:]) for number in range(10)]
        records += [
            case(10, None, canary, name),
            case(11, dialogue=[]) if "beta" in name else case(11, infra_fail=True),
        ]
        _write(root / name, records)
        summary = json.dumps({"accuracy": canary, "selected_ids": [0]})
        (root / name / "SUMMARY.json").write_text(summary, "utf-8")
    _write(
        root / "20260101T020000Z-smoke",
        [case(number, True, canary, "smoke") for number in range(2)],
    )


def _write(folder: Path, records: list[dict[str, Any]]) -> None:
    (folder / "cases").mkdir(parents=True)
    for number, record in enumerate(records):
        (folder / "cases" / f"MedQA-{number}.json").write_text(json.dumps(record), "utf-8")
