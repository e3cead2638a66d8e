"""An output of OpenHands with reports written back, as events in one record, pairs in another."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_lines
from certify_assets_tests.corpora.formats import Counts
from certify_assets_tests.corpora.swe_builders import openhands

COUNTS = Counts(
    trajectories=3,
    tasks=2,
    successes=2,
    dropped={"infrastructure_error": 1, "no_label": 1, "no_trajectory": 1, "unreadable_record": 1},
)


def write(root: Path, canary: str | None = None) -> None:
    call = {"code": "print(1)", "thought": "I try."}
    pairs = [
        [
            {"source": "user", "action": "message", "args": {"content": "Fix it."}},
            {"source": "agent", "observation": "null", "content": canary or "", "extras": {}},
        ],
        [
            {"source": "agent", "action": "run_ipython", "args": call},
            {
                "source": "agent",
                "observation": "run_ipython",
                "content": "1",
                "extras": {"code": canary},
            },
        ],
    ]
    records: list[Any] = [
        openhands("org__name-1", True, "look"),
        openhands("org__name-2", False, "list"),
        openhands("org__name-2", True, history=pairs),
        openhands("org__name-3", None),
        openhands("org__name-4", None, history=[], error="timed out"),
        openhands("org__name-5", False, history=[]),
        {"instance_id": None, "history": [], "test_result": {}},
    ]
    if canary:
        for record in records[:3]:
            _plant(record, canary)
    write_lines(root / "model-1_maxiter_9" / "output.jsonl", records)


def _plant(record: dict[str, Any], canary: str) -> None:
    record["test_result"] = {"git_patch": canary, "report": {"tests": canary}}
    record["report"] |= {"note": canary, canary: canary}
    record["instance"] |= dict.fromkeys(
        ("patch", "test_patch", "hints_text", "FAIL_TO_PASS", "PASS_TO_PASS"), canary
    )
    record["metadata"]["details"] = {"gold": canary}
    record |= {
        "metrics": {canary: canary},
        "error": canary,
        "fine_grained_report": {"tests": canary},
    }
    for event in record["history"]:
        if isinstance(event, dict) and "extras" in event:
            event["extras"] = {"agent_state": canary}
