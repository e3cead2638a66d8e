import socket
from pathlib import Path

import pandas as pd
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.quality import stored_runs, validate_runs
from certify_assets.storage.store import Store

CERTIFYING = ("rl", "cal")


def missed(runs: pd.DataFrame, alpha: float = 0.5) -> dict[str, str]:
    """Columns whose expectation is not met, with what was unexpected."""
    found = validate_runs(runs, certifying=CERTIFYING, alpha=alpha)
    return {item.column: item.unexpected for item in found if not item.met}


@pytest.fixture
def runs(corpora: Store) -> pd.DataFrame:
    return stored_runs(Corpus(corpora, "one"))


def test_a_sound_corpus_meets_all_and_nothing_is_sent_or_written(
    runs: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"a connection to {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    runs["outcome"] = runs["outcome"].where(runs.index > 0)
    runs["texts"] = [str(place) for place in runs.index]
    assert missed(runs) == {} and list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("agent", None, "None"),
        ("outcome", 2, "2"),
        ("splits_of_task", 2, "2"),
    ],
)
def test_each_fault_misses_its_expectation(
    runs: pd.DataFrame, column: str, value: object, shown: str
) -> None:
    runs["texts"] = [str(place) for place in runs.index]
    runs[column] = runs[column].astype(object)
    runs.loc[:1, column] = value
    found = missed(runs)
    assert list(found) == [column] and shown in found[column]


def test_too_few_tasks_for_a_certificate_are_found(runs: pd.DataFrame) -> None:
    assert "task_id" in missed(runs, alpha=0.01)
