"""The certificate: one frozen document with one canonical form."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Final, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.evaluation import level_shares
from certify_assets.certificates.inputs import LEVELS, Inputs, PoolInputs, ScoreRange
from certify_assets.errors import ForgedCertificateError, quoted
from certify_assets.files import canonical_json, sha256_bytes, significant

SCHEMA: Final = 1
_ROUNDING, _SMALL_LEVEL = 1e-9, 0.05


class Parameters(TypedDict):
    """The settings of a certificate that have no key of their own."""

    guard: str
    size_ratio: float
    multiplicity: str
    pilot: str | None
    grid: int
    engine: str
    draws: int


class LedgerHead(TypedDict):
    """The event of a data root's ledger that claimed δ for a certificate."""

    corpus: str
    sequence: int
    sha256: str


@dataclass(frozen=True)
class Certificate:
    """The answer to "how much may the judge decide alone", with all that is needed to recompute it.

    The keys of the contract: procedure, side, alpha, delta, certified, threshold (null when not
    certified), coverage (0 then), selective_error and tail (null then), level (that of the test
    passed, by default δ/(|Θ|·candidates)), trajectories and tasks (scored ones), covered_tasks and
    effective_tasks (at the threshold; 0 then), success_rate, icc, deff, n_eff, estimand, validity,
    assumptions, findings, candidates, inputs, software, seed. Beyond it: schema, parameters (guard,
    size_ratio, multiplicity, pilot as the hash of its table, grid, engine, draws), provenance
    (names and hashes of what produced the scores), selection (the rule, when there were
    candidates), covered_trajectories and errors (at the threshold), promise (the sentence that may
    be quoted) and digest (the hash of all the rest). A certificate of a data root has ledger too:
    the event that claimed its δ.

    Derived numbers have ten significant digits; alpha, delta and the threshold are exact.

    Raises
    ------
    ForgedCertificateError
        At construction, when a value has another type than the schema says or contradicts another
        one.
    """

    procedure: str
    side: str
    alpha: float
    delta: float
    certified: bool
    threshold: float | None
    coverage: float
    selective_error: float | None
    tail: float | None
    level: float
    trajectories: int
    tasks: int
    covered_trajectories: int
    covered_tasks: int
    errors: int
    effective_tasks: float
    success_rate: float
    icc: float
    deff: float
    n_eff: float
    estimand: str
    validity: str
    assumptions: tuple[str, ...]
    promise: str
    findings: tuple[dict[str, str], ...]
    candidates: int
    selection: str | None
    parameters: Parameters
    provenance: dict[str, str]
    inputs: Inputs
    software: dict[str, str]
    seed: int
    schema: int = SCHEMA
    ledger: LedgerHead | None = None

    def __post_init__(self) -> None:
        for name, allowed in _TYPES.items():
            _check(name, getattr(self, name), allowed)
        for name, shape in _SHAPES.items():
            _check_mapping(name, getattr(self, name), shape)
        if self.ledger is not None:
            _check_mapping("ledger", self.ledger, kinds_of(LedgerHead))
        if "pool" in self.inputs:
            _check_mapping("inputs.pool", self.inputs["pool"], kinds_of(PoolInputs))
        if "scores" in self.inputs:
            check_range(self.inputs["scores"])
        for finding in self.findings:
            _check_mapping("findings", finding, {"code": (str,), "message": (str,)})
        if not all(_is_text(key) and _is_text(value) for key, value in self.provenance.items()):
            raise ForgedCertificateError(
                "provenance holds something other than text; it maps names to text."
            )
        _check_sense(self)

    def __repr__(self) -> str:
        decision = {"reject": "auto-fail", "release": "auto-pass"}[self.side]
        if self.threshold is None:
            return f"<certificate: no {decision} with an error of at most {100 * self.alpha:g} %>"
        sign = "≤" if self.side == "reject" else "≥"
        return (
            f"<certificate: {100 * self.coverage:.1f} % {decision} at {sign} {self.threshold:.4g}>"
        )

    @property
    def digest(self) -> str:
        """SHA-256 of every other key: it shows edits that verification cannot."""
        return sha256_bytes(canonical_json(self._values()))

    def _values(self) -> dict[str, Any]:
        left_out = () if self.ledger else ("ledger",)
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON values, lists and dicts fresh."""
        return dict(json.loads(self.to_json()))

    def to_json(self) -> bytes:
        """Return the canonical bytes."""
        return canonical_json({**self._values(), "digest": self.digest})

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical bytes."""
        return sha256_bytes(self.to_json())

    @classmethod
    def from_dict(cls, document: Any) -> Certificate:
        """Build a certificate from a JSON object."""
        certificate = cls.parse(document)
        if document["digest"] != certificate.digest:
            raise ForgedCertificateError(
                "The certificate was altered after it was issued: its digest is another; give it "
                "as it was written."
            )
        return certificate

    @classmethod
    def parse(cls, document: Any) -> Certificate:
        """Build a certificate from a JSON object whose digest is still to be checked."""
        if not isinstance(document, dict):
            raise ForgedCertificateError(
                "The document is not a JSON object; give one certificate as it was written."
            )
        names = [entry.name for entry in fields(cls)]
        for name in sorted([*names, "digest"]):
            if name not in document and name != "ledger":
                raise ForgedCertificateError(
                    f"The certificate lacks {name}; give it as it was written."
                )
        for name in sorted(document, key=str):
            if name not in (*names, "digest"):
                raise ForgedCertificateError(
                    f"The certificate has a key of no certificate, {name!r}; give it as it was "
                    "written."
                )
        values = {name: document[name] for name in names if name in document}
        for name in ("assumptions", "findings"):
            if isinstance(values[name], list):
                values[name] = tuple(values[name])
        return cls(**values)

    @classmethod
    def from_json(cls, data: bytes | str) -> Certificate:
        """Build a certificate from JSON text."""
        return cls.from_dict(read_document(data))


