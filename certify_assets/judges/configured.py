"""Judges in judges.yaml as users write them: their settings, and an error for a wrong one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from certify_assets.corpora.rendering import LEAST_CHARS, LEAST_STEP_CHARS
from certify_assets.errors import InputError
from certify_assets.judges.lm.models import COMMIT, known_model, require_commit
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.lm.recipe import RECIPE_SETTINGS, Recipe
from certify_assets.judges.reading import LEXICAL, JudgeInput

# parts that a union adds to the place of an error
_UNION = ("literal['whole']", "int", "float", "constrained-int")
_MOST_EPOCHS = 1000

#: what the libraries of every family take
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]

E = TypeVar("E", bound="Entry")


class Entry(BaseModel):
    """Settings that a user writes, each with its type; unknown settings are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PromptEntry(Entry):
    """Parts of the auditor's prompt that a user replaces."""

    system: str = ""
    opening: str = ""
    closing: str = ""
    marker: str = ""
    success: str = Field(default="", description="the verdict after the marker, with its space")
    fail: str = ""
    system_role: Literal["system", "user"] = Field(
        default="system", description="system, or user: at the head of the user's message"
    )


class NamedEntry(Entry):
    """Settings of every judge of the document."""

    #: setting that may be a folder next to the document; empty where none may
    folder: ClassVar[str] = ""

    name: str = Field(description="small letters, digits and '_', a letter first")

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        return {"name": self.name}


class ReadingEntry(NamedEntry):
    """A judge with settings for how much of a run it reads."""

    chars: Annotated[int, Field(ge=LEAST_CHARS)] | Literal["whole"] | None = Field(
        default=None, description="characters of a run that it reads, the middle is cut"
    )
    step_chars: Annotated[int, Field(ge=LEAST_STEP_CHARS)] | Literal["whole"] | None = Field(
        default=None, description="characters of each action and of each observation"
    )

    def reading(self, usual: JudgeInput) -> JudgeInput:
        """Return how much it reads: the given settings, and defaults for the others."""
        given: dict[str, Any] = {
            name: None if value == "whole" else value
            for name in ("chars", "step_chars")
            if (value := getattr(self, name)) is not None
        }
        return usual.replace(**given)


class WordsEntry(ReadingEntry):
    """A judge of words that is trained in seconds."""

    seed: Seed = 42

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        return {"name": self.name, "seed": self.seed, "reading": self.reading(LEXICAL)}


class PromptedEntry(ReadingEntry):
    """A judge that is asked a question."""

    prompt: PromptEntry = PromptEntry()

    def asked(self, usual: AuditorPrompt) -> AuditorPrompt:
        """Return the prompt with the given parts replaced."""
        return usual.replace(**self.prompt.model_dump(exclude_unset=True))


class CausalEntry(PromptedEntry):
    """A language model on this machine."""

    folder = "model"

    model: str = Field(
        default="compact",
        min_length=1,
        description="language model: compact, smollm2, a folder with safetensors, a hub name",
    )
    revision: str | None = Field(
        default=None,
        description="commit of the hub repository, 40 hexadecimal digits; of nothing else",
        json_schema_extra={"pattern": f"^{COMMIT}$"},
    )
    tokens: int | None = Field(
        default=None, ge=1, description="longest prompt; by default the context, at most 5,120"
    )
    seed: Seed = 42

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        require_commit(self.model, self.revision)
        known = known_model(self.model)
        if not (known.folder or self.revision or Path(self.model).is_absolute()):
            raise InputError(
                f"the model {self.model} is not a folder next to judges.yaml and has no revision; "
                "give a folder's path, or a commit as revision."
            )
        reading = self.reading(known.reading).replace(
            prompt=self.asked(known.reading.prompt),
            tokens=self.tokens or known.reading.tokens,
        )
        about = self.model_dump(include={"name", "seed", "model", "revision"})
        return {**about, "reading": reading}


class TunedEntry(CausalEntry):
    """A language model with LoRA."""

    runs: int | None = Field(default=None, ge=1, description="most runs that a training reads")
    epochs: float | None = Field(
        default=None, gt=0, le=_MOST_EPOCHS, description="times that fine-tuning reads a run"
    )
    learning_rate: float | None = Field(default=None, gt=0, le=1, description="of fine-tuning")

    def usual(self) -> Recipe:
        """The default settings of training."""
        return known_model(self.model).recipe

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        given = self.model_dump(include={*RECIPE_SETTINGS}, exclude_none=True)
        recipe = replace(self.usual(), **given) if given else None
        return {**super().specification(), "recipe": recipe}


def validated(entry: Any, kind: type[E]) -> E:
    """Read the settings of a judge; the error names the first wrong one."""
    # a setting without a value is one that was not written
    written = {str(name): value for name, value in entry.items() if value is not None}
    try:
        return kind.model_validate(written)
    except ValidationError as error:
        raise InputError(_sentence(error.errors()[0], kind)) from None


def _sentence(error: Any, kind: type[Entry]) -> str:
    """Return a sentence with the fault, the setting and the remedy."""
    # without the places in lists
    path = [part for part in error["loc"] if isinstance(part, str) and part not in _UNION]
    name = ".".join(path)[:60]
    if error["type"] == "missing":
        return f"it has no {name}; give one."
    if error["type"] == "extra_forbidden":
        known = f"; it has {', '.join(sorted(kind.model_fields))}" if len(path) == 1 else ""
        return f"a judge of its family has no setting {name!r}{known}; remove it."
    hint = (
        " (texts like yes and no need quotes, and numbers have none: 2.0e-4, not 2e-4)"
        if error["type"] == "string_type" or isinstance(error["input"], str)
        else ""
    )
    wrong = str(error["msg"])
    return f"{name}: {wrong[0].lower()}{wrong[1:]}{hint}; correct it."
