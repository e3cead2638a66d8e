"""Samples that lm-evaluation-harness logs of a task with generated answers and one with choices."""

from pathlib import Path
from typing import Any

from certify_assets_tests.corpora.builders import write_lines
from certify_assets_tests.corpora.formats import Counts

COUNTS = Counts(trajectories=4, tasks=4, successes=2, dropped={"no_trajectory": 1})
TIME = "2026-01-02T03-04-05.678901"


def sample(
    number: int, arguments: Any, answers: Any, metric: str, value: float, canary: str | None
) -> dict[str, Any]:
    """One line, under the fields that the harness writes."""
    return {
        "doc_id": number,
        "doc": {"q": f"Question {number}?", "a": canary},
        "target": canary,
        "arguments": {f"gen_args_{place}": one for place, one in enumerate(arguments)},
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "filter": "none",
        "metrics": [metric],
        "doc_hash": "0",
        metric: value,
    }


def write(root: Path, canary: str | None = None) -> None:
    asked = [[{"arg_0": f"Question {number}?", "arg_1": {"until": ["."]}}] for number in range(3)]
    generated = [
        sample(number, asked[number], [answer], "exact_match", number % 2, canary)
        for number, answer in enumerate(("one", "two", ""))
    ]
    choices = [{"arg_0": "Which?", "arg_1": " this"}, {"arg_0": "Which?", "arg_1": " that"}]
    logs = [["-0.1", "False"], ["-2.5", "False"]]
    chosen = [
        sample(number, choices, logs[:: 1 - 2 * number], "acc", 1 - number, canary)
        for number in range(2)
    ]
    folder = root / "model"
    write_lines(folder / f"samples_answers_{TIME}.jsonl", generated)
    write_lines(folder / f"samples_choices_{TIME}.jsonl", chosen)
