"""Settings of a certificate: one model, from which options, keywords, files and schema are made."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from certify_assets.certificates.asked import Test
from certify_assets.certificates.bootstrap import as_fraction
from certify_assets.certificates.one_run import CAP
from certify_assets.certificates.procedures import (
    AVERAGE,
    DEFAULT,
    EVERY_PROCEDURE,
    PROMISED,
    PROVED,
    Procedure,
    find_procedure,
)
from certify_assets.certificates.pseudo_task import level_shares
from certify_assets.certificates.taskboot import draws_needed
from certify_assets.documents import CLOSED
from certify_assets.errors import InputError, quoted, unknown_setting

#: how a certificate names the payment of a procedure that is calibrated over its whole grid
CALIBRATED = "calibrated"
#: the payment of a procedure whose limits hold at every threshold at once
PATH = "path"
BONFERRONI, FIXED = "bonferroni", "fixed"


def level_of(multiplicity: str, grid: int, tasks: int, alpha: float, delta: float) -> float:
    """Return the level of a tail: δ/|Θ|, δ/λ for a calibrated procedure, or the whole δ."""
    if multiplicity == CALIBRATED:
        return delta / level_shares(tasks, alpha, delta)
    return delta / grid if multiplicity == BONFERRONI else delta


def look_share(look: int, looks: int) -> float:
    """Share of δ of one of several looks that were named beforehand; later looks have more."""
    return 2 * look / (looks * (looks + 1))


class Settings(BaseModel):
    """All that a certificate depends on besides the table.

    The fields are the keywords of `certify`, the names that ``--set`` and ``--settings`` take, and
    what a certificate stores.

    Raises
    ------
    InputError
        At construction, where a value is of another type or range than its field says.
    """

    model_config = ConfigDict(**CLOSED, frozen=True)

    alpha: Annotated[
        float, Field(gt=0, lt=1, description="error budget among decided runs, four decimals")
    ] = 0.1
    delta: Annotated[float, Field(gt=0, lt=1, description="one minus the confidence")] = 0.05
    side: Annotated[
        Literal["reject", "release"],
        Field(description="decision that is certified: auto-fail or auto-pass"),
    ] = "reject"
    procedure: Annotated[
        str,
        Field(
            description="test that certifies a threshold",
            json_schema_extra={"enum": list(EVERY_PROCEDURE)},
        ),
    ] = DEFAULT
    size_ratio: Annotated[
        float,
        Field(
            ge=1, le=1_000_000, description="how much larger wrong tasks are than others, at most"
        ),
    ] = 1.0
    grid: Annotated[
        int | None,
        Field(ge=1, le=1_000, description="number of thresholds; by default the procedure's own"),
    ] = None
    engine: Annotated[
        Literal["auto", "montecarlo"],
        Field(description="how a bootstrap tail is computed: without draws, or by Algorithm 1"),
    ] = "auto"
    draws: Annotated[
        int, Field(ge=1, le=10_000_000, description="resamples of the engine montecarlo")
    ] = 2000
    seed: Annotated[int, Field(ge=0, le=2**63 - 1, description="seed of what is drawn")] = 42
    candidates: Annotated[
        int,
        Field(ge=1, le=10**9, description="judges or settings compared on this table; divides δ"),
    ] = 1

    planned_share: Annotated[
        float,
        Field(ge=0.05, le=1, description="share of the drawn runs for which one_run plans limits"),
    ] = 0.6
    looks: Annotated[
        int,
        Field(ge=1, le=10, description="looks of one_run at growing samples, named beforehand"),
    ] = 1
    look: Annotated[int, Field(ge=1, le=10, description="which of these looks this one is")] = 1

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _refusal(error) from None

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        """Return the Python number of a numpy scalar."""
        return value.item() if isinstance(value, np.generic) else value

    def model_post_init(self, _: Any) -> None:
        """Refuse an unknown procedure, an engine that it lacks, and an α of many decimals."""
        as_fraction(self.alpha)
        if self.method.calibrated and self.engine != "auto":
            raise InputError(
                f"engine {self.engine} does not apply to {self.procedure}, which is calibrated as "
                "a whole; leave it out, or name another procedure (--procedure guarded_taskboot)."
            )
        if self.look > self.looks:
            raise InputError(f"look is {self.look}, and there are {self.looks} looks; give looks=.")
        if self.looks > 1 and self.procedure != PROMISED[PROVED]:
            raise InputError(f"looks are for one_run; {self.procedure} takes none. Leave them out.")
        if self.candidates > 1 and self.procedure == PROMISED[AVERAGE]:
            raise InputError(
                "average does not hold for a judge that was chosen among candidates on the same "
                "labels. Leave candidates out, or take --promise proved."
            )
        if self.alpha * CAP >= 1 and self.procedure == PROMISED[AVERAGE]:
            raise InputError(
                f"average caps the error at {CAP}·alpha, and alpha {self.alpha:g} leaves no cap. "
                f"Give an alpha below {1 / CAP:g}, or name another procedure."
            )

    def replace(self, **changes: Any) -> Self:
        """Return settings with other values, checked like these."""
        return type(self)(**{**dict(self), **changes})

    @property
    def applied_grid(self) -> int:
        """The number of thresholds asked for, by default the procedure's own."""
        return self.method.grid if self.grid is None else self.grid

    @property
    def multiplicity(self) -> str:
        """The correction for many thresholds; a procedure with a pilot tests a fixed sequence."""
        if self.method.calibrated:
            return CALIBRATED
        if self.method.by_rows:
            return PATH
        return FIXED if self.method.pilot else BONFERRONI

    @property
    def budget(self) -> Fraction:
        """α as the exact decimal that was given."""
        return as_fraction(self.alpha)

    @property
    def error_limit(self) -> Fraction:
        """The largest error that a single certificate promises: 2α where α is kept on average."""
        return self.budget * (CAP if self.method.promise == AVERAGE else 1)

    def level(self, tasks: int) -> float:
        """Return the level at which every threshold is tested, for a table of `tasks` tasks."""
        share = self.delta * look_share(self.look, self.looks) / self.candidates
        return level_of(self.multiplicity, self.applied_grid, tasks, self.alpha, share)

    @property
    def guard(self) -> str:
        """The guard besides the bootstrap, as a certificate names it."""
        return "floor" if self.method.guarded else "none"

    @property
    def method(self) -> Procedure:
        """The procedure itself."""
        return find_procedure(self.procedure)

    @property
    def coarse_draws(self) -> bool:
        """Whether the bootstrap is drawn so few times that no threshold can pass."""
        drawn = self.method.resamples and self.engine == "montecarlo"
        return drawn and self.draws < draws_needed(self.level(0))

    def test(self, tasks: int) -> Test:
        """Return the test that the procedure applies to a table of `tasks` tasks."""
        level = self.level(tasks)
        return Test(self.budget, level, self.engine, self.draws, self.seed, self.planned_share)


# made once: each option of a command asks for its own
_schema = lru_cache(Settings.model_json_schema)


def setting_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of one setting: type, range, default and description."""
    return dict(_schema()["properties"][name])


def expected(name: str) -> str:
    """Say which values a setting takes: 'a whole number from 1 to 1000'."""
    schema = setting_schema(name)
    # a setting that may be left out has the schema of its value first
    schema |= schema.get("anyOf", [{}])[0]
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    kind = "a whole number" if schema["type"] == "integer" else "a number"
    if "minimum" in schema:
        return f"{kind} from {schema['minimum']} to {schema['maximum']}"
    low, high = schema["exclusiveMinimum"], schema["exclusiveMaximum"]
    return f"{kind} strictly between {low:g} and {high:g}"


def _refusal(error: ValidationError) -> InputError:
    first: Mapping[str, Any] = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return unknown_setting(name, Settings.model_fields)
    return InputError(f"{name} is {quoted(first['input'])}; give {expected(name)}.")
