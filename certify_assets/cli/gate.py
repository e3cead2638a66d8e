"""What a CI system reads of a command: job summary and annotations of GitHub Actions, JUnit XML."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

import click

from certify_assets.cli.options import PATH, SHARE
from certify_assets.cli.output import complain, escaped, percent, write_text
from certify_assets.errors import CertifyError

#: GitHub shows ten annotations of a kind for a step, and a summary of at most one MiB
_MOST_ANNOTATED = 9
_MOST_LISTED = 100
_MOST_CHARACTERS = 2_000
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>()#+.!|~@:&$=^-])")
#: what XML 1.0 has no character for, beyond what `escaped` leaves
_NO_XML = re.compile("[\ufffe\uffff]")

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


class Gate(NamedTuple):
    """Where a command reports to."""

    command: str
    github: bool
    junit: Path | None

    def report(self, result: CiResult) -> None:
        """Write what was asked for."""
        if self.junit is not None:
            write_text(self.junit, junit_xml(self.command, result))
        if not self.github:
            return
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if path:
            # several steps and commands write to one file
            with Path(path).open("a", encoding="utf-8") as summary:
                summary.write(job_summary(self.command, result))
        else:
            complain("GITHUB_STEP_SUMMARY is not set, so no job summary is written.")
        for case in result.failed:
            annotate("error", self.command, f"{case.name}: {case.message}")
        if not result.failed:
            annotate("notice", self.command, result.sentence)
        for warning in result.warnings[:_MOST_ANNOTATED]:
            annotate("warning", self.command, warning)
        if (rest := len(result.warnings) - _MOST_ANNOTATED) > 0:
            annotate("warning", self.command, f"{rest} more findings are in the job summary.")


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format and --junit-xml, and give the command where it reports to as ``gate``."""

    @wraps(command)
    def gated(*given: Any, style: str, junit: Path | None, **options: Any) -> Any:
        name = click.get_current_context().command_path
        gate = Gate(name, style == "github", junit)
        try:
            return command(*given, gate=gate, **options)
        except (CertifyError, click.ClickException) as error:
            if gate.github:
                annotate("error", name, getattr(error, "message", "") or str(error))
            raise

    for option in (
        click.option(
            "--junit-xml",
            "--junit",
            "junit",
            type=PATH,
            metavar="FILE",
            help="Also write the result as JUnit XML, a test case for each thing checked.",
        ),
        click.option(
            "--format",
            "style",
            type=click.Choice(["text", "github"]),
            default="text",
            help="github: also annotations on stderr, and a job summary in $GITHUB_STEP_SUMMARY.",
        ),
    ):
        gated = option(gated)
    return gated


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


def junit_xml(command: str, result: CiResult) -> str:
    """Return the JUnit XML of a result: one suite, a test case for each thing checked."""
    skipped = sum(case.state == "skipped" for case in result.cases)
    counts = {
        "tests": str(len(result.cases)),
        "failures": str(len(result.failed)),
        "errors": "0",
        "skipped": str(skipped),
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "certify", **counts})
    for case in result.cases:
        names = {"classname": command.replace(" ", "."), "name": _xml(case.name)}
        element = ElementTree.SubElement(suite, "testcase", names)
        message = _xml(case.message)
        if case.state == "failed":
            ElementTree.SubElement(element, "failure", {"message": message}).text = message
        elif case.state == "skipped":
            ElementTree.SubElement(element, "skipped", {"message": message})
        else:
            ElementTree.SubElement(element, "system-out").text = message
    notes = [result.subject, result.sentence, *result.promise, *result.warnings]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(_xml, notes))
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode", short_empty_elements=True)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", _line(text))
