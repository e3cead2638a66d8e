"""Options that several commands share."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np
from click.core import ParameterSource
from numpy.typing import NDArray

from certify_assets.cli.output import say
from certify_assets.errors import InputError
from certify_assets.files import read_json
from certify_assets.tables.score_reading import ReadingOptions
from certify_assets.tables.score_table import ScoreTable, read_score_table
from certify_assets.tables.settings import COLUMNS, TableSettings, parse_columns, written_columns
from certify_assets.tables.table import TableError

if TYPE_CHECKING:
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.storage.store import Store

#: scores, outcomes and tasks
Table = tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.object_]]
#: scores and tasks
Unlabelled = tuple[NDArray[np.float64], NDArray[np.object_]]
_Command = TypeVar("_Command", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


class Finite(click.FloatRange):
    """A number in a range; neither infinite nor NaN, which no range keeps out."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail as an option does."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        # help would say x<=None where there is no bound
        return "" if self.min is None and self.max is None else super()._describe_range()


class Share(Finite):
    """A share, as a number or in percent: .1 and 10% are one."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share, or fail with what would be read."""
        text = str(value).strip()
        number, mark, rest = text.partition("%")
        try:
            # by decimals: .1 % is exactly the number that .001 is
            share = float(Decimal(number.strip()) / (100 if mark else 1))
        except ArithmeticError:
            share = math.nan
        if rest or math.isnan(share):
            self.fail(f"{text!r} is not a share; write it like .1 or 10%.", param, ctx)
        if 1 < share <= 100 and not mark:
            self.fail(f"{text} is more than all; write it like .1 or 10%.", param, ctx)
        return super().convert(share, param, ctx)


SHARE = Share(0, 1)
OPEN_SHARE = Share(0, 1, min_open=True, max_open=True)
SIDE = click.Choice(["reject", "release"])
#: without numpy: that of `certify_assets.certificates`
DEFAULT_PROCEDURE = "pseudo_task"
NATURAL = click.IntRange(min=0)
COUNT = click.IntRange(min=1)

certificate_argument = click.argument("certificate", type=PATH)
scores_argument = click.argument("scores", type=PATH)
alpha_option = click.option(
    "--alpha", type=OPEN_SHARE, default=0.1, help="Error budget among auto-decided trajectories."
)
out_option = click.option("--out", type=PATH, help="Also write the document to this file.")
split_option = click.option(
    "--split", help="Rows to use, by the table's split column. [default: all]"
)

pilot_option = click.option(
    "--pilot",
    type=PATH,
    help=(
        "The pilot table that a betting certificate was issued with; it cannot be recomputed "
        "without."
    ),
)


pool_option = click.option(
    "--pool",
    type=PATH,
    help=(
        "The pool that a pseudo_task certificate was issued with; it cannot be recomputed without. "
        "By default the one in the document of the platform."
    ),
)


def parse_settings(given: Iterable[str], flag: str = "--set") -> dict[str, str]:
    """Read words of the form NAME=VALUE."""
    values: dict[str, str] = {}
    for pair in given:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise click.UsageError(
                f"{flag} {pair!r} is not NAME=VALUE; write for example {flag} seed=7."
            )
        if name in values:
            raise InputError(f"{flag} {name} is given twice. Separate its words by commas.")
        values[name] = value
    return values


def parse_literals(given: Iterable[str], flag: str) -> dict[str, Any]:
    """Read words of the form NAME=VALUE; values that are JSON are taken as what they are."""
    return {name: literal(text) for name, text in parse_settings(given, flag).items()}


def literal(text: str) -> Any:
    """Return what JSON makes of a value: a number, true, a list; else the text itself."""
    try:
        # JSON has no number that begins with its point
        return json.loads(f"0{text}" if text.startswith(".") else text)
    except (ValueError, RecursionError):
        return text


def _set_option(read: Callable[[dict[str, str]], Any], about: str = "") -> Callable[..., Any]:
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda _, __, given: read(parse_settings(given)),
        help=about + "How tables are read: success=, failure= and no_label= (outcomes, separated "
        "by commas), threshold= (a success from there on), unlabelled=drop, ids=fold. May be "
        "repeated.",
    )


set_option = _set_option(TableSettings.of)


