"""Output of a command: `answer` prints one document, as JSON or as tables and lines for people."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import click

from certify_assets.errors import InputError
from certify_assets.files import write_atomic
from certify_assets.words import number_of, percent

if TYPE_CHECKING:
    from rich.console import Console

    from certify_assets.reports.page import Section
    from certify_assets.tables.writing import Writable

#: exit code of an answer that is no: nothing certified, a gate closed, a check failed
NOTHING: Final = 3
#: columns of a table of one thing
FIGURES: Final = ("figure", "value")
_JSON: Final = "certify_assets.json"
_FIRST: Final = 3
_QUOTED: Final = re.compile("'[^']*'")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
#: figures that are shares, which people read in percent
_SHARES: Final = frozenset(
    [
        "alpha",
        "coverage",
        "decided",
        "delta",
        "exceedance",
        "expected_net_share",
        "human",
        "interval",
        "lower_bound",
        "net_share",
        "open_share",
        "own_coverage",
        "realized_error",
        "success_rate",
    ]
)

# what moves the cursor, colours, hides or reorders text, or cannot be encoded: categories Cc, Cf,
# Cs, Zl and Zp
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)


def _keep_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


#: decorator of a command that ends with `answer`, which no command has to pass the flag to
answers = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_keep_json,
    help="Print one JSON document on stdout and nothing else.",
)


class TextTable(NamedTuple):
    """A table for people."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def wants_json() -> bool:
    """Whether this call prints one JSON document."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_JSON))


def answer(document: Any, *blocks: Any, code: int = 0) -> NoReturn:
    """Print the answer of a command, and end the command with its exit code.

    Parameters
    ----------
    document : JSON value
        What ``--json`` prints.
    *blocks : str, TextTable, rich renderable or None
        What people read instead, None for nothing; by default the figures of the document.
    code : int
    """
    present(document, *blocks)
    raise click.exceptions.Exit(code)


def present(document: Any, *blocks: Any) -> None:
    """Print a document as `answer` does, where the command goes on."""
    if wants_json():
        emit_json(document)
    else:
        show(*(blocks or figures("", document)))


def show(*blocks: Any) -> None:
    """Print lines, tables and what else rich can draw."""
    for block in blocks:
        if isinstance(block, TextTable):
            show_table(*block)
        elif isinstance(block, str):
            show_line(block)
        elif block is not None:
            console().print(block, soft_wrap=False)


def printable(text: str, *, keep: str = "") -> str:
    r"""Write as \u escapes what a terminal or CI runner would obey; names are untrusted."""
    return _defused(escaped(text, keep=keep))


def escaped(text: str, *, keep: str = "") -> str:
    r"""Write as \u escapes what a terminal would obey instead of print."""
    return _UNPRINTABLE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def _defused(text: str) -> str:
    """Break the marks by which GitHub's runner knows commands in what a step prints."""
    # `::` where a line begins, `##[` anywhere in it, on stdout and stderr alike
    if "GITHUB_STEP_SUMMARY" in os.environ or os.environ.get("GITHUB_ACTIONS") == "true":
        return text.replace("::", ":\\u003a").replace("##[", "#\\u0023[")
    return text


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


def read_alike(sentences: Iterable[str]) -> list[str]:
    """Return the first sentences on how files were read, of each kind, and how many more are."""
    kinds: dict[str, list[str]] = {}
    for sentence in sentences:
        _, _, how = sentence.partition(" read as: ")
        kinds.setdefault(_QUOTED.sub("", how) or sentence, []).append(sentence)
    lines = []
    for like in kinds.values():
        lines += like[:_FIRST]
        if len(like) > _FIRST:
            more = number_of(len(like) - _FIRST, "more file")
            lines.append(f"… and {more}, read alike")
    return lines


def complain(sentence: str) -> None:
    """Print what went wrong on stderr, as one line."""
    sys.stderr.write(f"certify: {printable(' '.join(sentence.split()))}\n")


