"""The commands of the documentation: where they are, and what they print.

    python -m certify_assets_tests.doc_commands [--slow] [PAGE…]

runs the blocks of pages and writes their output into them, where a command has no `...`.

A block of commands is fenced as `console`, with `$ ` before each command, and is executed by the
tests, which compare what follows it: `...` stands for any text. `<!-- slow -->`
above the fence leaves it to the slow tier. Every other fence with commands has `<!-- not run:
REASON -->` above it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certify_assets_tests.paths import REPOSITORY

PAGES: Final = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "deploy/README.md",
        *(REPOSITORY / "docs").rglob("*.md"),
    )
)
_FENCE: Final = re.compile(
    r"^(?:<!-- (?P<mark>slow|not run: [^\n]+) -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TOOLS: Final = ("certify", "make", "python", "pip", "dg", "dagster", "mlflow", "curl", "docker")
_INLINE: Final = re.compile(r"(?<!`)`(certify [^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fence with commands: its page, the first line of its body, and how it is treated."""

    page: str
    line: int
    kind: str
    mark: str
    body: str

    @property
    def executed(self) -> bool:
        return self.kind == "console" and not self.mark.startswith("not run")

    @property
    def slow(self) -> bool:
        return self.mark == "slow"

    def commands(self) -> list[str]:
        """Return its command lines, without comments and output."""
        lines = self.body.replace("\\\n", " ").splitlines()
        if self.kind == "console":
            return [line[2:] for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.split(" ", 1)[0] in _TOOLS]

    def steps(self) -> list[tuple[str, list[str]]]:
        """Return every command with the lines that it is said to print."""
        found: list[tuple[str, list[str]]] = []
        for line in self.body.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        return found


def read(page: str) -> str:
    """Return the text of a page."""
    return (REPOSITORY / page).read_text("utf-8")


def recipe(path: str) -> str:
    """Return the block of CONTRIBUTING.md that is about a file."""
    text = read("CONTRIBUTING.md")
    (body,) = re.findall(rf"^```\w+ title=\"{path}\"\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(body)


def blocks(page: str) -> list[Block]:
    """Return the fences of a page that hold commands."""
    text = read(page)
    found = (
        Block(
            page=page,
            line=text.count("\n", 0, match.start("body")) + 1,
            kind=match["kind"],
            mark=match["mark"] or "",
            body=match["body"],
        )
        for match in _FENCE.finditer(text)
    )
    return [block for block in found if block.commands()]


def inline(page: str) -> list[str]:
    """Return the commands within sentences, that is spans which begin with `certify`."""
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    spans = (" ".join(span.split()) for span in _INLINE.findall(text))
    return [span for span in spans if re.match(r"certify [a-z]", span)]


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[None]:
    """A folder that looks like the repository to commands of the documentation."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "docs").mkdir(exist_ok=True)
    if not (folder / "docs/examples").exists():
        shutil.copytree(REPOSITORY / "docs/examples", folder / "docs/examples")
        (folder / "certify_assets").symlink_to(REPOSITORY / "certify_assets")
    settings = {
        "CERTIFY_ROOT": str(folder / ".certify"),
        "DAGSTER_HOME": str(folder / ".certify/dagster"),
        # python and certify are those of this environment
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    with surroundings(folder, settings):
        yield


@contextlib.contextmanager
def surroundings(folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """A working folder and settings in the environment, while the block lasts."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def execute(command: str) -> tuple[int, str]:
    """Run a command as a reader would; return its exit code and what it prints on stdout."""
    words = shlex.split(command, comments=True)
    if words[0] != "certify":
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout
    from certify_assets.cli import main

    printed = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    code = 0
    with contextlib.redirect_stdout(printed):
        try:
            main(words[1:])
        except SystemExit as end:
            code = int(end.code or 0)
    return code, printed.buffer.getvalue().decode("utf-8")


def agree(expected: list[str], printed: str) -> bool:
    """Whether the output is as the page has it, where `...` is any text.

    Spaces and ends of lines do not count, because the page wraps what a terminal would wrap.
    """
    pattern = "".join(re.escape(_dense(line)).replace(r"\.\.\.", ".*") for line in expected)
    return re.fullmatch(pattern, _dense(printed), re.DOTALL) is not None


def _dense(text: str) -> str:
    return "".join(text.split())


def _wrapped(printed: str) -> list[str]:
    """Return the lines of an output, the long ones wrapped as a terminal would."""
    lines = []
    for line in printed.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line, 100, initial_indent="", subsequent_indent=indent) or [""]
    return lines


def _write(page: str, *, slow: bool, folder: Path) -> None:
    """Run the blocks of a page and put their output into it."""
    text = read(page)
    with workplace(folder):
        for block in blocks(page):
            if not block.executed or (block.slow and not slow):
                continue
            lines: list[str] = []
            for command, expected in block.steps():
                code, printed = execute(command)
                print(f"{page}:{block.line}: {code} {command}", file=sys.stderr)
                lines.append(f"$ {command}")
                kept = any("..." in line for line in expected)
                lines += expected if kept else _wrapped(printed)
                if kept and not agree(expected, printed):
                    print(f"  differs:\n{printed}", file=sys.stderr)
            text = text.replace(block.body, "\n".join(lines) + "\n")
    (REPOSITORY / page).write_text(text, "utf-8")


if __name__ == "__main__":
    import tempfile

    asked = [name for name in sys.argv[1:] if name != "--slow"]
    with tempfile.TemporaryDirectory() as scratch:
        for number, name in enumerate(asked or PAGES):
            _write(name, slow="--slow" in sys.argv, folder=Path(scratch) / str(number))
