"""The ``certify`` command."""

from __future__ import annotations

from certify_assets.cli.main import cli, main

__all__ = ["cli", "main"]
