"""Output of a command: one JSON document or tables on stdout, errors as one sentence on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.errors import InputError
from certify_assets.files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console

    from certify_assets.tables.writing import Writable

NOTHING = 3
_MOST_SHOWN = 20
#: columns of a table of one thing
FIGURES = ("figure", "value")

# what moves the cursor, colours, hides or reorders text, or cannot be encoded: categories Cc, Cf,
# Cs, Zl and Zp
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else."
)


def printable(text: str, *, keep: str = "") -> str:
    r"""Write as \u escapes what a terminal or CI runner would obey; names are untrusted."""
    return _defused(escaped(text, keep=keep))


def escaped(text: str, *, keep: str = "") -> str:
    r"""Write as \u escapes what a terminal would obey instead of print."""
    return _UNPRINTABLE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def _defused(text: str) -> str:
    """Break the marks by which GitHub's runner knows commands in what a step prints."""
    # `::` where a line begins, `##[` anywhere in it, on stdout and stderr alike
    if ("::" in text or "##[" in text) and _is_read_by_github():
        return text.replace("::", ":\\u003a").replace("##[", "#\\u0023[")
    return text


def _is_read_by_github() -> bool:
    asked = "GITHUB_STEP_SUMMARY" in os.environ
    return asked or os.environ.get("GITHUB_ACTIONS") == "true"


def _escape(character: str) -> str:
    # as JSON writes it: two escapes beyond the first plane
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(
        f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2)
    )


def console(*, stderr: bool = False) -> Console:
    """Return a rich console whose output cannot steer the terminal."""
    from rich.console import Console

    class Plain(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(
                *[
                    printable(item, keep="\n") if isinstance(item, str) else item
                    for item in objects
                ],
                **options,
            )

        def on_broken_pipe(self) -> None:
            # the library would end the process with a code of its own
            raise BrokenPipeError

    return Plain(stderr=stderr, highlight=False, soft_wrap=True)


def _json_text(document: Any) -> str:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    # such characters stand only inside strings, where the escape means the same
    return escaped(text, keep="\n") + "\n"


def emit_json(document: Any) -> None:
    """Print a JSON document on stdout; in pure ASCII where the stream is not UTF-8."""
    text = _json_text(document)
    if (sys.stdout.encoding or "").lower().replace("-", "") != "utf8":
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    # both marks stand only inside strings, where the escape means the same
    sys.stdout.write(_defused(text))


def say(text: str) -> None:
    """Print a line of progress on stderr; markup in it is text."""
    console(stderr=True).print(text, markup=False)


def show_line(text: str) -> None:
    """Print a line on stdout; markup in it is text."""
    console().print(text, markup=False)


def complain(sentence: str) -> None:
    """Print what went wrong on stderr, as one line."""
    sys.stderr.write(f"certify: {printable(' '.join(sentence.split()))}\n")


#: width that names in the first column of a table may take, whatever the terminal
_NAME = 24


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout, row by row where the terminal is narrow; cells are never markup."""
    from rich.table import Table
    from rich.text import Text

    if len(columns) > 2 and _narrowest(columns, rows) > console().width:
        _show_rows(title, columns, rows)
        return
    table = Table(title=Text(printable(title)), title_justify="left", header_style="bold")
    for place, column in enumerate(columns):
        # a name that is cut is a name that cannot be typed: folded where it must be, and in the
        # first column only beyond a fair width
        longest = max((len(row[0]) for row in rows), default=0) if place == 0 else 0
        table.add_column(
            Text(printable(column)),
            overflow="fold",
            no_wrap=0 < longest <= _NAME,
            min_width=min(longest, _NAME) or None,
        )
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    console().print(table)


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width below which a table has to break words."""
    words = [
        max(len(word) for cell in column for word in (*cell.split(), ""))
        for column in zip(columns, *rows, strict=True)
    ]
    return sum(min(width, _NAME) for width in words) + 3 * len(columns) + 1


def _show_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    import textwrap

    from rich.text import Text

    out = console()
    glue = "\N{NO-BREAK SPACE}"
    out.print(Text(printable(title), style="italic"))
    for row in rows:
        out.print(Text(printable(f"{columns[0]} {row[0]}"), style="bold"))
        cells = [
            f"{column} {cell or '–'}" for column, cell in zip(columns[1:], row[1:], strict=True)
        ]
        # a short cell keeps to one line; a sentence breaks between its words
        cells = [cell if len(cell) > out.width // 2 else cell.replace(" ", glue) for cell in cells]
        lines = textwrap.wrap(
            printable("; ".join(cells)),
            out.width,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        out.print(Text("\n".join(lines).replace(glue, " ")))


def shown(value: Any) -> str:
    """Write a figure: numbers short, what is not there as a dash, the first items of an object."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        items = [f"{key}: {shown(item)}" for key, item in islice(value.items(), _MOST_SHOWN)]
        rest = [f"and {len(value) - _MOST_SHOWN:,} more"] if len(value) > _MOST_SHOWN else []
        return ", ".join([*items, *rest]) or "nothing"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def short(value: float | None) -> str:
    """Write a figure with three decimals, one below 1 without its zero, a dash for none."""
    if value is None:
        return "–"
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def refuse_overwrite(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Refuse outputs that name an input or one another, before anything is read."""
    taken = [(name, path) for name, path in inputs.items() if path is not None]
    for name, path in outputs.items():
        if path is None:
            continue
        if (
            other := next((other for other, there in taken if _same_file(path, there)), None)
        ) is not None:
            raise InputError(
                f"{name} is {path}, which is {other} too and would be overwritten; give "
                f"{name} another path."
            )
        taken.append((name, path))


def _same_file(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    return one == other or (one.is_file() and other.is_file() and one.samefile(other))


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write the JSON document that ``--json`` prints to a file, atomically."""
    write_text(path, _json_text(document))


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; InputError where its folder is missing or it cannot be written."""
    try:
        write_atomic(path, text.encode("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); choose another place."
        ) from None


def write_tables(*outputs: tuple[Path | None, Writable]) -> None:
    """Write the tables that have a path, none of them where one cannot be written as it is."""
    from certify_assets.tables.writing import check_table_file, write_table_file

    wanted = [(path, frame) for path, frame in outputs if path is not None]
    for path, frame in wanted:
        check_table_file(path, frame)
    for path, frame in wanted:
        write_table_file(path, frame)
