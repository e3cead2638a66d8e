"""The certificate: one frozen document with one canonical form."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, with_config
from typing_extensions import TypedDict  # pydantic reads those of `typing` from 3.12 on

from certify_assets.certificates.counts import SIDES
from certify_assets.certificates.inputs import Inputs
from certify_assets.certificates.procedures import EVERY_PROCEDURE, Promise
from certify_assets.documents import (
    CLOSED,
    Count,
    Document,
    JsonObject,
    OpenShare,
    Positive,
    Real,
    Sha256,
    Share,
)
from certify_assets.errors import ForgedCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.words import WORDS

#: one of ours: statements say it
ProcedureName = Annotated[str, Field(pattern=f"^({'|'.join(EVERY_PROCEDURE)})$")]


@with_config(CLOSED)
class Parameters(TypedDict):
    """The settings of a certificate that have no key of their own."""

    guard: str
    size_ratio: Real
    multiplicity: str
    pilot: str | None
    grid: Positive
    engine: str
    draws: Positive
    planned_share: Real
    looks: Positive
    look: Positive


@with_config(CLOSED)
class LedgerHead(TypedDict):
    """The event of a data root's ledger that claimed δ for a certificate."""

    corpus: str
    sequence: Count
    sha256: Sha256


@with_config(CLOSED)
class Finding(TypedDict):
    """What a reader of a certificate should know."""

    code: str
    message: str


@with_config(CLOSED)
class Software(TypedDict):
    """What issued a certificate."""

    version: str


class Certificate(Document):
    """The answer to "how much may the judge decide alone", with all that is needed to recompute it.

    The document also has schema, and digest, the hash of all the rest. Derived numbers have ten
    significant digits; alpha, delta and the threshold are exact.

    Attributes
    ----------
    promise : {"average", "confident", "proved"}
    procedure, side : str
    alpha, delta : float
        Error budget, and one minus the confidence.
    certified : bool
    threshold, selective_error, tail : float or None
        None where nothing is certified.
    coverage : float
        Share of the scored runs that the threshold decides; 0 where nothing is certified.
    level : float
        Level of the test, by default δ/(|Θ|·candidates).
    trajectories, tasks : int
        Scored ones.
    covered_trajectories, covered_tasks, errors : int
    effective_tasks : float
        At the threshold, as the three before it; 0 where nothing is certified.
    success_rate, icc, deff, n_eff : float
    estimand, validity : str
    assumptions : tuple of str
    statement : str
        The sentence that may be quoted.
    findings : tuple of dict
        Each {"code", "message"}.
    candidates : int
    selection : str or None
        The rule by which one of several candidates was chosen.
    settings, inputs, software : dict
        `settings` has those without a key of their own, the pilot as the hash of its table.
    provenance : dict
        Names and hashes of what produced the scores.
    seed : int
    ledger : dict or None
        The event of a data root that claimed δ.
    after : str or None
        The procedure of a stronger promise that certified nothing on these labels.

    Raises
    ------
    ForgedCertificateError
        At construction, if a value contradicts the schema, or only some figures of a threshold are
        there.
    """

    TITLE = "certificate"
    SCHEMA = 1
    REFUSAL = ForgedCertificateError

    promise: Promise
    procedure: ProcedureName
    side: Annotated[str, Field(pattern=f"^({'|'.join(SIDES)})$")]
    alpha: OpenShare
    delta: OpenShare
    certified: bool
    threshold: Real | None
    coverage: Share
    selective_error: Share | None
    tail: Share | None
    level: OpenShare
    trajectories: Count
    tasks: Count
    covered_trajectories: Count
    covered_tasks: Count
    errors: Count
    effective_tasks: Real
    success_rate: Share
    icc: Real
    deff: Real
    n_eff: Real
    estimand: str
    validity: str
    assumptions: tuple[str, ...]
    statement: str
    findings: tuple[Finding, ...]
    candidates: Positive
    selection: str | None
    settings: Parameters
    provenance: dict[str, str]
    inputs: Inputs
    software: Software
    seed: Count
    ledger: LedgerHead | None = None
    after: ProcedureName | None = None

    def model_post_init(self, _: Any) -> None:
        """Refuse figures of a threshold without one, and a threshold without its figures."""
        filled = (self.threshold, self.selective_error, self.tail)
        if any((value is not None) != self.certified for value in filled):
            raise ForgedCertificateError(
                "certified contradicts threshold, selective_error or tail: all three are null "
                "exactly when nothing is certified. Give the certificate as it was written."
            )

    def __repr__(self) -> str:
        decision = WORDS[self.side]
        if self.threshold is None:
            return f"<certificate: no {decision} with an error of at most {100 * self.alpha:g} %>"
        sign = "≤" if self.side == "reject" else "≥"
        return (
            f"<certificate: {100 * self.coverage:.1f} % {decision} at {sign} {self.threshold:.4g}>"
        )

    @property
    def partly_labelled(self) -> bool:
        """Whether some drawn runs have no label; the success rate leaves them out."""
        return self.inputs.get("labels", self.inputs["rows"]) < self.inputs["rows"]

    def _values(self) -> JsonObject:
        values = super()._values()
        for name in ("ledger", "after"):
            if getattr(self, name) is None:
                del values[name]
        return values

    @property
    def digest(self) -> str:
        """SHA-256 of every other key: it shows edits that verification cannot."""
        return sha256_bytes(canonical_json(self._values()))

    def to_json(self) -> bytes:
        """Return the canonical bytes."""
        return canonical_json({**self._values(), "digest": self.digest})

    @classmethod
    def parse(cls, document: Any) -> tuple[Self, Any]:
        """Build a certificate from a JSON object; return it with its digest, still unchecked."""
        rest = dict(document) if isinstance(document, dict) else document
        if rest is not document and "digest" not in rest:
            raise ForgedCertificateError("The certificate lacks digest; give it as it was written.")
        digest = rest.pop("digest") if isinstance(document, dict) else None
        return super().from_dict(rest), digest

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Build a certificate from a JSON object, and check its digest."""
        certificate, digest = cls.parse(document)
        if digest != certificate.digest:
            raise ForgedCertificateError(
                "The certificate was altered after it was issued: its digest does not match. Give "
                "it as it was written."
            )
        return certificate
