"""Results of evaluation tools that hold what no table can."""

import json
import math
from pathlib import Path

import pytest

from certify_assets.corpora.judged import read_judged
from certify_assets.errors import InputError


def sample(**changed: object) -> str:
    """Return a line of lm-evaluation-harness."""
    answers = [["-1.0", "False"], ["-2.0", "False"]]
    line = {
        "doc_id": 1,
        "doc": {},
        "target": "a",
        "arguments": [["q", " a"], ["q", " b"]],
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "filter": "none",
        "metrics": ["acc"],
        "acc": 1.0,
    }
    return json.dumps({**line, **changed})


@pytest.mark.parametrize(
    ("changed", "column"),
    [
        ({"filtered_resps": [[10**400, False], [-1, False]]}, "acc"),
        ({"filter": "\ud800"}, "acc (?)"),
    ],
)
def test_one_odd_value_does_not_end_the_reading(
    tmp_path: Path, changed: dict[str, object], column: str
) -> None:
    path = tmp_path / "samples_sums_2026-01-01T00-00-00.jsonl"
    path.write_text(sample(**changed), "utf-8")
    assert list(read_judged([path]).kinds) == [column]


def result(score: float, metric: str = "judge") -> str:
    """Return a line of promptfoo."""
    assertion = {"type": "llm-rubric", "metric": metric}
    line = {
        "id": "r1",
        "promptIdx": 0,
        "testIdx": 0,
        "testCase": {"description": "t"},
        "provider": {"id": "echo"},
        "response": {"output": "a"},
        "success": True,
        "gradingResult": {"componentResults": [{"score": score, "assertion": assertion}]},
    }
    return json.dumps(line)


def test_a_run_in_two_files_is_judged_alike_or_refused(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{name}.jsonl" for name in "ab")
    for path in (first, second):
        path.write_text(result(math.nan), "utf-8")
    found = read_judged([first, second])
    assert len(found.source) == 1 and found.left_out == {"duplicate": 1}
    for other in (result(0.25), result(math.nan, "second")):
        second.write_text(other, "utf-8")
        with pytest.raises(InputError, match="Keep one file of each run"):
            read_judged([first, second])
