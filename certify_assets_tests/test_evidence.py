"""Tables of docs/evidence hold what the command above them prints."""

import re
import shlex
import subprocess
import sys

import pytest

from certify_assets_tests.paths import REPOSITORY, shared_data

#: seconds and bytes of one machine, and what needs a GPU or another checkout
MEASURED = (
    *("capacity", "ingest", "million", "labels", "speed", "pipeline", "first_success"),
    *("gpu", "earlier_batches"),
)
_COMMAND = re.compile(r"python (benchmarks/\w+\.py[^`\n]*)")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d[\d,]*)?\.?\d+")


def _tables() -> dict[str, list[list[str]]]:
    """Rows of the tables below each command; a page's first command holds until its next."""
    found: dict[str, list[list[str]]] = {}
    for path in sorted((REPOSITORY / "docs" / "evidence").glob("*.md")):
        command, inside = "", False
        for line in path.read_text("utf-8").splitlines():
            if told := _COMMAND.search(line):
                command = re.sub(r" --(?:picture|out) \S+", "", told[1])
            # the line below the head of a table
            inside = bool(re.match(r"\| ?-", line)) or (inside and line.startswith("|"))
            if command and inside and _NUMBER.search(line):
                cells = [cell.strip() for cell in line.split("|")[1:-1]]
                found.setdefault(command, []).append(cells)
    return found


TABLES = _tables()
COMMANDS = [one for one in TABLES if not re.match(f"benchmarks/(?:{'|'.join(MEASURED)})", one)]


def _values(text: str) -> list[str]:
    return [one.replace(",", "").replace("−", "-") for one in _NUMBER.findall(text)]


def _printed(figure: str, values: list[float]) -> bool:
    """Whether some value rounds to a figure, as a number or as a percentage."""
    digits = len(figure.partition(".")[2])
    half = 0.5 * 10.0**-digits + 1e-9
    return any(
        abs(value * scale - float(figure)) <= half for value in values for scale in (1, 100, 0.01)
    )


def test_every_page_of_evidence_names_a_command() -> None:
    assert len(COMMANDS) > 8 and all(TABLES.values())


@pytest.mark.statistics
@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_the_figures_that_its_command_prints(command: str) -> None:
    script, *options = shlex.split(command)
    if "published" in (REPOSITORY / script).read_text("utf-8"):
        shared_data()
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / script), *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    for first, *cells in TABLES[command]:
        named = [line for line in lines if first.strip("`*") in line] or lines
        values = [float(value) for line in named for value in _values(line)]
        for cell in cells:
            for figure in _values(cell):
                assert _printed(figure, values), f"{command}: {first}: {figure} of {cell!r}"
