"""``certify ops export``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from certify_assets.cli.options import PATH, corpus_option
from certify_assets.cli.output import emit_json, json_option, say
from certify_assets.corpora.corpus import Corpus


@click.command("export")
@click.argument("corpus")
@click.argument("path", metavar="FILE", type=PATH)
@click.option(
    "--format",
    "tool",
    required=True,
    type=click.Choice(["langfuse", "langsmith"]),
    help="Tool that imports the file: scores of Langfuse or feedback of LangSmith.",
)
@click.option("--batch", default="", help="Only the decisions of this batch. [default: all]")
@click.option(
    "--name",
    default="certify_decision",
    help="Name of the score or feedback.",
)
@corpus_option
@json_option
def export(corpus: Corpus, path: Path, tool: str, batch: str, name: str, as_json: bool) -> None:
    """Write decisions as a file that a tracing tool imports.

    FILE holds one score or feedback a run, with its reason, judge and certificate, under an id that
    stays the same, so that importing it again replaces what is there. Provisional runs are counted
    and left out. Where Langfuse's limit of a request asks for it, FILE-2 and more are written.
    """
    from certify_assets.operations.decision_exports import export_decisions

    made = export_decisions(corpus, path, tool, batch=batch, name=name)
    if as_json:
        emit_json({**asdict(made), "files": [str(file) for file in made.files]})
        return
    left = [
        f"{number} {what}"
        for number, what in (
            (made.provisional, "provisional"),
            (made.foreign, f"with ids that are none of {tool}'s"),
        )
        if number
    ]
    said = f"; left out: {', '.join(left)}" if left else ""
    say(f"{', '.join(map(str, made.files))}: {made.written} decisions for {tool}{said}")
