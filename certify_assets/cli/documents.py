"""Reading certificate documents: one certificate, or {"certificates": [...]}."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from certify_assets.cli.options import OPEN_SHARE, SIDE
from certify_assets.errors import ForgedCertificateError, InputError
from certify_assets.files import read_json

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate


def certificate_documents(path: Path) -> list[Any]:
    """Return the JSON objects of a certificate file, not yet checked."""
    return _read(path).certificates


def promise_difference(path: Path, certificates: list[Certificate]) -> str | None:
    """Return how a document's joint promise differs from that of its certificates, else None."""
    from certify_assets.certificates import verify_promise

    promises = _read(path).promises
    return verify_promise(promises[0], certificates) if promises else None


class _Document(NamedTuple):
    """A certificate file as its user gave it: nothing in it is checked but its outline."""

    certificates: list[Any]
    #: none or one
    promises: list[Any]


def _read(path: Path) -> _Document:
    document = read_json(path)
    if not isinstance(document, dict) or "certificates" not in document:
        return _Document([document], [])
    inner = document["certificates"]
    if not set(document) <= {"certificates", "promise"} or not isinstance(inner, list) or not inner:
        raise ForgedCertificateError(
            f"{path} is not a list of certificates as the command writes it; give the file as it "
            "was written."
        )
    return _Document(inner, [document["promise"]] if "promise" in document else [])


@dataclass(frozen=True)
class Choice:
    """Which certificates of a document to take; None takes any."""

    side: str | None = None
    alpha: float | None = None
    procedure: str | None = None

    def fits(self, certificate: Certificate) -> bool:
        """Whether a certificate is one of those."""
        wanted = (
            (self.side, certificate.side),
            (self.alpha, certificate.alpha),
            (self.procedure, certificate.procedure),
        )
        return all(asked is None or asked == found for asked, found in wanted)


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --side, --alpha and --procedure, and give the command what they choose as ``choice``."""

    @wraps(command)
    def chosen(
        *given: Any,
        side: str | None,
        alpha: float | None,
        procedure: str | None,
        **options: Any,
    ) -> Any:
        return command(*given, choice=Choice(side, alpha, procedure), **options)

    for option in (
        click.option(
            "--procedure", help="Of a document of several: the certificates of this procedure."
        ),
        click.option(
            "--alpha", type=OPEN_SHARE, help="Of a document of several: those of this error budget."
        ),
        click.option("--side", type=SIDE, help="Of a document of several: those of this side."),
    ):
        chosen = option(chosen)
    return chosen


def load_certificates(path: Path, choice: Choice | None = None) -> list[Certificate]:
    """Return the chosen certificates of a file, each checked for keys, types and sense."""
    from certify_assets.certificates import Certificate

    try:
        certificates = [Certificate.from_dict(document) for document in certificate_documents(path)]
        if difference := promise_difference(path, certificates):
            raise ForgedCertificateError(difference)
    except ForgedCertificateError as error:
        raise InputError(f"{path} does not hold a certificate: {error}") from None
    chosen = (
        certificates if choice is None else [item for item in certificates if choice.fits(item)]
    )
    if not chosen:
        raise InputError(
            f"{path} holds no certificate of that side, budget and procedure; it holds "
            f"{_named(certificates)}."
        )
    return chosen


def one_a_side(path: Path, certificates: list[Certificate]) -> list[Certificate]:
    """Return the certificates, refusing two of one side."""
    sides = [item.side for item in certificates]
    if repeated := next((side for side in sides if sides.count(side) > 1), None):
        several = [item for item in certificates if item.side == repeated]
        raise InputError(
            f"{path} holds {len(several)} certificates of the {repeated} side ({_named(several)}); "
            "give one a side, chosen by --alpha and --procedure."
        )
    return certificates


def one_certificate(path: Path, choice: Choice | None = None) -> Certificate:
    """Return the one certificate of a file that a choice takes."""
    certificates = load_certificates(path, choice)
    if len(certificates) > 1:
        raise InputError(
            f"{path} holds {len(certificates)} such certificates ({_named(certificates)}); "
            "choose one by --side, --alpha and --procedure."
        )
    return certificates[0]


def _named(certificates: list[Certificate]) -> str:
    return "; ".join(
        dict.fromkeys(f"{item.side}, {item.alpha:g}, {item.procedure}" for item in certificates)
    )