def gathered(
    name: str, made: type[Any], *options: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options and gives the command what they say as one object."""

    def add(given: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(given)
        def called(*words: Any, **values: Any) -> Any:
            names = [entry.name for entry in fields(made) if entry.name in values]
            found = made(**{entry: values.pop(entry) for entry in names})
            return given(*words, **{name: found}, **values)

        command: Callable[..., Any] = called
        for option in options:
            command = option(command)
        return command

    return add


def reading_options(
    *others: str, about: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options by which score tables are read.

    They reach the command as one object. `others` are settings of the command itself that --set
    takes too, and `about` describes them; they reach it as a mapping.
    """
    reads = (
        _set_option(dict, about),
        click.option(
            "--score-scale",
            type=click.Choice(["probability", "log-odds"]),
            help="What scores are. Percentages are divided by 100 where probabilities are said. "
            "[default: as those of CERTIFICATE were, or as they are]",
        ),
        click.option(
            "--lower-is-better",
            is_flag=True,
            help="A lower score means a success is likelier: every score is negated.",
        ),
        click.option(
            "--columns",
            metavar="FIELD=NAME,…",
            callback=lambda _, __, text: parse_columns(text or ""),
            help="Other names of columns: task=…,score=…,outcome=…,id=…,agent=…,split=….",
        ),
    )

    def add(given: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(given)
        def called(
            *words: Any,
            columns: Mapping[str, str],
            settings: Mapping[str, str],
            lower_is_better: bool,
            score_scale: str | None,
            **values: Any,
        ) -> Any:
            own = {name: literal(settings[name]) for name in others if name in settings}
            table = {name: text for name, text in settings.items() if name not in own}
            reading = ReadingOptions(columns, TableSettings.of(table), lower_is_better, score_scale)
            return given(*words, reading=reading, **values, **({"settings": own} if others else {}))

        command: Callable[..., Any] = called
        for option in reads:
            command = option(command)
        return command

    return add


column_options = reading_options()


def read_scores(path: Path, reading: ReadingOptions, *, outcomes: bool = True) -> ScoreTable:
    """Read a score table as the options say; say what was understood that is not plain."""
    fields = [name for name in COLUMNS if outcomes or name != "outcome"]
    try:
        # column options are of every table of a command, so of a further one, such as a pool,
        # they would not settle what it lacks
        with remedies() if path in _arguments() else nullcontext():
            table = read_score_table(path, reading, fields=fields)
    except InputError:
        if not _is_certificate(path):
            raise
        sentence = f"{path} is a certificate, not a score table{argument_order()}."
        raise InputError(sentence) from None
    say_read_as(path, table.read_as)
    doubt = None if reading.issued is None else reading.issued.doubt(table)
    if doubt is not None:
        settled = f"or say with --score-scale {doubt.option} that these are right."
        if doubt.sure:
            raise InputError(f"{doubt.sentence}, {settled}")
        say(f"warning: {doubt.sentence}, {settled}")
    return table


def say_read_as(path: Path, notes: Sequence[str]) -> None:
    """Print what was understood of a table that is not as a table has it, if anything was."""
    if notes:
        say(f"{path.name} read as: {'; '.join(notes)}")


@contextmanager
def remedies() -> Iterator[None]:
    """Add to the faults of a table the command line that would read it."""
    try:
        yield
    except TableError as problems:
        raise _with_command(problems) from None


def labelled(table: ScoreTable) -> ScoreTable:
    """Return the rows of a table that have an outcome; refuse others unless they are to go."""
    with remedies():
        found = table.labelled()
    say_read_as(table.path, found.read_as[len(table.read_as) :])
    return found


def _is_certificate(path: Path) -> bool:
    try:
        document = read_json(path)
    except InputError:
        return False
    return isinstance(document, dict) and not {"certified", "certificates"}.isdisjoint(document)


def _arguments() -> list[Any]:
    """Return what the command was given without an option."""
    context = click.get_current_context(silent=True)
    if context is None:
        return []
    given = [param for param in context.command.params if isinstance(param, click.Argument)]
    values = [context.params.get(param.name or "") for param in given]
    return [one for value in values for one in (value if isinstance(value, tuple) else [value])]


def argument_order() -> str:
    """Say in which order a command of several files takes them."""
    context = click.get_current_context(silent=True)
    params = [] if context is None else context.command.params
    names = [item.human_readable_name for item in params if isinstance(item, click.Argument)]
    return f"; the order is {' '.join(names)}" if len(names) > 1 else ""


def _with_command(problems: TableError) -> InputError:
    """Add the command line that would read a table, where options settle what it lacks."""
    context = click.get_current_context(silent=True)
    if context is None or not problems.options:
        return problems
    words = context.command_path.split()
    given = [param for param in context.command.params if param.name is not None]
    columns = {name: text for name, text in problems.options.items() if name in COLUMNS}
    settings = {name: text for name, text in problems.options.items() if name not in columns}
    for param in given:
        value: Any = context.params.get(param.name or "")
        if context.get_parameter_source(param.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(param, click.Argument):
            words += map(str, value if isinstance(value, tuple) else [value])
        elif param.name == "columns":
            columns = {**value, **columns}
        elif param.name == "settings":
            settings = {**value, **settings}
        else:
            words += _given(param, value)
    named = written_columns(columns)
    words += ["--columns", named] if named else []
    words += [word for pair in settings.items() for word in ("--set", "=".join(pair))]
    return InputError(f"{problems}\n  try: {shlex.join(words)}")


def _given(param: click.Parameter, value: Any) -> list[str]:
    """Return an option as it was given."""
    if isinstance(param, click.Option) and param.is_flag:
        return [param.opts[0]] if value else []
    values = value if isinstance(value, tuple) else (value,)
    return [word for one in values for word in (param.opts[0], str(one))]


def read_pilot(path: Path, reading: ReadingOptions) -> Table:
    """Read a pilot table: its rows with split=pilot, else those with split=rl."""
    table = read_scores(path, reading)
    named = set() if table.splits is None else set(table.splits)
    chosen = table.choose_split("rl" if "rl" in named and "pilot" not in named else "pilot")
    chosen = labelled(chosen)
    return chosen.scores, chosen.labels, chosen.tasks


def stored_pool(document: object, where: str) -> Unlabelled | None:
    """Return scores and tasks of a pool as the platform stores it."""
    from certify_assets.operations.pool import StoredPool

    pool = StoredPool.from_dict(document, where).pool
    return None if pool is None else (pool.scores, np.array(pool.labels, dtype=object)[pool.tasks])


def read_pool(
    path: Path, reading: ReadingOptions, *, certified: Sequence[str] = ("cal",)
) -> Unlabelled:
    """Read scores and tasks of a pool, whose outcomes are not read: its rows of other splits."""
    from certify_assets.operations.pool import StoredPool

    if StoredPool.is_file(path) and (found := stored_pool(read_json(path), str(path))):
        return found
    table = read_scores(path, reading, outcomes=False)
    if table.splits is not None:
        others = ~np.logical_or.reduce([table.splits == name for name in certified]).astype(bool)
        if not others.any():
            raise InputError(
                f"{path} has only rows with split={' and '.join(certified)}, which belong to the "
                "calibration table; give the runs of other tasks."
            )
        table = table.take(others)
    return table.scores, table.tasks


_root = click.option(
    "--root",
    envvar="CERTIFY_ROOT",
    show_envvar=True,
    help="Data root: a folder or an fsspec URL. [default: .certify]",
)


def store_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --root, and give the command the data root that it names as ``store``."""

    @wraps(command)
    def opened(*given: Any, root: str | None, **options: Any) -> Any:
        from certify_assets.cli.launching import open_store

        return command(*given, store=open_store(root), **options)

    return _root(opened)


def corpus_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --root, and give the command its argument CORPUS opened, once for the whole of it."""

    @wraps(command)
    def opened(*given: Any, root: str | None, corpus: str, **options: Any) -> Any:
        from certify_assets.cli.launching import open_store

        return command(*given, corpus=open_corpus(open_store(root), corpus), **options)

    return _root(opened)


def open_corpus(store: Store, name: str) -> Corpus:
    """Open a registered corpus; InputError lists those that the data root knows."""
    from certify_assets.corpora.config import load_config
    from certify_assets.corpora.corpus import Corpus

    load_config(store, name)
    return Corpus(store, name)
