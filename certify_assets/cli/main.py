"""The command ``certify``: its sections, and the exit code of every command."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click

from certify_assets._version import __version__
from certify_assets.cli import progress
from certify_assets.cli.gate import annotate
from certify_assets.cli.options import GIVEN
from certify_assets.cli.output import NOTHING, complain, emit_json
from certify_assets.cli.progress import heartbeat
from certify_assets.errors import CertifyError

__all__ = ["cli", "main"]

# section → command → summary: a command's libraries are imported when it is called, not for
# `certify --help`
_SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Score tables": {
        "doctor": "Say what scores or logs hold, and what they can certify.",
        "certificate": "Certify what share of trajectories a judge may decide alone.",
        "sample": "Draw the runs to label, before any label.",
        "verify": "Recompute a certificate and compare every byte.",
        "show": "Show a certificate in words, with its hashes.",
        "audit": "Audit a certified threshold on other labelled tasks.",
        "decide": "Decide new trajectories: auto-fail, auto-pass or review.",
        "batch": "Certify one finite batch by labels drawn from it.",
        "monitor": "Raise an alarm when newly labelled tasks show an error above α.",
        "plan": "Plan the labels: expected share decided, tasks needed, gates.",
        "report": "Draw a certificate as a page that opens from disk.",
        "resample": "Estimate how often a threshold's error exceeds α under resampled tasks.",
    },
    "Corpora and judges": {
        "run": "Run the pipeline of one corpus, from runs to pages.",
        "demo": "Run the pipeline of the embedded corpora.",
        "corpus": "Import, list, show and remove corpora.",
        "judge": "Train, score and compare judges.",
    },
    "Operation": {
        "ops": "Deploy judges, decide new runs, recertify, and trace decisions.",
        "review": "Show, export, serve and import the review queue.",
        "ledger": "Show who read TEST; verify, export and blank the ledger.",
        "backup": "Copy the data root into a folder while others work.",
        "restore": "Restore a backup into an empty data root.",
        "gc": "Remove stored objects that no event in the ledger names.",
        "pages": "Write the copies of all pages below pages/ again.",
    },
    "Research": {
        "research": "Run the study, the certifiability law, the simulation and harvests.",
    },
    "Interface": {
        "ui": "Start the Dagster UI and the MLflow UI.",
        "schema": "Print the JSON schema of a document for editors.",
    },
}
_COMMANDS: Final = [name for part in _SECTIONS.values() for name in part]
#: what `--help` lists; `--help-all` lists every command
_FIRST: Final = (
    *("doctor", "sample", "certificate", "verify", "audit", "decide"),
    *("corpus", "run", "ops", "review"),
)
_ALL: Final = "certify_assets.help_all"
#: modules of commands that do not have one of their own name
_MODULES: Final = {
    "show": "certificate",
    "sample": "plan",
    **dict.fromkeys(("verify", "audit", "decide", "report", "resample"), "check"),
    **dict.fromkeys(("run", "demo"), "platform"),
    **dict.fromkeys(("ledger", "backup", "restore", "gc", "pages"), "upkeep"),
}


class _ReaderGoneError(Exception):
    """The reader of stdout has gone (`certify … | head`): no sentence can be printed."""


class _Lazy(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[GIVEN] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        given = [word for word in ctx.meta.get(GIVEN, ()) if not word.startswith("-")]
        grouped = bool(given) and isinstance(self.get_command(ctx, given[0]), click.Group)
        words = " ".join(given[: 2 if grouped else 1])
        try:
            with heartbeat(words, patience=progress.PATIENCE_S):
                return super().invoke(ctx)
        except BrokenPipeError:
            # the library would end the process with a code of its own
            raise _ReaderGoneError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _COMMANDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"certify_assets.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and (close := get_close_matches(name, _COMMANDS, n=1)):
            raise click.UsageError(f"No such command '{name}'. Did you mean '{close[0]}'?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = _COMMANDS if ctx.meta.get(_ALL) else _FIRST
        for heading, commands in _SECTIONS.items():
            if listed := [(name, commands[name]) for name in commands if name in shown]:
                with formatter.section(heading):
                    formatter.write_dl(listed)


def _help_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


@click.group(
    cls=_Lazy,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 120,
        "show_default": True,
    },
    epilog="`certify --help-all` lists every command.",
)
@click.version_option(__version__, prog_name="certify")
@click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_help_all,
    help="List every command, and exit.",
)
def cli() -> None:
    """Certified selective automation of LLM agent evaluation.

    Certifies what share of agent trajectories a judge may decide alone. The error rate among these
    stays under a budget α with confidence 1 − δ, although many attempts share a task.

    Exit codes: 0 done or certified; 3 nothing certified, gate closed, audit failed or verification
    failed; 2 bad usage or input; 1 a step of a pipeline or study failed.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every foreseen error is one line on stderr."""
    # imports and tables make millions of objects that stay: Python would go through all of them
    # again and again for cycles, which takes a tenth of a run
    gc.set_threshold(20_000, 50, 20)
    # and twice more at the end of the process, which takes a second where Dagster and MLflow are in
    atexit.register(gc.freeze)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that cannot show ≤ or a name gets a question mark instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        # a command without words: its help, with its lines
        error.show()
        code = 2
    except click.ClickException as error:
        code = _refused(error.format_message(), 2, arguments)
    except CertifyError as error:
        code = _refused(str(error), error.exit_code, arguments)
        if code == NOTHING and "--json" in (sys.argv[1:] if arguments is None else arguments):
            # an answer, and not a fault of what was given
            emit_json({"error": str(error)})
            sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        code = _complain("interrupted; what was finished is kept.", 130)
    except (BrokenPipeError, _ReaderGoneError):
        _abandon_stdout()
        code = 141
    except OSError as error:
        _abandon_stdout()
        code = _complain(
            (
                f"{error.filename or 'the output'}: {error.strerror or error}; check the path, "
                "its permissions and the free space."
            ),
            2,
        )
    except ImportError as error:
        if (error.name or "").startswith("certify_assets"):
            raise
        code = _complain(f"{error}. {_remedy(error, arguments or sys.argv[1:])}", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _run(arguments: list[str] | None) -> Any:
    try:
        return cli.main(args=arguments, prog_name="certify", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code


def _remedy(error: ImportError, arguments: Sequence[str]) -> str:
    """Name the extra that brings a package which is missing."""
    from importlib.metadata import requires
    from importlib.util import find_spec

    if find_spec("dagster") is None and not {*arguments[:1]} & _SECTIONS["Score tables"].keys():
        return "This command needs the platform: pip install 'certify_assets[platform]'."
    package = (error.name or "").split(".")[0]
    distribution = {"sklearn": "scikit-learn"}.get(package, package).replace("_", "-").lower()
    for line in requires("certify_assets") or []:
        found = re.match(r"""([\w.-]+).*extra == ['"](\w+)['"]""", line)
        if found and found[1].lower() == distribution:
            return f"This step needs it: pip install 'certify_assets[{found[2]}]'."
    return f"This step needs it: pip install {distribution}."


def _refused(sentence: str, code: int, arguments: list[str] | None) -> int:
    """Say what a command refuses, in GitHub Actions also as an annotation."""
    if os.environ.get("GITHUB_STEP_SUMMARY"):
        words = sys.argv[1:] if arguments is None else arguments
        annotate("error", " ".join(["certify", *words[:1]]), sentence)
    return _complain(sentence, code)


def _complain(sentence: str, code: int) -> int:
    complain(sentence)
    return code


def _abandon_stdout() -> None:
    """Discard what cannot be written, or the interpreter complains again at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            handle = os.open(os.devnull, os.O_WRONLY)
            os.dup2(handle, sys.stdout.fileno())
            os.close(handle)