#: width that names in the first column of a table may take, whatever the terminal
_NAME = 24


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; turned, or one a row, where the terminal is narrow. Cells are never markup."""
    from rich.table import Table
    from rich.text import Text

    fits = _narrowest(columns, rows) <= console().width
    if len(columns) > 2 and not fits:
        head, *turned = zip(columns, *rows, strict=True)
        if len(rows) > 1 and _narrowest(head, turned) <= console().width:
            show_table(title, head, turned)
            return
        for row in rows:
            cells = [list(pair) for pair in zip(columns[1:], row[1:], strict=True)]
            show_table(f"{title}: {row[0]}", FIGURES, cells)
        return
    table = Table(title=Text(printable(title)), title_justify="left", header_style="bold")
    for place, column in enumerate(columns):
        # a name that is cut is a name that cannot be typed: folded where it must be, and in the
        # first column only beyond a fair width
        longest = max((len(row[0]) for row in rows), default=0) if place == 0 else 0
        word = _longest_word([column, *(row[place] for row in rows)]) if fits else 0
        table.add_column(
            Text(printable(column)),
            overflow="fold",
            no_wrap=0 < longest <= _NAME,
            min_width=min(max(longest, word), _NAME) or None,
        )
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    console().print(table)


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the width below which a table has to break words."""
    words = map(_longest_word, zip(columns, *rows, strict=True))
    return sum(min(width, _NAME) for width in words) + 3 * len(columns) + 1


def _longest_word(cells: Iterable[str]) -> int:
    return max(len(word) for cell in cells for word in (*cell.split(), ""))


def figures(
    title: str, *documents: Mapping[str, Any], most: Sequence[str] = (), names: Sequence[str] = ()
) -> list[Any]:
    """Return what people read of documents: figures side by side, then tables of what they list.

    Parameters
    ----------
    title : str
    *documents : mappings with the same keys
    most : sequence of str
        The figures that are shown; by default all.
    names : sequence of str
        Head of each document's column, where there are several.
    """
    first = documents[0]
    chosen = [name for name in most if name in first] or list(first)
    listed = [name for name in chosen if _is_table(first[name])]
    rows = [
        [name.replace("_", " "), *(figure(name, item.get(name)) for item in documents)]
        for name in chosen
        if name not in listed
    ]
    blocks: list[Any] = [TextTable(title, ("figure", *names) if names else FIGURES, rows)]
    return blocks + [table(name.replace("_", " "), first[name]) for name in listed]


def section_blocks(sections: Iterable[Section]) -> Iterator[Any]:
    """Return what people read of the sections of a page: figures, tables and findings."""
    for section in sections:
        if section.facts:
            yield TextTable(section.heading, FIGURES, section.facts)
        yield from (TextTable(*found[:3]) for found in section.tables)
        for item in section.findings:
            yield f"{section.heading}: {f'{item.code}: ' if item.code else ''}{item.message}"


def _number(value: float) -> str:
    """Write a number with three decimals, or four digits where it is large or very small."""
    return f"{value:.3f}" if 0.001 <= abs(value) < 1 else f"{value:.4g}"


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)


def table(title: str, items: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> TextTable:
    """Return the objects of a list as a table with a column for each of their keys."""
    names = columns or list(items[0] if items else ())
    return TextTable(
        title,
        [name.replace("_", " ") for name in names],
        [[figure(name, item.get(name)) for name in names] for item in items],
    )


def figure(name: str, value: Any) -> str:
    """Return a figure as people read it: shares in percent, long texts by their beginning."""
    if value is None:
        return "no outcome known" if name == "success_rate" else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return percent(value) if name in _SHARES else _number(value)
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value[:12]
    if isinstance(value, int):
        return str(value) if name == "seed" else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(figure(name, item) for item in value) or "–"
    if not isinstance(value, Mapping):
        return str(value)
    items = [f"{key}: {figure(key, item)}" for key, item in islice(value.items(), _FIRST)]
    rest = [f"and {len(value) - _FIRST:,} more"] if len(value) > _FIRST else []
    return ", ".join([*items, *rest]) or "nothing"


def refuse_overwrite(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Refuse outputs that name an input or one another, before anything is read."""
    taken = [(name, path) for name, path in inputs.items() if path is not None]
    for name, path in ((name, path) for name, path in outputs.items() if path is not None):
        if other := next((other for other, there in taken if _same_file(path, there)), None):
            raise InputError(
                f"{name} is {path}, which is {other} too and would be overwritten. Give {name} "
                "another path."
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
