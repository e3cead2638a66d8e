"""What fuzzing found stays read or refused, and the fuzzer runs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from certify_assets.errors import CertifyError
from certify_assets_tests.fuzzing.readers import CORPUS, READERS, kept_inputs
from certify_assets_tests.paths import REPOSITORY


@pytest.mark.parametrize("name", READERS)
def test_every_input_is_read_or_refused(name: str) -> None:
    inputs = [*kept_inputs(name)]
    assert inputs
    for data in inputs:
        READERS[name](data)


def test_a_reader_takes_what_it_starts_from() -> None:
    def refused(name: str, data: bytes) -> str:
        try:
            READERS[name].read(data)
        except CertifyError as error:
            return str(error)
        return ""

    names = ("scores", "labels", "certificate", "corpus", "judges", "notifications", "criteria")
    assert not [
        said for name in names for data in READERS[name].seeds() if (said := refused(name, data))
    ]


def test_the_inputs_that_were_found_are_small_and_of_a_reader() -> None:
    found = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in found} <= READERS.keys()
    assert sum(path.stat().st_size for path in found) < 500_000


@pytest.mark.slow
def test_a_few_thousand_inputs_find_nothing(tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed; `make services` installs it")
    command = [sys.executable, "-m", "certify_assets_tests.fuzzing", "--inputs", "3000"]
    done = subprocess.run(
        [*command, "--reader", "scores", "--reader", "certificate"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["scores", "certificate"]
    assert all(int(row[1]) > 10 and int(row[3]) > 0 for row in rows), done.stdout
