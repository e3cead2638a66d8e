"""Calling the command as a user would, and a score table to call it on."""

import shlex
from pathlib import Path

import pytest

from certify_assets.cli import main, progress
from certify_assets.storage.store import Store
from certify_assets_tests.builders import score_rows
from certify_assets_tests.cli.calling import Answer, Call
from certify_assets_tests.operations_builders import ProvisionalBatch


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command line given as one string, or its words one by one."""
    # a machine under load is no reason for a line on stderr
    monkeypatch.setattr(progress, "PATIENCE_S", 600.0)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run(*arguments: object) -> Answer:
        words = list(map(str, arguments)) if len(arguments) > 1 else shlex.split(str(*arguments))
        with pytest.raises(SystemExit) as end:
            main(words)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def operated(operated: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The data root of the same name, where commands look without --root."""
    monkeypatch.setenv("CERTIFY_ROOT", operated.root)
    return operated


@pytest.fixture
def corpora(corpora: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The data root of the same name, where commands look without --root."""
    monkeypatch.setenv("CERTIFY_ROOT", corpora.root)
    return corpora


@pytest.fixture
def provisional(provisional: ProvisionalBatch, monkeypatch: pytest.MonkeyPatch) -> ProvisionalBatch:
    """The batch of the same name, where commands look without --root."""
    monkeypatch.setenv("CERTIFY_ROOT", provisional.store.root)
    return provisional


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = score_rows(tasks=160, attempts=6, seed=3)
    frame["split"] = ["cal" if int(task[1:]) % 2 else "test" for task in frame["task_id"]]
    path = tmp_path_factory.mktemp("scores") / "scores.csv"
    frame.to_csv(path, index=False)
    return path
