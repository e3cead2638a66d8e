"""The group of all commands, and how it ends: 0 done or certified, 3 nothing certified or not true, 2 bad usage or input."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

import click

from certify_assets._version import __version__
from certify_assets.cli.output import complain
from certify_assets.errors import CertifyError

__all__ = ["cli", "main"]

# command → module that holds it: a command's libraries are imported when it is called, not for `certify --help`
_COMMANDS = {
    "audit": (
        "certify_assets.cli.check",
        "How the certified threshold does on other labelled tasks.",
    ),
    "certificate": (
        "certify_assets.cli.certificate",
        "Certify what share of trajectories a judge may decide alone.",
    ),
    "compare": (
        "certify_assets.cli.compare",
        "Compare the judges of corpora: ranking, certified coverage, audit, cost.",
    ),
    "corpus": (
        "certify_assets.cli.corpus",
        "Import, list, generate and remove corpora of agent runs.",
    ),
    "decide": (
        "certify_assets.cli.decide",
        "Decide new trajectories: reject, release, or a person.",
    ),
    "demo": (
        "certify_assets.cli.platform",
        "Certificates for the embedded corpora, from runs to pages.",
    ),
    "deploy": (
        "certify_assets.cli.deploy",
        "Let a certified judge decide a corpus's new runs, or show which does.",
    ),
    "harvest": (
        "certify_assets.cli.harvest",
        "Self-train on what the certificate lets through, with its controls.",
    ),
    "incoming": (
        "certify_assets.cli.incoming",
        "Decide new runs of a corpus by the deployed judge.",
    ),
    "judge": ("certify_assets.cli.judge", "Train judges, and score runs with them."),
    "law": (
        "certify_assets.cli.law",
        "Fit the certifiability law: coverage from success rate and base AUROC.",
    ),
    "lineage": (
        "certify_assets.cli.lineage",
        "Where a decision comes from: certificate, scores, adapter, splits, source files.",
    ),
    "monitor": (
        "certify_assets.cli.monitor",
        "Raise an alarm when newly labelled tasks show an error above α.",
    ),
    "plan": (
        "certify_assets.cli.plan",
        "How many more tasks until a certificate, what it would cover, and the three gates.",
    ),
    "protocol": (
        "certify_assets.cli.protocol",
        "What was fixed before TEST was read, and who read it.",
    ),
    "recertify": (
        "certify_assets.cli.recertify",
        "Certify anew on CAL and the tasks that people labelled since.",
    ),
    "report": ("certify_assets.cli.report", "Draw a certificate as a page that opens from disk."),
    "resample": (
        "certify_assets.cli.check",
        "How often a threshold's error exceeds α when tasks are resampled.",
    ),
    "review": (
        "certify_assets.cli.review",
        "Show, export or serve the runs that people are asked about; read their labels.",
    ),
    "simulate": (
        "certify_assets.cli.simulate",
        "How often each procedure certifies wrongly where the truth is known.",
    ),
    "splits": (
        "certify_assets.cli.splits",
        "Tasks and trajectories of a corpus's four splits, and the hash of the manifest.",
    ),
    "study": (
        "certify_assets.cli.study",
        "Every table of the paper with ours beside it, as a site.",
    ),
    "ui": ("certify_assets.cli.platform", "Start the Dagster UI, and MLflow beside it."),
    "verify": (
        "certify_assets.cli.check",
        "Recompute a certificate from its scores and compare every byte.",
    ),
}


class _ReaderGoneError(Exception):
    """The reader of stdout has gone (`certify … | head`): there is nobody to tell."""


class _Lazy(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # the library would end the process with a code of its own
            raise _ReaderGoneError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        from importlib import import_module

        command: click.Command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, summary) for name, (_, summary) in sorted(_COMMANDS.items())]
            )


@click.group(
    cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(__version__, prog_name="certify")
def cli() -> None:
    """Certified selective automation of LLM agent evaluation.

    Tells what share of the reviewing of agent trajectories a judge may take over while the error rate among those it decides stays under
    a budget α with confidence 1−δ, although many attempts share a task.

    Exit codes: 0 done or certified; 3 nothing certified, gate closed, audit failed or verification failed; 2 bad usage or input.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every foreseen error is one sentence on stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that cannot show ≤ or a name gets a question mark instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except click.ClickException as error:
        code = _complain(error.format_message(), 2)
    except CertifyError as error:
        code = _complain(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        code = _complain("interrupted; what was finished is kept.", 130)
    except (BrokenPipeError, _ReaderGoneError):
        _abandon_stdout()
        code = 141
    except OSError as error:
        _abandon_stdout()
        code = _complain(
            f"{error.filename or 'the output'}: {error.strerror or error}; check the path, its permissions and the free space.",
            2,
        )
    except ImportError as error:
        if (error.name or "").startswith("certify_assets"):
            raise
        code = _complain(
            f"a package that this step needs is not installed ({error}); install it.", 2
        )
    sys.exit(code if isinstance(code, int) else 0)


def _run(arguments: list[str] | None) -> Any:
    try:
        return cli.main(args=arguments, prog_name="certify", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code


def _complain(sentence: str, code: int) -> int:
    complain(sentence)
    return code


def _abandon_stdout() -> None:
    """Send what cannot be written nowhere: the interpreter would try again at its end, and say so."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            handle = os.open(os.devnull, os.O_WRONLY)
            os.dup2(handle, sys.stdout.fileno())
            os.close(handle)
