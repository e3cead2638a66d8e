"""Calling the command, as in the tests of the commands."""

from certify_assets_tests.cli.conftest import call

__all__ = ["call"]
