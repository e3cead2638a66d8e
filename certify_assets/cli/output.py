"""Output of a command: `answer` prints one document, as JSON or as tables and lines for people."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from certify_assets.errors import InputError
from certify_assets.files import write_atomic
from certify_assets.words import WORDS, number_of, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _keep_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


_json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_keep_json,
    help="Print one JSON document on stdout and nothing else.",
)


def answers(command: _Command) -> _Command:
    """Add --json to a command that ends with `answer`; refuse outputs that name an input."""

    @wraps(command)
    def called(*given: Any, **options: Any) -> Any:
        _refuse_overwrite(click.get_current_context())
        return command(*given, **options)

    return _json_option(cast("_Command", called))


class Output(click.Path):
    """The type of a path that a command writes."""


#: a file that a command reads, and one that it writes
PATH, OUT = click.Path(path_type=Path), Output(path_type=Path)


def _refuse_overwrite(context: click.Context) -> None:
    """Refuse outputs that name an input or one another, before anything is read."""
    outputs, taken = list[tuple[str, Path]](), list[tuple[str, Path]]()
    for param in context.command.params:
        value = context.params.get(param.name or "")
        name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
        if isinstance(param.type, Output):
            by_default = context.get_parameter_source(param.name or "") is ParameterSource.DEFAULT
            outputs += [] if value is None or by_default else [(name, value)]
        elif isinstance(param.type, click.Path) and not isinstance(value, Mapping):
            values = value if isinstance(value, tuple) else (value,)
            taken += [(name, Path(one)) for one in values if one is not None]
    refuse_overwrite(outputs, taken)


def refuse_overwrite(
    outputs: Iterable[tuple[str, Path]], inputs: Iterable[tuple[str, Path]]
) -> None:
    """Refuse paths that are written and name one that is read, or one another."""
    taken = [*inputs]
    for name, path in outputs:
        if other := next((other for other, there in taken if _same_file(path, there)), None):
            raise InputError(
                f"{name} is {path}, which is {other} too and would be overwritten. Give {name} "
                "another path."
            )
        taken.append((name, path))


def _same_file(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    return one == other or (one.is_file() and other.is_file() and one.samefile(other))


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


def console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """Return a rich console whose output cannot steer the terminal; on a stream, or a file."""
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

    return Plain(stderr=stderr, file=file, highlight=False, soft_wrap=True)


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
_NAME: Final = 24
#: letters of the longest word that is kept whole in other columns of single words
_WORD: Final = 14
_UNBOUNDED: Final = 10_000


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, turned where the terminal is too narrow for it. Cells are never markup."""
    from rich.measure import Measurement

    shown = console()
    table = _drawn(title, columns, rows)
    options = shown.options.update(max_width=_UNBOUNDED)
    wide = Measurement.get(shown, options, table).minimum > shown.width
    if wide and rows and len(columns) > len(FIGURES):
        head, *turned = zip(columns, *rows, strict=True)
        # many rows are wider still when turned
        table = min(
            table,
            _drawn(title, head, turned),
            key=lambda one: Measurement.get(shown, options, one).minimum,
        )
    shown.print(table)


def _drawn(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)), title_justify="left", header_style="bold")
    for place, column in enumerate(columns):
        texts = [column, *(row[place] for row in rows)]
        # a name that is cut cannot be typed, and a short word that is cut is hard to read
        if place == 0:
            whole = max(map(len, texts[1:]), default=0) <= _NAME
        else:
            whole = all(len(text) <= _WORD and " " not in text for text in texts)
        table.add_column(Text(printable(column)), overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    return table


def decisions_table(title: str, counts: Mapping[str, int]) -> TextTable:
    """Return what becomes of runs, in numbers and shares."""
    total = max(1, sum(counts.values()))
    rows = [
        [WORDS.get(name, name), f"{number:,}", percent(number / total)]
        for name, number in counts.items()
    ]
    return TextTable(title, ["decision", "runs", "share"], rows)


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
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
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
    """Return a figure as people read it: shares in percent, hashes shortened, sides in words."""
    if value is None:
        return "no outcome known" if name == "success_rate" else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return percent(value) if name in _SHARES else _number(value)
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value[:12]
    if name == "side":
        return WORDS.get(value, str(value))
    if isinstance(value, int):
        return str(value) if name == "seed" else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(figure(name, item) for item in value) or "–"
    if not isinstance(value, Mapping):
        return str(value)
    items = [f"{key}: {figure(key, item)}" for key, item in islice(value.items(), _FIRST)]
    rest = [f"and {len(value) - _FIRST:,} more"] if len(value) > _FIRST else []
    return ", ".join([*items, *rest]) or "nothing"


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write the JSON document that ``--json`` prints to a file, atomically."""
    write_text(path, _json_text(document))


def write_text(path: Path, text: str) -> None:
    """Write a file atomically; InputError where its folder is missing or it cannot be written."""
    try:
        write_atomic(path, text.encode("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}). Choose another path."
        ) from None


def write_tables(*outputs: tuple[Path | None, Writable]) -> None:
    """Write the tables that have a path, none of them where one cannot be written as it is."""
    from certify_assets.tables.writing import check_table_file, write_table_file

    wanted = [(path, frame) for path, frame in outputs if path is not None]
    for path, frame in wanted:
        check_table_file(path, frame)
    for path, frame in wanted:
        write_table_file(path, frame)
