"""What GitHub Actions reads of a command: job summary and annotations."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from certify_assets.cli.options import SHARE
from certify_assets.cli.output import escaped
from certify_assets.words import percent

#: GitHub shows ten annotations of a kind for a step, and a summary of at most one MiB
_MOST_ANNOTATED = 10
_MOST_LISTED = 200
_MOST_CHARACTERS = 2_000
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]<>()#+.!|~@:&$=^-])")

min_coverage_option = click.option(
    "--min-coverage",
    type=SHARE,
    metavar="SHARE",
    help="Exit 3 where less than this share of the runs is decided (.3).",
)


def too_little(share: float, minimum: float | None, what: str = "") -> list[str]:
    """Say that less is decided than --min-coverage asks for, if it is."""
    if minimum is None or share >= minimum:
        return []
    return [
        f"{percent(share)} of runs are decided{what}, less than the {percent(minimum)} of "
        "--min-coverage."
    ]


def report_gate(
    subject: str, said: Sequence[str], failed: Sequence[str] = (), warnings: Sequence[str] = ()
) -> None:
    """Write job summary and annotations where a step of GitHub Actions asks for them.

    Parameters
    ----------
    subject : str
        File or corpus; this and all else is untrusted text.
    said : sequence of str
        The answer, its sentence first.
    failed, warnings : sequence of str
        Why the gate is closed; what a reader should know.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    context = click.get_current_context(silent=True)
    if not path:
        return
    command = "certify" if context is None else context.command_path
    # a reason that begins with a line says it already
    news = [line for line in said if not any(reason.startswith(line) for reason in failed)]
    lines = [f"### {markdown(command)}: {markdown(subject)}", *map(markdown, news)]
    lines += [f"**Failed**: {markdown(reason)}" for reason in failed]
    lines += [f"- {markdown(warning)}" for warning in warnings]
    if (rest := len(lines) - _MOST_LISTED) > 0:
        lines[_MOST_LISTED:] = [f"{rest} more lines are not listed."]
    # several steps and commands write to one file
    with Path(path).open("a", encoding="utf-8") as summary:
        summary.write("\n\n".join([*lines, ""]))
    for reason in failed[:_MOST_ANNOTATED]:
        annotate("error", command, reason)
    if not failed:
        annotate("notice", command, said[0])
    for warning in warnings[:_MOST_ANNOTATED]:
        annotate("warning", command, warning)


def annotate(level: str, title: str, text: str) -> None:
    """Print an annotation of GitHub Actions; no character of it can end it or begin another one."""
    # the runner reads commands on stderr too, and stdout is the command's own
    name = _data(_line(title)).replace(":", "%3A").replace(",", "%2C")
    sys.stderr.write(f"::{level} title={name}::{_data(_line(text))}\n")


def _line(text: str) -> str:
    line = escaped(" ".join(text.split()))
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + " …"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no link, image, HTML or table cell in it."""
    return _PUNCTUATION.sub(r"\\\1", _line(text))
