"""Calling the command, as in the tests of the commands."""

from certify_assets_tests.cli.conftest import call
from certify_assets_tests.right_answers.importing import imported

__all__ = ["call", "imported"]
