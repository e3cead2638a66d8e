"""Components of Dagster: the platform for corpora, and a certificate for an asset that you have.

Each is loaded on first use, so that a project that certifies its own asset never loads the
platform.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certify_assets.components.certificate import CertificateComponent as Certificate
    from certify_assets.components.corpora import Corpora

__all__ = ["Certificate", "Corpora"]

_HOMES = {"Certificate": "certificate.CertificateComponent", "Corpora": "corpora.Corpora"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'certify_assets.components' has no attribute {name!r}")
    module, _, found = _HOMES[name].partition(".")
    return getattr(import_module(f"certify_assets.components.{module}"), found)


def __dir__() -> list[str]:
    # Dagster loads every component that a module lists, and Corpora needs the platform
    lacking = {"Corpora"} if find_spec("mlflow") is None else set()
    return sorted({*globals(), *__all__} - lacking)
