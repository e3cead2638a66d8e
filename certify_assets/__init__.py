"""Certified selective automation of LLM agent evaluation.

``certify(scores, outcomes, tasks)`` or ``certify(table)`` returns a `Certificate` a side: how many
trajectories a judge may decide alone, with an error below a budget α at confidence 1−δ. Many
attempts may share a task. Everything else (corpora, judges, the Dagster assets, the ``certify``
command) feeds that call and reports its results.

Names are loaded on first use: importing the package costs no numerical library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__

if TYPE_CHECKING:
    from certify_assets.certificates import (
        Audit,
        Certificate,
        audit_certificate,
        decide,
        monitor_certificate,
        resample_audit,
        threshold_curve,
        verify,
    )
    from certify_assets.errors import CertifyError, InputError, IntegrityError
    from certify_assets.notebook import certify
    from certify_assets.workspace import Workspace

__all__ = [
    "Audit",
    "Certificate",
    "CertifyError",
    "InputError",
    "IntegrityError",
    "Workspace",
    "__version__",
    "audit_certificate",
    "certify",
    "decide",
    "monitor_certificate",
    "resample_audit",
    "threshold_curve",
    "verify",
]

# everything else is offered by the certificates package
_HOMES = {
    "CertifyError": "errors",
    "InputError": "errors",
    "IntegrityError": "errors",
    "Workspace": "workspace",
    "certify": "notebook",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'certify_assets' has no attribute {name!r}")
    module = import_module(f"certify_assets.{_HOMES.get(name, 'certificates')}")
    value = getattr(module, name)
    globals()[name] = value
    return value
