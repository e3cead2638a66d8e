"""``certify judge arms``: candidates on CAL, the choice, and its place on TEST."""

from pathlib import Path

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.arms_builders import CORPUS
from certify_assets_tests.cli.calling import Call

pytestmark = pytest.mark.slow


def test_the_arms_are_shown_as_the_ledger_has_them(call: Call, arms_store: Store) -> None:
    answer = call("judge", "arms", CORPUS, "--root", arms_store.root, "--json")
    assert answer.code == 0
    assert len(answer.json["candidates"]) == 5
    assert len(answer.json["sentences"]) == 4
    assert [cell["side"] for cell in answer.json["audit"]["plan"]["cells"]] == [
        "reject",
        "reject",
        "release",
        "release",
    ]
    shown = call("judge", "arms", CORPUS, "--root", arms_store.root)
    assert shown.code == 0 and answer.json["chosen"] == "start"
    for words in (
        "no candidate certifies anything on CAL",
        "never deployed",
        "The choice: the largest certified coverage on CAL",
    ):
        assert words in shown.out
    again = call("judge", "arms", CORPUS, "--root", arms_store.root, "--audit", "--json")
    assert again.json["audit"]["results"] == answer.json["audit"]["results"]
    arms_store.delete(f"judges/grpo/{CORPUS}/arms_audit.json")
    unread = call("judge", "arms", CORPUS, "--root", arms_store.root)
    assert "reject_3_1" in unread.out and "TEST was not read for the arms yet" in unread.out


def test_what_cannot_be_shown_is_a_sentence(call: Call, arms_store: Store, tmp_path: Path) -> None:
    missing = call("judge", "arms", CORPUS, "--root", tmp_path / "empty")
    assert missing.code == 2 and "no corpus is called 'small'" in missing.err
    untrained = call(f"judge arms miniwob_weak --root {tmp_path}/empty")
    assert untrained.code == 2 and "certify judge train miniwob_weak --judge grpo" in untrained.err
    document = arms_store.read_json(f"judges/grpo/{CORPUS}/arms_audit.json")
    document["results"]["start"]["auroc"] = 1.0
    arms_store.write_json(f"judges/grpo/{CORPUS}/arms_audit.json", document)
    forged = call("judge", "arms", CORPUS, "--root", arms_store.root)
    assert forged.code == 3
    assert "is not what the last read of TEST gave" in forged.err
    assert "Traceback" not in forged.err
