"""Documents that are stored as JSON: one base that reads, checks, writes and hashes all of them."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from certify_assets.errors import CertifyError, InputError, quoted
from certify_assets.files import canonical_json, parse_json, sha256_bytes

__all__ = [
    "CLOSED",
    "Count",
    "Document",
    "JsonObject",
    "OpenShare",
    "Positive",
    "Real",
    "Sha256",
    "Share",
    "read_json_text",
]

#: a value is of its type and not only like it, and no key is passed over
CLOSED: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_MOST_WHOLE: Final = 2**63 - 1

JsonObject = dict[str, Any]


def _with_a_point(value: object) -> object:
    # 1 and 1.0 are one number, and two texts with two hashes
    if type(value) is not float:
        raise ValueError("a number with a point is needed")
    return value


_POINT: Final = BeforeValidator(_with_a_point)
Real = Annotated[float, _POINT]
Share = Annotated[float, Field(ge=0, le=1), _POINT]
OpenShare = Annotated[float, Field(gt=0, lt=1), _POINT]
Count = Annotated[int, Field(ge=0, le=_MOST_WHOLE)]
Positive = Annotated[int, Field(ge=1, le=_MOST_WHOLE)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Document(BaseModel):
    """A frozen document: another key, type or range than its class says is refused."""

    model_config = ConfigDict(**CLOSED, frozen=True)

    #: what a reader calls it
    TITLE: ClassVar[str] = "document"
    #: what the JSON object has under `schema`
    SCHEMA: ClassVar[int | str]
    #: raised where a JSON object is none of this class
    REFUSAL: ClassVar[type[CertifyError]] = InputError

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Build the document from its JSON object.

        Raises
        ------
        CertifyError
            The class's own error, where the object is not such a document.
        """
        if not isinstance(document, dict):
            raise cls.REFUSAL(f"This is not the JSON object of a {cls.TITLE}.")
        if "schema" not in document:
            raise cls.REFUSAL(f"The {cls.TITLE} lacks schema; give it as it was written.")
        values = dict(document)
        number = values.pop("schema")
        if type(number) is not type(cls.SCHEMA) or number != cls.SCHEMA:
            raise cls.REFUSAL(f"schema is {quoted(number)}; this version reads {cls.SCHEMA}.")
        try:
            return cls.model_validate_json(json.dumps(values))
        except ValidationError as error:
            raise cls.REFUSAL(cls._sentence(error)) from None
        except (RecursionError, TypeError, ValueError):
            raise cls.REFUSAL(
                f"The {cls.TITLE} holds values that JSON cannot; give it as it was written."
            ) from None

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            said = f"The {cls.TITLE} lacks {place}"
        elif first["type"] == "extra_forbidden":
            said = f"The {cls.TITLE} has an unknown key, {place!r}"
        else:
            words = first["msg"].removeprefix("Value error, ")
            said = f"{place} is {quoted(first['input'])}: {words[:1].lower()}{words[1:]}"
        return f"{said}; give it as it was written."

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Build the document from JSON text; text that readers take differently is refused."""
        return cls.from_dict(read_json_text(data, cls.TITLE, cls.REFUSAL))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, checked like the document itself."""
        return type(self)(**{**dict(self), **changes})

    def to_dict(self) -> JsonObject:
        """Return the document as JSON values, lists and dicts fresh."""
        return dict(json.loads(self.to_json()))

    def to_json(self) -> bytes:
        """Return the canonical bytes."""
        return canonical_json(self._values())

    def _values(self) -> JsonObject:
        return {"schema": self.SCHEMA, **self.model_dump()}

    @classmethod
    def json_schema(cls) -> JsonObject:
        """Return the JSON schema of the document (draft 2020-12)."""
        found = cls.model_json_schema()
        found["properties"]["schema"] = {"const": cls.SCHEMA}
        found["required"] = ["schema", *found["required"]]
        return found

    def __str__(self) -> str:
        return repr(self)

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical bytes."""
        return sha256_bytes(self.to_json())


def read_json_text(data: bytes | str, title: str, refusal: type[CertifyError]) -> Any:
    """Decode the JSON text of a document."""
    try:
        return parse_json(data if isinstance(data, str) else data.decode("utf-8"))
    except ValueError as error:
        raise refusal(f"The {title} is not JSON ({error}); give it as it was written.") from None
