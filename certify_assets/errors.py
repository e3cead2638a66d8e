"""Errors of certify_assets: one tree, each class with its exit code on the command line.

A message says what is wrong, where (file, row or column), and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class CertifyError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 2


class InputError(CertifyError):
    """A file, table, column, value or option that cannot be used."""


class UnfitTableError(InputError):
    """A table on which the promise of a procedure does not hold."""


class TooFewTasksError(UnfitTableError):
    """A table of so few tasks that a procedure could not certify anything."""


class UnlabelledRunError(InputError):
    """Drawn runs without a label that a certificate needs: no fault, reading goes on.

    `task` and `score` are those of the first such run in the order of reading.
    """

    exit_code = 3

    def __init__(self, sentence: str, task: str, score: float) -> None:
        super().__init__(sentence)
        self.task, self.score = task, score


class GateClosedError(CertifyError):
    """A gate is closed: nothing is certified, or a check refuses the step."""

    exit_code = 3


class StepFailedError(CertifyError):
    """A step of a pipeline failed; what was finished is kept."""

    exit_code = 1


class MissingToolError(CertifyError):
    """A program or optional package that this step needs is not installed."""


class IntegrityError(CertifyError):
    """A document or table is not what it claims to be."""

    exit_code = 3


class ChangedInputError(IntegrityError):
    """A stored file was replaced while an operation used it."""


class LostDatabaseError(CertifyError):
    """The database does not answer. Whether it stored the last commit is not known."""


class ManifestError(IntegrityError):
    """A split manifest does not hold for the data at hand."""


class ForgedCertificateError(IntegrityError):
    """A certificate is incomplete, was altered or belongs to other data."""


class StaleCertificateError(IntegrityError):
    """A certificate belongs to another judge, prompt, renderer, grid, manifest or other data."""


class LeakError(IntegrityError):
    """Text or fields that reveal the outcome reached a place where a judge would read them."""


class LedgerError(IntegrityError):
    """A TEST split was asked for outside its registration."""


def quoted(value: object, length: int = 80) -> str:
    """Return any value as ASCII text of limited length, for a message."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        # an integer of thousands of digits, or nesting as deep as the stack
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= length else f"{text[: length - 3]}..."


def unknown_setting(name: object, known: Iterable[str]) -> InputError:
    """Return the error for an unknown setting, with a suggestion if one is close."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return InputError(f"{quoted(name)} is not a setting.{meant} Settings: {', '.join(names)}.")


def require_whole(settings: object, words: str, **least: int) -> None:
    """Refuse settings that are no whole numbers of at least so much; `words` has a {name}."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        # a bool is an int
        if type(value) is not int or value < smallest:
            raise InputError(
                f"{words.format(name=name)} is {quoted(value)}; give a whole number of at least "
                f"{smallest}."
            )