def read_document(data: bytes | str) -> Any:
    """Decode JSON text."""
    try:
        return json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise ForgedCertificateError(
            "The certificate is not JSON; give it as it was written."
        ) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # of two values under one key one reader takes the first and another the last
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ForgedCertificateError(
            f"The certificate gives {quoted(twice)} twice; give it as it was written."
        )
    return found


_Kinds = dict[str, tuple[type, ...]]


def kinds_of(owner: type) -> _Kinds:
    """Return the types that the annotations of a class allow for the values of its fields."""
    found: _Kinds = {}
    for name, hint in get_type_hints(owner).items():
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        found[name] = tuple(
            dict if is_typeddict(part) else get_origin(part) or part for part in parts
        )
    return found


_NONE = type(None)
_TYPES = kinds_of(Certificate)
_SHAPES: dict[str, _Kinds] = {
    "parameters": kinds_of(Parameters),
    "software": {"version": (str,)},
    "inputs": kinds_of(Inputs),
}
_MAY_LACK = {"inputs": Inputs.__optional_keys__}
_MOST_WHOLE = 2**63 - 1


def _is_text(value: object) -> bool:
    """Whether a value is text that UTF-8 can hold; JSON can carry half a surrogate pair."""
    return type(value) is str and (
        value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    )


def _check(name: str, value: Any, allowed: tuple[type, ...]) -> None:
    # bool is a subclass of int, and a certificate distinguishes them
    unusable = (
        (isinstance(value, float) and not math.isfinite(value))
        or (isinstance(value, str) and not _is_text(value))
        or (isinstance(value, int) and abs(value) > _MOST_WHOLE)
    )
    if type(value) not in allowed or unusable:
        words = " or ".join(
            {float: "a finite number with a point", _NONE: "null"}.get(kind, kind.__name__)
            for kind in allowed
        )
        raise ForgedCertificateError(
            f"{name} is {quoted(value)}, not {words}; give the certificate as it was written."
        )


def _check_mapping(name: str, value: Any, shape: _Kinds) -> None:
    needed = {key: kinds for key, kinds in shape.items() if key not in _MAY_LACK.get(name, ())}
    if not isinstance(value, dict) or not set(needed) <= set(value) <= set(shape):
        raise ForgedCertificateError(
            f"{name} is {quoted(value)}; it has exactly the keys {', '.join(sorted(needed))}."
        )
    for key in value:
        _check(f"{name}.{key}", value[key], shape[key])


