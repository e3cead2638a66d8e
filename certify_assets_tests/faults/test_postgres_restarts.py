"""Dagster's PostgreSQL restarted in the middle of a run."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from certify_assets_tests.faults.small import command, environment, prepare, results, run
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.services import postgres_server

#: steps after which the server restarts
STEPS = (3, 14)
_STEP = re.compile(r"^\s*(\d+)/\d+ \S+ done")


@pytest.mark.slow
def test_a_run_ends_in_a_sentence_and_the_next_one_completes_it(
    reference: Path, tmp_path: Path
) -> None:
    pytest.importorskip("dagster_postgres", reason="pip install certify_assets[postgres]")
    root = tmp_path / "root"
    prepare(root, source=reference.parent / "small.jsonl")
    with postgres_server("dagster") as databases:
        more = {"DAGSTER_POSTGRES_URL": databases["dagster"]}
        home = Path(environment(root)["DAGSTER_HOME"])
        shutil.copy(REPOSITORY / "deploy" / "dagster" / "postgres.yaml", home / "dagster.yaml")
        running = subprocess.Popen(
            command(),
            env=environment(root, more),
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        with running:
            assert running.stderr is not None
            for line in running.stderr:
                said += line
                found = _STEP.match(line)
                if found and int(found.group(1)) in STEPS:
                    databases.restart()
        assert running.returncode in (0, 1) and "Traceback" not in said, said[-4000:]
        done = run(root, more)
        assert done.returncode == 0, done.stderr
    print(f"PostgreSQL restarted after steps {STEPS}: exit code {running.returncode}, then 0")
    now, wanted = results(root), results(reference)
    assert {name for name, data in wanted.items() if now.get(name) != data} == set()
    assert not list(root.rglob(".certify.*.part"))
