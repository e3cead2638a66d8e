"""Signatures of documents: ed25519, in a file next to the document, whose bytes stay as they are.

References
----------
RFC 8032 (Ed25519).
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from certify_assets.errors import ForgedCertificateError, InputError, MissingToolError, quoted
from certify_assets.files import canonical_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SCHEMA: Final = "certify_assets/signature/1"
#: a signature's file is named as its document is, and this
SUFFIX: Final = ".sig"
#: the private key, or the path of its file
VARIABLE: Final = "CERTIFY_SIGNING_KEY"
_PEM = "-----BEGIN"


@dataclass(frozen=True)
class Signature:
    """A signature of all bytes of a document."""

    #: SHA-256 of the public key, as ``ssh-keygen -l`` prints it
    key: str
    #: base64 of the 64 bytes
    signature: str
    algorithm: str = "ed25519"
    schema: str = SCHEMA


class SigningKey:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self.private: Final = key
        self.fingerprint: Final = _fingerprint(key.public_key())

    @classmethod
    def read(cls, given: str) -> SigningKey:
        """Read the key of a file, or the key itself (PEM), not encrypted."""
        serialization, ed25519 = _cryptography()
        # no sentence shows anything of a key
        where = "the private key" if given.startswith(_PEM) else f"the private key {given}"
        try:
            data = given.encode() if given.startswith(_PEM) else Path(given).read_bytes()
            found = serialization.load_pem_private_key(data, password=None)
        except OSError as error:
            raise InputError(
                f"{where} cannot be read ({error.strerror}); check the path."
            ) from None
        except (ValueError, TypeError):
            found = None
        if not isinstance(found, ed25519.Ed25519PrivateKey):
            raise InputError(
                f"{where} is no ed25519 key in PEM without a password; make one with `certify key "
                "new`."
            )
        return cls(found)

    @classmethod
    def of_environment(cls) -> SigningKey | None:
        """Return the key that `CERTIFY_SIGNING_KEY` holds or names; None without one."""
        given = os.environ.get(VARIABLE, "")
        return cls.read(given) if given else None

    def sign(self, document: bytes) -> bytes:
        """Return the content of the file of a document's signature."""
        signature = base64.b64encode(self.private.sign(document)).decode("ascii")
        return canonical_json(asdict(Signature(self.fingerprint, signature)))


def new_key(path: Path, owner: str) -> str:
    """Write a private key to a file, its public key next to it; return its fingerprint.

    The public key is a line of OpenSSH, which ends with its owner.
    """
    serialization, ed25519 = _cryptography()
    public = path.with_name(path.name + ".pub")
    if "\n" in owner or not owner.isprintable():
        raise InputError(f"the owner {owner!r} is no line of text; give a name or an address.")
    # a kill may have come between the two files: the call ends what the earlier one began
    begun = path.exists() and not public.exists()
    key = SigningKey.read(str(path)).private if begun else ed25519.Ed25519PrivateKey.generate()
    if not begun:
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        _write_new(path, key.private_bytes(serialization.Encoding.PEM, *form), 0o600)
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write_new(public, line + f" {owner}\n".encode(), 0o644)
    return _fingerprint(key.public_key())


def _write_new(path: Path, data: bytes, mode: int) -> None:
    # a key is never written over: what it signed could not be checked any more
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as to:
            to.write(data)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); choose another place."
        ) from None


def read_public_keys(path: Path) -> dict[str, tuple[str, Ed25519PublicKey]]:
    """Read public keys: lines of OpenSSH, each with its owner behind it, or one key in PEM."""
    serialization, ed25519 = _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm

    found: dict[str, tuple[str, Ed25519PublicKey]] = {}
    try:
        text = path.read_text("utf-8")
        lines = [text] if _PEM in text else [line.strip() for line in text.split("\n")]
        for line in lines:
            if not line or line.startswith("#"):
                continue
            if _PEM in line:
                key, owner = serialization.load_pem_public_key(line.encode()), ""
            else:
                key = serialization.load_ssh_public_key(line.encode())
                owner = " ".join(line.split()[2:])
            if not isinstance(key, ed25519.Ed25519PublicKey):
                raise ValueError
            found[_fingerprint(key)] = (owner, key)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path.") from None
    except (ValueError, UnsupportedAlgorithm):
        found = {}
    if not found:
        raise InputError(
            f"{path} holds something other than ed25519 public keys; give the .pub file of "
            "`certify key new`, or several of its lines."
        )
    return found


def check_signature(
    document: bytes, signature: bytes, keys: Mapping[str, tuple[str, Ed25519PublicKey]]
) -> tuple[str, str]:
    """Return fingerprint and owner of the key that signed a document.

    Raises
    ------
    ForgedCertificateError
        Where the signature is of other bytes or of none of the keys.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        found = Signature(**parse_json(signature.decode("utf-8")))
        value = base64.b64decode(found.signature, validate=True)
        known = (found.schema, found.algorithm) == (SCHEMA, "ed25519") and type(found.key) is str
    except (ValueError, TypeError):
        known = False
    if not known:
        raise ForgedCertificateError(
            "the signature is none of this program; sign the document again."
        )
    if found.key not in keys:
        raise ForgedCertificateError(
            f"the signature names the key {quoted(found.key)}, which is none of those given; ask "
            "its owner for the public key."
        )
    owner, key = keys[found.key]
    try:
        key.verify(value, document)
    except InvalidSignature:
        raise ForgedCertificateError(
            "the signature is of other bytes; the document was altered after it was signed."
        ) from None
    return found.key, owner


def _fingerprint(key: Ed25519PublicKey) -> str:
    serialization, _ = _cryptography()
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingToolError(
            "signatures need the package cryptography; install it (pip install cryptography)."
        ) from None
    return serialization, ed25519
