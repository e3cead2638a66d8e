import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from certify_assets.certificates import Certificate, CertificateSet, certify, verify
from certify_assets.errors import ForgedCertificateError
from certify_assets.research.populations import Sample
from certify_assets_tests.populations import paper_process


@pytest.fixture(scope="module")
def data() -> Sample:
    return paper_process(50, 0.5, 0)


@pytest.fixture(scope="module")
def certificate(data: Sample) -> Certificate:
    return certify(
        *data, provenance={"judge": "lexical", "manifest_sha256": "0" * 64}, candidates=2
    )


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else None
    )
    if inner is None:
        return [path]
    return [found for key, item in inner for found in leaves(item, (*path, key))] or [path]


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy = deepcopy(document)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(20_000):
        nested = [nested]
    return nested


def other_values(value: Any) -> list[Any]:
    odd: list[Any] = [
        None,
        "x",
        True,
        7,
        0.123,
        math.nan,
        math.inf,
        -1,
        [],
        {},
        [1],
        10**30,
        "1e999",
        "\ud800",
        10**5000,
        deep(),
    ]
    if isinstance(value, float):
        odd += [value + 1e-9, int(value), -value if value else 1.0]
    if isinstance(value, int):
        odd += [value + 1, float(value)]
    if isinstance(value, str):
        odd += [value + " "]
    return [item for item in odd if type(item) is not type(value) or item != value]


@pytest.mark.parametrize("form", ["dict", "bytes", "text", "certificate"])
def test_an_honest_certificate_verifies(certificate: Certificate, data: Sample, form: str) -> None:
    document = {
        "dict": certificate.to_dict(),
        "bytes": certificate.to_json(),
        "text": certificate.to_json().decode(),
        "certificate": certificate,
    }
    order = np.random.default_rng(1).permutation(data.scores.size)
    assert verify(document[form], *data) is None
    assert (
        verify(
            document[form],
            data.scores[order],
            data.outcomes[order],
            [str(task) for task in data.tasks[order]],
        )
        is None
    )


@pytest.mark.slow
def test_every_altered_value_is_found(certificate: Certificate, data: Sample) -> None:
    document = certificate.to_dict()
    tried = 0
    for path in leaves(document):
        value: Any = document
        for key in path:
            value = value[key]
        for other in other_values(value):
            difference = verify(changed(document, path, other), *data)
            assert isinstance(difference, str) and difference.endswith("."), (path, other)
            tried += 1
    assert tried > 500


def test_altered_settings_that_change_nothing_else_are_found(data: Sample) -> None:
    # a larger grid or seed would be taken as the setting to recompute under, so what depends on it
    # must not fit
    document = certify(*data, procedure="guarded_taskboot", candidates=2).to_dict()
    finer = {"settings": {**document["settings"], "grid": 41}}
    level = {"level": float(f"{0.05 / 41 / 2:.10g}")}
    for change, words in (
        (finer, "document"),
        (finer | level, "document"),
        ({"alpha": 0.2}, "document"),
        ({"seed": 43}, "digest is"),
    ):
        assert words in verify({**document, **change}, *data)


def test_every_missing_key_and_any_extra_key_are_found(
    certificate: Certificate, data: Sample
) -> None:
    document = certificate.to_dict()

    def without(part: dict[str, Any], key: str) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name != key}

    for key in document:
        assert f"lacks {key}" in verify(without(document, key), *data)
    settings = document["settings"]
    for other in (*(without(settings, key) for key in settings), {**settings, "more": 1}):
        assert "settings" in verify({**document, "settings": other}, *data)
    assert "'more'" in verify({**document, "more": 1}, *data)
    found = verify(changed(document, ("icc",), 0.9), *data)
    assert found == f"icc is 0.9 in the document and {document['icc']!r} recomputed."


def test_other_data_schema_and_version_are_named(certificate: Certificate, data: Sample) -> None:
    document = certificate.to_dict()
    other = data.scores.copy()
    other[0] += 1e-12
    assert "inputs.sha256" in verify(document, other, data.outcomes, data.tasks)
    old = {"software": {"version": "0.0.1"}}
    assert "verify with the version" in verify({**document, **old}, *data)
    for schema in (2, True, 1.0, "1", None, [1]):
        assert "schema is" in verify({**document, "schema": schema}, *data)


@pytest.mark.parametrize(
    "document", [None, [], 3, "not json", b"\xff", "[" * 100_000, "{}", "NaN", {"schema": 1}]
)
def test_what_is_no_certificate_is_refused(data: Sample, document: Any) -> None:
    assert isinstance(verify(document, *data), str)


def test_what_is_carried_is_typed_and_in_the_digest(certificate: Certificate, data: Sample) -> None:
    document = certificate.to_dict()
    with pytest.raises(ForgedCertificateError, match="altered after it was issued"):
        Certificate.from_dict({**document, "seed": 43})
    assert "digest is" in verify({**document, "provenance": {"judge": "other"}}, *data)
    assert verify(certificate.replace(provenance={"judge": "other"}).to_json(), *data) is None
    assert "provenance" in verify({**document, "provenance": {"judge": 3}}, *data)
    assert verify({**document, "selection": 4}, *data) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": None},
        {"certified": False},
        {"threshold": math.inf},
        {"coverage": 1.5},
        {"side": "both"},
        {"procedure": "other"},
        {"after": "Approved: every promise"},
    ],
    ids=str,
)
def test_nonsense_is_refused_whatever_its_digest(
    certificate: Certificate, change: dict[str, Any]
) -> None:
    with pytest.raises(ForgedCertificateError):
        Certificate.parse({**certificate.to_dict(), **change})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"alpha": 0.1, "alpha": 0.2}', "'alpha' twice"),
        ('{"inputs": {"rows": 1, "rows": 2}}', "'rows' twice"),
        ("[" * 200_000, "not JSON"),
        ('{"seed": ' + "9" * 5_000 + "}", "not JSON"),
    ],
)
def test_text_that_readers_take_differently_is_refused(data: Sample, text: str, words: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(ForgedCertificateError, match=words):
            Certificate.from_json(form)
        assert words in verify(form, *data)


def test_the_promise_of_a_document_is_checked(data: Sample) -> None:
    pair = [certify(*data, side=side, alpha=0.2) for side in ("reject", "release")]
    both, one = CertificateSet(tuple(pair)), CertificateSet(tuple(pair[:1]))
    document = both.to_dict()
    promise = document["statement"]
    assert "90 % confidence by simulation" in promise
    assert set(both.outline()) == {"statement", "decided", "human"} and one.outline() == {}
    assert verify(document, *data) is None and verify(one, *data) is None
    other = {**document, "statement": promise.replace("90 %", "95 %")}
    assert "statement is" in str(verify(other, *data))
    for name in both.outline():
        rest = {key: value for key, value in document.items() if key != name}
        assert verify(rest, *data) == f"The document lacks {name}; give it as it was written."
    assert "statement is" in str(verify({**one.to_dict(), "statement": "Anything."}, *data))
