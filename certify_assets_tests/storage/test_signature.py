"""Signatures: whose key signed which bytes, by certify, by OpenSSL, and what is refused."""

from __future__ import annotations

import base64
import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from certify_assets.errors import ForgedCertificateError, InputError
from certify_assets.storage.signature import SigningKey, check_signature, new_key, read_public_keys

DOCUMENT = b'{"certified":true}\n'


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "team"
    new_key(path, "Evaluation team <eval@example.org>")
    return path


def public_of(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def test_a_signature_says_whose_key_signed_which_bytes(key: Path) -> None:
    signing = SigningKey.read(str(key))
    signature = signing.sign(DOCUMENT)
    assert signing.sign(DOCUMENT) == signature, "ed25519 draws nothing"
    keys = read_public_keys(public_of(key))
    owner = "Evaluation team <eval@example.org>"
    assert check_signature(DOCUMENT, signature, keys) == (signing.fingerprint, owner)
    with pytest.raises(ForgedCertificateError, match="of other bytes"):
        check_signature(DOCUMENT + b" ", signature, keys)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public_of(key).read_bytes() and b"PRIVATE" not in signature


def test_a_key_of_somebody_else_is_named_and_refused(key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    fingerprint = new_key(other, "")
    signature = SigningKey.read(other.read_text("utf-8")).sign(DOCUMENT)
    with pytest.raises(ForgedCertificateError, match="none of those given") as error:
        check_signature(DOCUMENT, signature, read_public_keys(public_of(key)))
    assert fingerprint in str(error.value)
    both = tmp_path / "all.pub"
    both.write_text("# keys\n\n" + public_of(key).read_text() + public_of(other).read_text())
    assert check_signature(DOCUMENT, signature, read_public_keys(both)) == (fingerprint, "")
    # a signature that claims the other key
    document = json.loads(signature) | {"key": SigningKey.read(str(key)).fingerprint}
    with pytest.raises(ForgedCertificateError, match="of other bytes"):
        check_signature(DOCUMENT, json.dumps(document).encode(), read_public_keys(both))


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"key": "x", "signature": "***"}',
        b'{"key": 1, "signature": 2}',
        b'{"key": ["x"], "signature": "AAAA"}',
        b'{"key": "x", "signature": "AAAA", "algorithm": "none"}',
        b'{"key": "x", "signature": "AAAA", "schema": "certify_assets/signature/2"}',
        b'{"key": "x", "signature": "AAAA", "comment": "mine"}',
    ],
)
def test_what_is_no_signature_is_refused(key: Path, signature: bytes) -> None:
    with pytest.raises(ForgedCertificateError, match="none of this program"):
        check_signature(DOCUMENT, signature, read_public_keys(public_of(key)))


def test_other_programs_agree_on_signature_and_fingerprint(key: Path, tmp_path: Path) -> None:
    signing = SigningKey.read(str(key))
    if shutil.which("ssh-keygen"):
        shown = subprocess.run(
            ["ssh-keygen", "-l", "-f", public_of(key)], check=True, capture_output=True, text=True
        )
        assert signing.fingerprint in shown.stdout
    document, raw = tmp_path / "d.json", tmp_path / "d.raw"
    document.write_bytes(DOCUMENT)
    raw.write_bytes(base64.b64decode(json.loads(signing.sign(DOCUMENT))["signature"]))
    ((_, public),) = read_public_keys(public_of(key)).values()
    pem = tmp_path / "public.pem"
    pem.write_bytes(
        public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    assert list(read_public_keys(pem)) == [signing.fingerprint]
    if shutil.which("openssl"):
        checked = subprocess.run(
            f"openssl pkeyutl -verify -pubin -inkey {pem} -rawin -sigfile {raw} -in {document}".split(),
            check=True,
            capture_output=True,
            text=True,
        )
        assert "Verified Successfully" in checked.stdout


def test_keys_that_cannot_be_used_are_refused_without_showing_them(
    key: Path, tmp_path: Path
) -> None:
    locked, other = tmp_path / "locked", tmp_path / "rsa"
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, secret))
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    other.write_bytes(made.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    for path in (locked, other, public_of(key)):
        with pytest.raises(InputError, match="no ed25519 key in PEM without a password"):
            SigningKey.read(str(path))
    cut = key.read_text("utf-8")[:60]
    with pytest.raises(InputError) as error:
        SigningKey.read(cut)
    assert cut[30:] not in str(error.value)
    with pytest.raises(InputError, match="cannot be read"):
        SigningKey.read(str(tmp_path / "missing"))
    with pytest.raises(InputError, match="File exists"):
        new_key(key, "again")
    for text in ("", "ssh-rsa AAAA x\n", key.read_text("utf-8")):
        place = tmp_path / "public"
        place.write_text(text, "utf-8")
        with pytest.raises(InputError, match="other than ed25519 public keys"):
            read_public_keys(place)


def test_a_key_whose_public_half_a_kill_prevented_is_completed(key: Path) -> None:
    line = public_of(key).read_bytes()
    public_of(key).unlink()
    before = key.read_bytes()
    assert (
        new_key(key, "Evaluation team <eval@example.org>") == SigningKey.read(str(key)).fingerprint
    )
    assert key.read_bytes() == before and public_of(key).read_bytes() == line
