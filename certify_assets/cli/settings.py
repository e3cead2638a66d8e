"""Options and help of the settings of a certificate, made from the fields of `Settings`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from certify_assets.certificates.settings import expected, setting_schema
from certify_assets.cli.options import OPEN_SHARE


def setting_option(name: str, *, more: str = "") -> Callable[..., Any]:
    """Return the option of a setting; it is None where the command line lacks it."""
    schema = setting_schema(name)
    return click.option(
        f"--{name}",
        type=OPEN_SHARE if schema.get("type") == "number" else None,
        help=f"{_sentence(schema['description'])}: {expected(name)}{more}. "
        f"[default: {schema['default']}]",
    )


def settings_help(names: Sequence[str]) -> str:
    """Say what --set takes: each setting with its meaning, values and default."""
    each = []
    for name in names:
        schema = setting_schema(name)
        default = "" if schema["default"] is None else f"; default {schema['default']}"
        each.append(f"{name}= ({schema['description']}: {expected(name)}{default})")
    return f"Settings of the certificate: {', '.join(each)}. "


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
