"""A test run of DeepEval as it is stored, and what `evaluate` returned of another."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_json
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=5, tasks=3, successes=3, dropped={"no_trajectory": 1})


def case(number: int, canary: str | None = None) -> dict[str, Any]:
    """One test case under the names of a stored test run."""
    score = number / 5
    metric = {"name": "Judge", "score": score, "success": score < 0.5, "reason": canary}
    return {
        "name": f"case {number}",
        "input": f"Cancel t{number // 2}.",
        "actualOutput": f"Cancelled in attempt {number}." if number < 5 else "",
        "expectedOutput": canary,
        "success": score < 0.5,
        "metricsData": [{**metric, "evaluationModel": "gpt"}],
    }


def write(root: Path, canary: str | None = None) -> None:
    stored = [case(number, canary) for number in range(3)]
    write_json(root / "test_run_1.json", {"testCases": stored, "testPassed": 2})
    names = {
        "actualOutput": "actual_output",
        "expectedOutput": "expected_output",
        "metricsData": "metrics_data",
    }
    dumped = [
        {names.get(key, key): value for key, value in case(number, canary).items()}
        for number in range(3, 6)
    ]
    write_json(root / "result.json", {"test_results": dumped})
