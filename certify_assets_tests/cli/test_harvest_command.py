"""``certify research harvest`` on a corpus of its own: tables, JSON, exit codes."""

import pytest

from certify_assets_tests.cli.calling import Call
from certify_assets_tests.judges.harvest.test_loop import prepared

pytestmark = pytest.mark.slow

_QUICK = "research harvest c --gate taskboot --side reject --rounds 1 --profile certify"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return prepared(tmp_path_factory.mktemp("harvest_command"), tasks=130).root


def test_a_harvest_is_shown_with_its_controls(call: Call, root: str) -> None:
    answer = call(f"{_QUICK} --alpha 0.2 --root {root}")
    assert answer.code == 0
    assert "certify split, auto-fail at 0.2" in answer.out
    assert "taskboot 1" in answer.out
    assert "verdict" in answer.out
    assert "round 1: half A certifies" in answer.err and "not about the finite pool" in answer.out


def test_what_cannot_be_is_refused_in_a_sentence(call: Call, root: str) -> None:
    for arguments, words in (
        ("nowhere", "nowhere"),
        ("c --gate guess", "guess"),
        ("c --profile odd", "odd"),
        ("c --alpha 2", "alpha"),
        ("c --learner combined_transfer", "no corpus can train a judge for c"),
    ):
        answer = call(f"research harvest {arguments} --root {root}")
        assert answer.code == 2 and words in answer.err and "Traceback" not in answer.err
