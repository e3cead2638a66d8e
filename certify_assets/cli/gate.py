"""What GitHub Actions reads of a command: job summary and annotations."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from certify_assets.cli.options import SHARE
from certify_assets.cli.output import escaped, percent
from certify_assets.errors import CertifyError

#: GitHub shows ten annotations of a kind for a step, and a summary of at most one MiB
_MOST_ANNOTATED = 9
_MOST_LISTED = 100
_MOST_CHARACTERS = 2_000
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>()#+.!|~@:&$=^-])")

#: name of the case of --min-coverage
MIN_COVERAGE = "min coverage"
State = Literal["passed", "failed", "skipped"]
_WORDS: dict[State, str] = {"passed": "passed", "failed": "**failed**", "skipped": "not certified"}


class Case(NamedTuple):
    """One thing that a gate checks: a side, an audit, the share decided."""

    name: str
    state: State
    message: str


@dataclass(frozen=True)
class CiResult:
    """What became of a command, for a CI system; texts in it are untrusted."""

    subject: str
    sentence: str
    cases: tuple[Case, ...]
    bar: str = ""
    promise: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Case, ...]:
        """Return the cases that close the gate."""
        return tuple(case for case in self.cases if case.state == "failed")


def report(result: CiResult) -> None:
    """Write job summary and annotations where a step of GitHub Actions asks for them."""
    path, command = os.environ.get("GITHUB_STEP_SUMMARY"), _command()
    if not path:
        return
    # several steps and commands write to one file
    with Path(path).open("a", encoding="utf-8") as summary:
        summary.write(job_summary(command, result))
    for case in result.failed:
        annotate("error", command, f"{case.name}: {case.message}")
    if not result.failed:
        annotate("notice", command, result.sentence)
    for warning in result.warnings[:_MOST_ANNOTATED]:
        annotate("warning", command, warning)
    if (rest := len(result.warnings) - _MOST_ANNOTATED) > 0:
        annotate("warning", command, f"{rest} more findings are in the job summary.")


def _command() -> str:
    context = click.get_current_context(silent=True)
    return "certify" if context is None else context.command_path


def gated(command: Callable[..., Any]) -> Callable[..., Any]:
    """Annotate also what a command refuses."""

    @wraps(command)
    def annotated(*given: Any, **options: Any) -> Any:
        try:
            return command(*given, **options)
        except (CertifyError, click.ClickException) as error:
            if os.environ.get("GITHUB_STEP_SUMMARY"):
                annotate("error", _command(), getattr(error, "message", "") or str(error))
            raise

    return annotated


min_coverage_option = click.option(
    "--min-coverage",
    type=SHARE,
    metavar="SHARE",
    help="Exit 3 where less than this share of the runs is decided (.3, or 30%).",
)


def coverage_case(share: float, minimum: float | None, what: str = "") -> tuple[Case, ...]:
    """Return the case of --min-coverage, none where it is not asked for."""
    if minimum is None:
        return ()
    wanted = f"the {percent(minimum)} of --min-coverage"
    decided = f"{percent(share)} of runs are decided{what}"
    if share < minimum:
        return (Case(MIN_COVERAGE, "failed", f"{decided}, less than {wanted}."),)
    return (Case(MIN_COVERAGE, "passed", f"{decided}, at least {wanted}."),)


def annotate(level: str, title: str, text: str) -> None:
    """Print an annotation of GitHub Actions; no character of it can end it or begin another one."""
    # the runner reads commands on stderr too, and stdout is the command's own
    sys.stderr.write(f"::{level} title={_property(_line(title))}::{_data(_line(text))}\n")


def _line(text: str) -> str:
    line = escaped(" ".join(text.split()))
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + " …"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no link, image, HTML or table cell in it."""
    return _PUNCTUATION.sub(r"\\\1", _line(text))


def job_summary(command: str, result: CiResult) -> str:
    """Return the Markdown of a result."""
    lines = [f"### {markdown(command)}: {markdown(result.subject)}", "", markdown(result.sentence)]
    if result.bar:
        # drawn by this package, without any text of others
        lines += ["", f"`{result.bar}`"]
    lines += ["", "| check | result | |", "|---|---|---|"]
    lines += [
        f"| {markdown(case.name)} | {_WORDS[case.state]} | {markdown(case.message)} |"
        for case in result.cases[:_MOST_LISTED]
    ]
    for sentence in result.promise:
        lines += ["", f"> {markdown(sentence)}"]
    if result.warnings:
        lines += ["", "Findings:", ""]
        lines += [f"- {markdown(warning)}" for warning in result.warnings[:_MOST_LISTED]]
    for shown, name in ((result.cases, "checks"), (result.warnings, "findings")):
        if (rest := len(shown) - _MOST_LISTED) > 0:
            lines += ["", f"{rest} more {name} are not listed."]
    return "\n".join([*lines, "", ""])
