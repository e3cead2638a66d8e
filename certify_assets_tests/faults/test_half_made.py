"""A process that is killed while Dagster makes its databases leaves them half made, and the next one
finishes them: Dagster itself takes a database that is there for a whole one."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.defs.execution import instance_with
from certify_assets.defs.names import CORPORA

_DATABASES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
#: opens the instance as a command does, and dies before the given statement that writes
_KILLED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
import dagster as dg

left = int(sys.argv[1])

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *more):
    global left
    left -= statement.split()[0].upper() in ("CREATE", "INSERT", "UPDATE")
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

with dg.DagsterInstance.get() as instance:
    instance.add_dynamic_partitions("corpora", ["small"])
"""


def _made(home: Path) -> dict[str, tuple[set[str], set[str]]]:
    """The tables of each database, and the indexes that it says it has."""
    found = {}
    for name in _DATABASES:
        with sqlite3.connect(home / name) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            marks = database.execute("SELECT name FROM secondary_indexes")
            found[name] = {row[0] for row in tables}, {row[0] for row in marks}
    return found


def _open(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with instance_with(["small"]) as instance:
        assert instance.get_dynamic_partitions(CORPORA) == ["small"]


@pytest.mark.slow
@pytest.mark.parametrize("statement", [38, 41, 44, 50])
def test_databases_that_a_kill_left_half_made_are_finished(
    statement: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, home = tmp_path / "whole", tmp_path / "home"
    for folder in (whole, home):
        folder.mkdir()
        (folder / "dagster.yaml").touch()
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(statement)],
        env={**os.environ, "DAGSTER_HOME": str(home)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    if statement < 44:
        # what Dagster does by itself, and why this is ours to do
        with (
            pytest.raises(dg.DagsterInvalidInvocationError, match="dagster instance migrate"),
            dg.DagsterInstance.get() as instance,
        ):
            instance.add_dynamic_partitions(CORPORA, ["small"])
    _open(home, monkeypatch)
    _open(whole, monkeypatch)
    assert _made(home) == _made(whole)
