"""The JSON schema against real certificates of every procedure, and altered ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jsonschema
import numpy as np
import pytest

from certify_assets.certificates import EVERY_PROCEDURE, Certificate, CertificateSet, Certifier
from certify_assets.certificates.certificate import LedgerHead
from certify_assets.certificates.certificate_files import document_schema
from certify_assets.certificates.ladder import issue
from certify_assets.errors import ForgedCertificateError
from certify_assets_tests.populations import paper_process


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = document_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def found() -> CertificateSet:
    """Return both sides of every procedure on one table, with a pilot, a pool and agents."""
    rng = np.random.default_rng(0)
    data, pilot, pool = (paper_process(60, 0.5, rng) for _ in range(3))
    agents = [f"agent-{row % 4}" for row in range(len(data[0]))]
    certifier = Certifier.of(
        *data,
        pilot=(pilot[0], pilot[1], np.asarray(pilot[2]) + 1_000),
        pool=(pool[0], np.asarray(pool[2]) + 2_000),
        agents=agents,
    )
    return issue(certifier, {"procedure": "all", "alpha": 0.2})


def test_certificates_of_every_procedure_are_of_the_schema(
    found: CertificateSet, validator: jsonschema.Draft202012Validator
) -> None:
    items = found.certificates
    # some tasks have several runs
    assert {item.procedure for item in items} == set(EVERY_PROCEDURE) - {"average"}
    assert {item.certified for item in items} == {True, False}
    for item in items:
        validator.validate(item.to_dict())
        validator.validate(json.loads(item.to_json()))
        head: LedgerHead = {"corpus": "c", "sequence": 7, "sha256": "0" * 64}
        of_platform = item.replace(ledger=head)
        validator.validate(of_platform.to_dict())
        assert Certificate.from_json(of_platform.to_json()) == of_platform
        assert of_platform.digest != item.digest and "ledger" not in item.to_dict()
    validator.validate(found.to_dict())


def edits() -> dict[str, Callable[[dict[str, Any]], object]]:
    return {
        "lacks a key": lambda item: item.pop("level"),
        "has another key": lambda item: item.update(approved=True),
        "a budget of one": lambda item: item.update(alpha=1.0),
        "a threshold of nothing": lambda item: item.update(certified=not item["certified"]),
        "a finding with more": lambda item: item["findings"].append({"code": "x"}),
        "two quantiles": lambda item: item["inputs"]["scores"].update(quantiles=[0.0, 1.0]),
        "a digest in capitals": lambda item: item.update(digest=item["digest"].upper()),
    }


@pytest.mark.parametrize("edit", edits())
def test_what_is_no_certificate_is_none_by_the_schema_either(
    found: CertificateSet, validator: jsonschema.Draft202012Validator, edit: str
) -> None:
    for item in (found.certificates[0], found.certificates[-1]):
        document = deepcopy(item.to_dict())
        edits()[edit](document)
        assert not validator.is_valid(document)
        with pytest.raises(ForgedCertificateError):
            Certificate.from_dict(document)
    assert not validator.is_valid({"certificates": []})
    assert not validator.is_valid({**found.to_dict(), "comment": "mine"})
