"""Verification: issue the certificates again from the data and compare every byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from certify_assets.arrays import Names
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.certifier import Certifier
from certify_assets.certificates.evidence import GIVEN
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet
from certify_assets.documents import read_json_text
from certify_assets.errors import ForgedCertificateError, InputError, quoted
from certify_assets.work import counted

#: what a successful verification leaves open
NOT_VOUCHED = (
    "Not verified: that the outcomes are right, which judge and manifest the scores come from, how "
    "many candidates were compared or promises tried, and who chose a pool. The scores show none "
    "of this."
)
_REMEDIES = {
    "software": "verify with the version that issued it, or issue it again",
    "inputs": "give the table, and the pool, that it was issued on",
    "settings": "with a pilot it cannot be recomputed without it; give that table (--pilot), or "
    "issue it again",
    "findings": "where rows that repeat others are runs of their own, give their trajectory_id "
    "(from Python named=True) or agent",
}


def settings_of(certificate: Certificate) -> Settings:
    """Return the settings that a certificate says it was issued under."""
    values = {**dict(certificate), **certificate.settings}
    return Settings(**{name: values[name] for name in Settings.model_fields})


def verify(
    given: Any,
    scores: ArrayLike,
    outcomes: ArrayLike,
    tasks: Names,
    **about: Any,
) -> str | None:
    """Recompute one certificate, or a set, from the data; return the first difference.

    Parameters
    ----------
    given : dict, bytes, str, Certificate or CertificateSet
        One certificate, or the document of several, as it was written.
    scores, outcomes, tasks
        The table that it was issued on, in any order.
    **about
        What :meth:`Certifier.of` takes: pilot, pool, agents, named and alone, as when it was
        issued. A betting certificate needs its pilot, and one with inputs.pool its pool. Scores
        and tasks do not show who chose a pool, so its origin is carried as it is.

    Returns
    -------
    str or None
        A sentence with the key, the value in the document and the value recomputed; None without a
        difference.

    Raises
    ------
    InputError
        If the table itself cannot be used, or a certificate was issued with a pool and none is
        given.

    Notes
    -----
    ``provenance``, ``selection``, ``ledger`` and ``after`` name things that are not in the table
    (which judge, which manifest, which rule, what was tried). They are copied unchanged.
    Verification does not vouch for them beyond the digest, which anybody can compute;
    ``NOT_VOUCHED`` says so to a reader. Everything else is recomputed, under the settings that the
    document names.
    """
    certifier = Certifier.of(scores, outcomes, tasks, **about)
    if isinstance(given, Certificate | CertificateSet):
        given = given.to_dict()
    try:
        if isinstance(given, bytes | str):
            given = read_json_text(given, Certificate.TITLE, Certificate.REFUSAL)
        documents, outline = [given], {}
        if isinstance(given, dict) and isinstance(given.get("certificates"), list):
            # the pool of a document of the platform is given by itself
            known = ("certificates", "pool")
            outline = {key: value for key, value in given.items() if key not in known}
            documents = given["certificates"]
        certificates = []
        for place, document in enumerate(counted("verifying", documents), 1):
            try:
                certificate, digest = Certificate.parse(document)
                found = _difference_of(certificate, digest, certifier)
            except ForgedCertificateError as error:
                found = str(error)
            if found is not None:
                several = len(documents) > 1
                return f"certificate {place} of {len(documents)}: {found}" if several else found
            certificates.append(certificate)
        CertificateSet.of(certificates, outline)
        return None
    except ForgedCertificateError as error:
        return str(error)


def _difference_of(certificate: Certificate, digest: Any, certifier: Certifier) -> str | None:
    named, pool = certificate.inputs.get("pool"), certifier.pool
    if named is not None and pool is None:
        raise InputError(
            "The certificate was issued with a pool of unlabelled runs and cannot be recomputed "
            "without it; give it (--pool)."
        )
    read, given_labels = certificate.inputs.get("labels"), certifier.table.labels_read
    if read is not None and certifier.sample is not None and read != given_labels:
        return (
            f"It was issued on {read:,} labels, and {given_labels:,} are given. Give those "
            f"{read:,} with --labels."
        )
    if pool is not None and named is not None and pool.origin == GIVEN:
        # rows do not show who chose them
        pool = replace(pool, origin=named["origin"])
    try:
        asked = settings_of(certificate)
        certifier = replace(
            certifier,
            pilot=certifier.pilot if certificate.settings["pilot"] else None,
            pool=pool,
            provenance=certificate.provenance,
            selection=certificate.selection,
            after=certificate.after,
        )
        issued = certifier.read_by(asked.method).issue(asked)
        again = issued.replace(ledger=certificate.ledger).to_dict()
    except InputError as error:
        return str(error)
    given = {**certificate.to_dict(), "digest": digest}
    # first what everything else depends on
    for name, remedy in _REMEDIES.items():
        if found := _difference(given[name], again[name], name):
            return f"{found.removesuffix('.')}; {remedy}."
    # the digest last: where it is all that differs, the settings, the provenance or the selection
    # were changed
    return _difference({**given, "digest": ""}, {**again, "digest": ""}) or _difference(
        given, again
    )


def _difference(given: Any, found: Any, path: str = "") -> str | None:
    """First difference of two JSON values, keys sorted; an integer is no float, and True no 1."""
    if type(given) is type(found) is dict:
        # a hash names all that is next to it
        for key in sorted(set(given) | set(found), key=lambda name: (name != "sha256", name)):
            where = f"{path}.{key}" if path else key
            if key not in given or key not in found:
                found_in = "in the document only" if key in given else "missing in the document"
                return f"{where} is {found_in}."
            if inner := _difference(given[key], found[key], where):
                return inner
        return None
    if type(given) is type(found) is list and len(given) == len(found):
        for place, (left, right) in enumerate(zip(given, found, strict=True)):
            if inner := _difference(left, right, f"{path}[{place}]"):
                return inner
        return None
    if type(given) is type(found) and given == found:
        return None
    return f"{path} is {quoted(given, 200)} in the document and {quoted(found, 200)} recomputed."
