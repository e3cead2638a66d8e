"""``certify research study`` on a small corpus: a page, tables, counts, exit codes."""

from pathlib import Path

import pytest

from certify_assets.defs import research
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.study_builders import SHORT, shorten

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    shorten(monkeypatch, (*SHORT, "judges/lexical_transfer/"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("study_command")
    register_runs(
        Store(str(folder / "root")),
        "c",
        write_runs(folder / "c.jsonl", tasks=60, attempts=4),
        rl=True,
    )
    return str(folder / "root")


def test_the_study_is_run_shown_and_drawn(call: Call, root: str) -> None:
    answer = call(f"research study c --root {root}")
    assert answer.code == 0 and "Main result" in answer.out
    # one corpus is none to transfer from, and that keeps nothing else from being made
    assert "judges/lexical_transfer/model skipped: no corpus can train a judge" in answer.err
    assert Store(root).exists("real_scores/c.json")
    assert "not run" in answer.out and "Web-A" not in answer.out
    assert Path(Store(root).locate("study/study.html")).is_file()
    answer = call(f"research study c --root {root} --json")
    assert answer.code == 0
    assert set(answer.json["counts"]) == {"kept", "skipped"}
    assert answer.json["profile"] == "quick"
    assert answer.json["page"].endswith("study/study.html")
    assert all(Path(table).is_file() for table in answer.json["tables"])


def test_a_failed_asset_is_exit_1_and_the_rest_is_there(
    call: Call, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> str:
        raise OSError("disk full")

    Store(root).delete("study/certifiability.json")
    monkeypatch.setattr(research.certifiability, "write_certifiability", broken)
    answer = call(f"research study c --root {root} --json")
    assert answer.code == 1 and answer.json["counts"]["failed"] == 1
    (failed,) = (item for item in answer.json["assets"] if item["status"] == "failed")
    assert failed["asset"] == "research/certifiability"
    assert failed["reason"] == "OSError: disk full"
    assert "research/certifiability failed: OSError: disk full" in answer.err