def check_range(given: ScoreRange) -> None:
    """Refuse what is no range of scores."""
    _check_mapping("inputs.scores", given, kinds_of(ScoreRange))
    for value in (ordered := [given["low"], *given["quantiles"], given["high"]]):
        _check("inputs.scores", value, (float,))
    if ordered != sorted(ordered) or len(given["quantiles"]) != len(LEVELS):
        raise ForgedCertificateError(
            f"inputs.scores is not a range with {len(LEVELS)} quantiles in order; give the "
            "certificate as it was written."
        )


def _check_sense(certificate: Certificate) -> None:
    if certificate.schema != SCHEMA:
        raise ForgedCertificateError(
            f"schema is {certificate.schema}; this version reads {SCHEMA}."
        )
    if not all(_is_text(text) for text in certificate.assumptions):
        raise ForgedCertificateError(
            "assumptions holds something other than text; give the certificate as it was written."
        )
    filled = (certificate.threshold, certificate.selective_error, certificate.tail)
    if any((value is not None) != certificate.certified for value in filled):
        raise ForgedCertificateError(
            "certified contradicts threshold, selective_error or tail: all three are null exactly "
            "when nothing is certified."
        )
    for wrong, sentence in _contradictions(certificate):
        if wrong:
            raise ForgedCertificateError(f"{sentence}; give the certificate as it was written.")


def _contradictions(item: Certificate) -> Iterator[tuple[bool, str]]:
    """What cannot be true of a certificate together."""
    # in an order in which no later test divides by what an earlier one refuses
    yield item.side not in SIDES, f"side is {quoted(item.side)}, not one of {', '.join(SIDES)}"
    for name in ("alpha", "delta"):
        yield (
            not 0.0 < getattr(item, name) < 1.0,
            f"{name} is {getattr(item, name)}, not strictly between 0 and 1",
        )
    for name, least in (
        ("trajectories", 0),
        ("tasks", 0),
        ("covered_tasks", 0),
        ("errors", 0),
        ("candidates", 1),
    ):
        yield getattr(item, name) < least, f"{name} is {getattr(item, name)}, below {least}"
    rows, grid = item.inputs["rows"], item.parameters["grid"]
    yield grid < 1, f"parameters.grid is {grid}, below 1"
    shares = level_shares(item.parameters["multiplicity"], grid)
    level = significant(item.delta / (shares * item.candidates))
    yield (
        item.level != level,
        f"level is {item.level}, not delta / (shares * candidates) = {level!r}",
    )
    for name, most, limit in (
        ("trajectories", "inputs.rows", rows),
        ("tasks", "trajectories", item.trajectories),
        ("covered_trajectories", "trajectories", item.trajectories),
        ("covered_tasks", "tasks", item.tasks),
        ("covered_tasks", "covered_trajectories", item.covered_trajectories),
        ("errors", "covered_trajectories", item.covered_trajectories),
    ):
        yield getattr(item, name) > limit, f"{name} is {getattr(item, name)}, above {most} {limit}"
    yield (
        not -_ROUNDING <= item.effective_tasks <= item.covered_tasks * (1 + _ROUNDING),
        "effective_tasks is not from 0 to covered_tasks",
    )
    yield (
        not 0.0 <= item.success_rate <= 1.0,
        f"success_rate is {item.success_rate}, not from 0 to 1",
    )
    yield (
        item.certified != (item.covered_trajectories > 0),
        "covered_trajectories is above 0 exactly when something is certified",
    )
    coverage = significant(item.covered_trajectories / max(item.trajectories, 1))
    yield (
        item.coverage != coverage,
        f"coverage is {item.coverage}, not covered_trajectories / trajectories = {coverage}",
    )
    if item.selective_error is not None and item.tail is not None:
        error = significant(item.errors / item.covered_trajectories)
        yield (
            item.selective_error != error,
            f"selective_error is {item.selective_error}, not errors / covered_trajectories = "
            f"{error}",
        )
        yield (
            not 0.0 <= item.tail <= item.level,
            f"tail is {item.tail}, not from 0 to level {item.level}",
        )
        # a test at a level as small as these cannot pass above its own mean; one of the mean over
        # tasks says nothing of trajectories
        above = item.estimand == "trajectory" and item.level <= _SMALL_LEVEL and error > item.alpha
        yield (
            above,
            f"selective_error is {error}, above alpha {item.alpha}, although it is certified",
        )
