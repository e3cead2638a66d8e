"""Results of evaluation tools that hold what no table can."""

import json
from pathlib import Path

import pytest

from certify_assets.corpora.judged import read_judged


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
