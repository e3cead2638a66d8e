"""Options that several commands share."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from certify_assets.cli.output import OUT, PATH
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.storage.store import Store

#: place of the words of a call in the context of its command
GIVEN: Final = "certify_assets.given"
# place of the URLs of copies there
_COPIED: Final = "certify_assets.copied"
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Source(click.Path):
    """A path, or a URL, of which a command reads a copy."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """Return the path, or that of a copy that lasts as long as the command."""
        text = os.fspath(value)
        if ctx is None or "://" not in text:
            return super().convert(value, param, ctx)
        from certify_assets.storage.urls import local_copies, shown_url

        copy = ctx.with_resource(local_copies([text]))[0]
        ctx.meta.setdefault(_COPIED, {})[copy] = shown_url(text)
        return copy


#: a score table or a log: a file, a folder, or a URL such as mlflow+http://HOST:PORT/EXPERIMENT
SOURCE = _Source(path_type=Path)


def as_given(path: Path) -> str:
    """Return a path as further commands name it: that of a copy by its URL, without password."""
    context = click.get_current_context(silent=True)
    copied: dict[Path, str] = {} if context is None else context.meta.get(_COPIED, {})
    return copied.get(path, str(path))


def given_command(*more: str) -> str:
    """Return the command line of this call with further words, as a shell takes it."""
    context = click.get_current_context(silent=True)
    given = () if context is None else context.meta.get(GIVEN, ())
    return shlex.join(["certify", *given, *more])


class Finite(click.FloatRange):
    """A number in a range; neither infinite nor NaN, which no range keeps out."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail as an option does."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter as error:
            if (self.min, self.max) != (0, 1):
                raise
            self.fail(f"{error.message.rstrip('.')}. Write 10 % as 0.1.", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number

    def _describe_range(self) -> str:
        # help would say x<=None where there is no bound
        return "" if self.min is None and self.max is None else super()._describe_range()


SHARE = Finite(0, 1)
OPEN_SHARE = Finite(0, 1, min_open=True, max_open=True)
SIDE = click.Choice(["reject", "release"])
NATURAL = click.IntRange(min=0)
COUNT = click.IntRange(min=1)

#: settings of a certificate that a plan takes by --set
PLANNED = ("delta", "grid", "seed", "planned_share")

certificate_argument = click.argument("certificate", type=PATH)
scores_argument = click.argument("scores", type=SOURCE)
out_option = click.option("--out", type=OUT, help="Also write the document to this file.")
judge_option = click.option(
    "--judge", metavar="NAME", help="The column, scorer, feedback or assessment that is the score."
)
truth_option = click.option("--truth", metavar="NAME", help="The same for the outcome.")
labels_option = click.option(
    "--labels", type=PATH, help="Labels by trajectory_id, in place of the outcomes of SCORES."
)
split_option = click.option(
    "--split", help="Use only the rows with this value in the column split. [default: all]"
)

pilot_option = click.option(
    "--pilot", type=PATH, help="The pilot table that a betting certificate was issued with."
)
pool_option = click.option(
    "--pool",
    type=PATH,
    help="The pool that a pseudo_task certificate was issued with. [default: the document's]",
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


def source_options(command: _Command) -> _Command:
    """Add --format and --option, by which runs are read."""
    for option in (
        click.option(
            "--option",
            "options",
            multiple=True,
            metavar="KEY=VALUE",
            callback=lambda _, __, given: parse_literals(given, "--option"),
            help="Option of the source format; repeat for more.",
        ),
        click.option(
            "--format",
            "format_name",
            metavar="NAME",
            help="Source format, or auto to detect it.",
        ),
    ):
        command = option(command)
    return command


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
    """Add CORPUS and --root, and give the command the corpus opened, once for the whole of it."""

    @wraps(command)
    def opened(*given: Any, root: str | None, corpus: str, **options: Any) -> Any:
        from certify_assets.cli.launching import open_store

        return command(*given, corpus=open_corpus(open_store(root), corpus), **options)

    return click.argument("corpus")(_root(opened))


def open_corpus(store: Store, name: str) -> Corpus:
    """Open a registered corpus; InputError lists those that the data root knows."""
    from certify_assets.corpora.config import load_config
    from certify_assets.corpora.corpus import Corpus

    load_config(store, name)
    return Corpus(store, name)


def setting_option(name: str, *, more: str = "") -> Callable[..., Any]:
    """Return the option of a setting; it is None where the command line lacks it."""
    from certify_assets.certificates.settings import expected, setting_schema

    schema = setting_schema(name)
    description = schema["description"]
    return click.option(
        f"--{name}",
        type=OPEN_SHARE if schema.get("type") == "number" else None,
        help=f"{description[:1].upper()}{description[1:]}: {expected(name)}{more}. "
        f"[default: {schema['default']}]",
    )


def settings_help(names: Sequence[str]) -> str:
    """Say what --set takes: each setting with its meaning, values and default."""
    from certify_assets.certificates.settings import expected, setting_schema

    each = []
    for name in names:
        schema = setting_schema(name)
        default = "" if schema["default"] is None else f"; default {schema['default']}"
        each.append(f"{name}= ({schema['description']}: {expected(name)}{default})")
    return f"Settings of the certificate: {', '.join(each)}. "
