"""``certify research study`` on a small corpus: a site, counts, exit codes."""

from pathlib import Path

import pytest

from certify_assets.defs.research import assets, study
from certify_assets.defs.resources import MlflowTracker
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.study_builders import named

pytestmark = pytest.mark.slow

LAW = named("law")
NAMES = ("splits", "lexical", "sft", "real_scores")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stages, and no MLflow: its databases cost more than they do."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(study, "STAGES", named(*NAMES))
    monkeypatch.setattr(MlflowTracker, "record", lambda *_, **__: {})


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
    assert answer.code == 0 and "c: lexical done" in answer.err
    assert "Main result" in answer.out
    assert "not run" in answer.out
    assert "c: sft skipped" in answer.out
    assert "paper" not in answer.out.split("Law:")[0]
    assert Path(root, "study/site/index.html").exists()
    answer = call(f"research study c --root {root} --json")
    assert answer.code == 0
    assert answer.json["counts"] == {"kept": 3, "skipped": 1}
    assert answer.json["profile"] == "quick"


def test_a_failed_stage_is_exit_1_and_the_rest_is_there(
    call: Call, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(study, "STAGES", [*study.STAGES, *LAW])
    monkeypatch.setattr(assets.certifiability, "write_certifiability", broken)
    answer = call(f"research study c --root {root} --json")
    assert answer.code == 1 and answer.json["counts"]["failed"] == 1
    (failed,) = (item for item in answer.json["stages"] if item["status"] == "failed")
    assert failed["stage"] == "law" and failed["reason"] == "OSError: disk full"


def test_what_cannot_be_is_refused_in_a_sentence(call: Call, root: str) -> None:
    for arguments, words in (
        ("nowhere", "nowhere"),
        ("c --profile long", "long"),
        ("c --workers 0", "workers"),
    ):
        answer = call(f"research study {arguments} --root {root}")
        assert answer.code == 2 and words in answer.err
