"""promptfoo results of two tests, two attempts each: a JSON file, and JSON lines."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_json, write_lines
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(
    trajectories=6, tasks=3, successes=3, dropped={"no_trajectory": 1, "infrastructure_error": 1}
)


def result(
    test: str, attempt: int, *, passed: bool, judge: float = 0.5, canary: str | None = None
) -> dict[str, Any]:
    """One result, with a test in code and a judge."""
    asserted = [("equals", None, float(passed)), ("llm-rubric", "judge", judge)]
    return {
        "id": f"{test}-{attempt}",
        "promptIdx": 0,
        "testIdx": 0,
        "provider": {"id": "echo", "label": ""},
        "prompt": {"raw": f"Cancel {test}.", "label": "{{q}}"},
        "vars": {"q": f"Cancel {test}.", "expected": canary},
        "testCase": {"description": test, "assert": [{"type": "equals", "value": canary}]},
        "response": {"output": f"Cancelled {test} in attempt {attempt}."},
        "gradingResult": {
            "pass": passed,
            "score": judge,
            "reason": canary,
            "componentResults": [
                {
                    "pass": score >= 0.5,
                    "score": score,
                    "reason": canary,
                    "assertion": {"type": kind, "metric": metric, "value": canary},
                }
                for kind, metric, score in asserted
            ],
        },
        "success": passed,
        "failureReason": 0 if passed else 1,
    }


def write(root: Path, canary: str | None = None) -> None:
    made = [
        result(f"t{n // 2}", n % 2, passed=n % 2 == 0, judge=n / 8, canary=canary) for n in range(6)
    ]
    empty = {**result("t3", 0, passed=False), "id": "empty", "response": {}}
    failed = {**result("t3", 1, passed=False), "id": "failed", "failureReason": 2}
    document = {"evalId": "eval", "results": {"version": 3, "results": made[:3]}, "config": {}}
    write_json(root / "results.json", document)
    write_lines(root / "results.jsonl", [*made[3:], empty, failed])
