"""``certify show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from certify_assets.cli.certificate import show_certificates
from certify_assets.cli.documents import CertificateFile, read_certificate_file
from certify_assets.cli.options import PATH
from certify_assets.cli.output import emit_json, json_option, show_line
from certify_assets.files import canonical_json, sha256_bytes, sha256_file, shortest

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, CertificateSet


@click.command()
@click.argument("file", type=PATH)
@json_option
def show(file: Path, as_json: bool) -> None:
    """A certificate in words, with its hashes.

    FILE is one certificate or a document of several, also one of the platform. Nothing but FILE is
    read. That the digests fit is checked (exit 3 where one does not); `certify verify` recomputes
    the figures from the scores.
    """
    from certify_assets.certificates import Certificate

    given = read_certificate_file(file)
    found = given.certificate_set([Certificate.from_dict(item) for item in given.certificates])
    hashes = _hashes(file, given, found)
    each = {
        f"{item.side}, {item.procedure}, α = {item.alpha:g}": item.sha256
        for item in found.certificates
    }
    if as_json:
        items = [{**item.to_dict(), "sha256": item.sha256} for item in found.certificates]
        emit_json({**hashes, "certificates": items, **found.outline()})
        return
    for title, part in _groups(found):
        if title:
            show_line(f"\n{title}")
        show_certificates(part)
    first = found.certificates[0]
    for title, rows in (
        ("SHA-256 of the file, of its canonical JSON, and of each certificate", {**hashes, **each}),
        ("Provenance: how the table was read, and what made its scores", first.provenance),
        ("Table", _table(first)),
    ):
        if rows:
            # whole lines, from which a hash can be copied
            show_line("\n".join([title, *(f"  {name}: {value}" for name, value in rows.items())]))


def _groups(found: CertificateSet) -> list[tuple[str, CertificateSet]]:
    """Return the sides of each procedure and budget together."""
    from certify_assets.certificates import CertificateSet

    groups: dict[str, list[Certificate]] = {}
    for item in found.certificates:
        groups.setdefault(f"{item.procedure}, α = {item.alpha:g}", []).append(item)
    return [
        (title if len(groups) > 1 else "", CertificateSet(tuple(items), found.joint_delta))
        for title, items in groups.items()
    ]


def _hashes(file: Path, given: CertificateFile, found: CertificateSet) -> dict[str, str]:
    """Return the hashes of the file as it is, and of its canonical bytes."""
    document = found.certificates[0].to_dict()
    if given.several:
        document = {"certificates": given.certificates, **given.outline}
        document |= {} if given.pool is None else {"pool": given.pool}
    return {"file": sha256_file(file), "canonical": sha256_bytes(canonical_json(document))}


def _table(item: Certificate) -> dict[str, object]:
    """Say what a certificate was issued on."""
    inputs = item.inputs
    said: dict[str, object] = {"rows": inputs["rows"], "sha256": inputs["sha256"]}
    if (scores := inputs.get("scores")) is not None:
        ends = (scores["low"], scores["quantiles"][2], scores["high"])
        low, middle, high = map(shortest, ends)
        said["scores"] = f"from {low} to {high}, median {middle}"
    if (pool := inputs.get("pool")) is not None:
        said["pool"] = f"{pool['rows']} rows, {pool['sha256']}"
    return said
