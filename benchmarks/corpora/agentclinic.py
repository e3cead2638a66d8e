"""Convert AgentClinic runs (a folder of cases each) to a table of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from converting import Row, Steps, convert

from certify_assets.corpora.formats.files import FileSet

# smaller runs were made while the benchmark was set up
FEWEST_CASES = 10
_STAMP = re.compile(r"^\d{8}T\d{6}Z?[-_]")


def rows(files: FileSet) -> Iterator[Row]:
    """Go through the cases of the runs that are large enough."""
    runs: dict[str, list[Row]] = {}
    for file in files:
        if PurePosixPath(file.name).parent.name == "cases":
            run = PurePosixPath(file.name).parent.parent.name
            runs.setdefault(run, []).append(json.loads(file.read()))
    for run, cases in runs.items():
        if len(cases) >= FEWEST_CASES:
            for case in cases:
                if not (case["infra_fail"] or case["error"]):
                    yield row(case, _STAMP.sub("", run))


def row(case: Row, agent: str) -> Row:
    """Read the dialogue; diagnosis, payloads and the moderator's score would tell the outcome."""
    steps = Steps()
    for turn in case["dialogue"]:
        if turn["role"] == "doctor":
            steps.act(turn["text"])
        elif turn["role"] in ("patient", "measurement"):
            steps.see(f"{turn['role']}: {turn['text']}")
    task = case["scenario_id"]
    return {
        "task_id": task,
        "agent": agent,
        "instruction": f"Find the diagnosis of the patient of case {task} by questions and tests.",
        "steps": steps.pairs,
        "outcome": int(case["score"]["correctness"]),
    }


if __name__ == "__main__":
    convert(rows, (".json",), __doc__)
