"""What a command says: one JSON document on stdout with ``--json``, else tables for people; errors as one sentence on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.errors import InputError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["NOTHING", "console", "emit_json", "json_option", "percent", "say", "show_table", "write_document"]

NOTHING = 3

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else.")


def console(*, stderr: bool = False) -> Console:
    """Return a rich console; it drops colours by itself where the stream is no terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def emit_json(document: Any) -> None:
    """Print a JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def say(text: str) -> None:
    """Print a line of progress on stderr; markup in it is text."""
    console(stderr=True).print(text, markup=False)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout; names from data are text, never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    console().print(table)


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write the JSON document that ``--json`` prints to a file, atomically.

    Raises
    ------
    InputError
        If the folder is missing or the file cannot be written.
    """
    data = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    try:
        write_atomic(path, data)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another place.") from None
