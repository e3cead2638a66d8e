"""``certify key``, and what other commands do with keys: sign a document, check a signature."""

from __future__ import annotations

from pathlib import Path

import click

from certify_assets.cli.options import PATH
from certify_assets.cli.output import emit_json, json_option, show_line, write_text
from certify_assets.errors import ForgedCertificateError, InputError

sign_option = click.option(
    "--sign",
    metavar="KEYFILE",
    envvar="CERTIFY_SIGNING_KEY",
    show_envvar=True,
    help="Sign the document of --out with this private key, into a file next to it (.sig).",
)


@click.group()
def key() -> None:
    """Make keys that sign certificates."""


@key.command("new")
@click.argument("path", metavar="KEYFILE", type=PATH)
@click.option("--owner", default="", help="Whose key it is, which verification says.")
@json_option
def new(path: Path, owner: str, as_json: bool) -> None:
    """Make an ed25519 key: KEYFILE, which stays private, and KEYFILE.pub for everybody.

    Certificates are signed with KEYFILE (--sign, or CERTIFY_SIGNING_KEY, with which deployments
    are signed too) and checked with KEYFILE.pub (`certify verify --public-key`).
    """
    from certify_assets.storage.signature import new_key

    fingerprint = new_key(path, owner)
    if as_json:
        emit_json({"key": fingerprint, "owner": owner, "public_key": f"{path}.pub"})
        return
    show_line(
        f"{path}: the private key {fingerprint}; keep it to yourself. {path}.pub: its public key."
    )


def sign_document(path: Path, given: str) -> None:
    """Write the signature of a document next to it."""
    from certify_assets.storage.signature import SUFFIX, SigningKey

    signature = SigningKey.read(given).sign(path.read_bytes())
    write_text(path.with_name(path.name + SUFFIX), signature.decode("utf-8"))


def signer_of(path: Path, document: bytes, public: Path) -> dict[str, str]:
    """Return fingerprint and owner of the key that signed what a file held; refuse any other."""
    from certify_assets.storage.signature import SUFFIX, check_signature, read_public_keys

    keys, place = read_public_keys(public), path.with_name(path.name + SUFFIX)
    try:
        signature = place.read_bytes()
    except FileNotFoundError:
        raise ForgedCertificateError(
            f"{place} does not exist, so nobody signed {path}; ask its issuer for it."
        ) from None
    except OSError as error:
        raise InputError(
            f"{place} cannot be read ({error.strerror}); check its permissions."
        ) from None
    fingerprint, owner = check_signature(document, signature, keys)
    return {"key": fingerprint, "owner": owner}
