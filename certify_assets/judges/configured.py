"""What users write of a judge in judges.yaml: its settings, and a sentence where one is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from certify_assets.corpora.rendering import LEAST_CHARS, LEAST_STEP_CHARS
from certify_assets.errors import InputError
from certify_assets.judges.lm.grpo_config import arm_of
from certify_assets.judges.lm.models import COMMIT, known_model, require_commit
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.lm.recipe import RECIPE_SETTINGS, Recipe
from certify_assets.judges.reading import LEXICAL, JudgeInput

_USELESS: Mapping[str, tuple[str, ...]] = {"sft": ("strict",), "transfer": ()}
# of the families that read words, or words and steps, of the run alone
_OF_LANGUAGE = ("model", "revision", "tokens", "prompt")
_WORDS = ("lexical", "combined")
# parts that a union adds to the place of an error
_UNION = ("literal['whole']", "int", "float", "constrained-int")

# what the libraries of every family take
_LARGEST_SEED = 2**32 - 1
_LARGEST_COST, _MOST_STEPS, _MOST_EPOCHS, _MOST_PER_STEP = 1e6, 10**6, 1000, 10**4

E = TypeVar("E", bound="Entry")


class Entry(BaseModel):
    """Settings that a user writes: every one has its type, and there is no other."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PromptEntry(Entry):
    """Parts of the auditor's prompt in other words."""

    system: str = ""
    opening: str = ""
    closing: str = ""
    marker: str = ""
    success: str = Field(default="", description="the verdict after the marker, with its space")
    fail: str = ""
    system_role: str = Field(
        default="system", description="system, or user: at the head of the user's message"
    )


class NamedEntry(Entry):
    """What every judge of the document says."""

    name: str = Field(description="small letters, digits and '_', a letter first")
    chars: Annotated[int, Field(ge=LEAST_CHARS)] | Literal["whole"] | None = Field(
        default=None, description="characters of a run that it reads, the middle is cut"
    )
    step_chars: Annotated[int, Field(ge=LEAST_STEP_CHARS)] | Literal["whole"] | None = Field(
        default=None, description="characters of each action and of each observation"
    )
    prompt: PromptEntry = PromptEntry()

    def reading(self, usual: JudgeInput, prompt: AuditorPrompt | None = None) -> JudgeInput:
        """Return what it reads: the given settings in the place of the usual ones."""
        given = {
            name: None if value == "whole" else value
            for name in ("chars", "step_chars")
            if (value := getattr(self, name)) is not None
        }
        return replace(usual, **given, prompt=prompt or usual.prompt)

    def asked(self, usual: AuditorPrompt) -> AuditorPrompt:
        """Return the prompt with the given parts in other words."""
        return replace(usual, **self.prompt.model_dump(exclude_unset=True))


class LocalEntry(NamedEntry):
    """A judge that is trained here, or a language model as it comes."""

    family: Literal["lexical", "combined", "base", "sft", "transfer"] = Field(
        description="lexical, combined (with the structure of a run), base (a language model as it "
        "comes), sft (with LoRA on verdicts) or transfer (on those of other corpora)"
    )
    model: str = Field(
        default="",
        description="language model: compact, smollm2, a folder with safetensors, a hub name",
    )
    revision: str | None = Field(
        default=None,
        description="commit of the hub repository, 40 hexadecimal digits; of nothing else",
        json_schema_extra={"pattern": f"^{COMMIT}$"},
    )
    tokens: int | None = Field(
        default=None, description="longest prompt; by default the context, at most 5,120"
    )
    runs: int | None = Field(default=None, description="most runs that a training reads")
    epochs: float | None = Field(
        default=None, le=_MOST_EPOCHS, description="times that fine-tuning reads a run"
    )
    learning_rate: float | None = Field(default=None, le=1, description="of fine-tuning")
    strict: bool = Field(default=False, description="transfer: without corpora of the same domain")
    seed: int = Field(default=42, ge=0, le=_LARGEST_SEED)

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        about = {"name": self.name, "seed": self.seed}
        for name in _USELESS.get(self.family, ("strict", *RECIPE_SETTINGS)):
            if name in self.model_fields_set:
                raise InputError(
                    f"it has {name}, which a judge of the family {self.family} has no use for; "
                    f"take {name} out."
                )
        if self.family in _WORDS:
            read = "words" if self.family == "lexical" else "words and steps"
            for name in _OF_LANGUAGE:
                if name in self.model_fields_set:
                    raise InputError(
                        f"it has {name}, and a {self.family} judge reads {read} of the run alone; "
                        f"take {name} out, or name the family base or sft."
                    )
            return {**about, "reading": self.reading(LEXICAL)}
        if self.tokens is not None and self.tokens < 1:
            raise InputError(f"tokens is {self.tokens}; give a whole number above 0.")
        model = self.model or "compact"
        require_commit(model, self.revision)
        known = known_model(model).folder is not None or Path(model).is_absolute()
        if not known and self.revision is None:
            raise InputError(
                f"the model {model} is no folder next to judges.yaml and has no revision; give the "
                "path of a folder, or the commit of the hub repository as revision."
            )
        usual = known_model(model).reading
        reading = self.reading(usual, self.asked(usual.prompt))
        return {
            **about,
            "model": model,
            "revision": self.revision,
            "recipe": self._recipe(model),
            "reading": replace(reading, tokens=self.tokens or usual.tokens),
        }

    def _recipe(self, model: str) -> Recipe | None:
        """Return how the model is trained where something is written of it."""
        given = {
            name: value for name in RECIPE_SETTINGS if (value := getattr(self, name)) is not None
        }
        usual = known_model(model).recipe
        usual = usual.pooled if self.family == "transfer" else usual
        return replace(usual, **given) if given else None


class RewardEntry(Entry):
    """What an error costs in the reward of GRPO, where a right verdict earns 1."""

    lam: float = Field(
        default=1.0, alias="lambda", le=_LARGEST_COST, description="calling a failure a success"
    )
    mu: float = Field(default=1.0, le=_LARGEST_COST, description="calling a success a failure")


class GrpoEntry(Entry):
    """A judge of the family sft that GRPO trains on; it reads what that judge reads."""

    name: str = Field(description="small letters, digits and '_', a letter first")
    family: Literal["grpo"]
    start: str = Field(default="sft", description="judge of the family sft that it starts from")
    optimiser: str = Field(
        default="exact", description="exact (the expected gradient) or trl (TRL's, with samples)"
    )
    rewards: list[RewardEntry] | None = Field(
        default=None, description="candidates; by default accuracy, mu 3, mu 5 and lambda 5"
    )
    steps: list[Annotated[int, Field(le=_MOST_STEPS)]] | None = Field(
        default=None, description="numbers of steps that are candidates; the last ends the training"
    )
    samples: int = Field(default=8, le=_MOST_PER_STEP, description="completions of a prompt")
    prompts_per_step: int = Field(default=6, le=_MOST_PER_STEP)
    learning_rate: float | None = Field(default=None, le=1)
    seed: int = Field(default=42, ge=0, le=_LARGEST_SEED)

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        given = self.model_dump(exclude={"rewards"}, exclude_none=True)
        if self.rewards is None:
            return given
        return {**given, "rewards": [arm_of(reward.lam, reward.mu) for reward in self.rewards]}


def validated(entry: Any, kind: type[E], *, missing: Mapping[str, str] | None = None) -> E:
    """Read the settings of a judge; a sentence on the first that is wrong."""
    if not isinstance(entry, Mapping):
        raise InputError("a judge is no mapping of settings to values; write one setting a line.")
    # a setting without a value is one that was not written
    written = {
        str(name): _without_empty(value) if _part(kind, str(name)) is not kind else value
        for name, value in entry.items()
        if value is not None
    }
    try:
        return kind.model_validate(written)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(_sentence(first, kind, missing or {}, _unused(written))) from None


def _unused(written: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings that a judge of the family has no use for."""
    family = written.get("family")
    found = _USELESS.get(str(family), ("strict", *RECIPE_SETTINGS))
    return (*found, *_OF_LANGUAGE) if family in _WORDS else found


def _without_empty(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(name): item for name, item in value.items() if item is not None}


def _sentence(
    error: Any, kind: type[Entry], missing: Mapping[str, str], unused: Sequence[str]
) -> str:
    """Return what is wrong with a judge, with the setting and the remedy."""
    # without the places in lists
    path: Sequence[str] = [
        part for part in error["loc"] if isinstance(part, str) and part not in _UNION
    ]
    name = path[-1]
    if error["type"] == "missing":
        return missing.get(".".join(path), f"it has no {name}; give one.")
    if error["type"] == "extra_forbidden":
        where = "a judge" if len(path) == 1 else path[-2]
        unused = unused if len(path) == 1 and kind is LocalEntry else ()
        hint = (
            " The key itself is never written down: name its environment variable by key_variable."
            if "key" in name.lower()
            else ""
        )
        known = ", ".join(sorted(_fields(kind, path) - {*unused}))
        return f"{where} has no setting {name[:40]!r}; it has {known}.{hint}"
    wrong, hint = str(error["msg"]), ""
    if error["type"] == "string_type":
        hint = " (the words yes and no, and texts that look like numbers, need quotes)"
    elif isinstance(error["input"], str):
        # what YAML takes for a text
        hint = " (numbers have no quotes, and with an exponent a point and a sign: 2.0e-4)"
    return f"{name}: {wrong[0].lower()}{wrong[1:]}{hint}; correct it."


def _fields(kind: type[Entry], path: Sequence[str]) -> set[str]:
    """Return the settings next to one, as users call them."""
    part = kind if len(path) == 1 else _part(kind, path[-2])
    return {item.alias or name for name, item in part.model_fields.items()}


def _part(kind: type[Entry], name: str) -> type[Entry]:
    """Return the class of a part of the settings; the whole's where it is no part."""
    known: list[Any] = [kind.model_fields[name].annotation] if name in kind.model_fields else []
    while known:
        found = known.pop()
        if isinstance(found, type) and issubclass(found, Entry):
            return found
        known.extend(getattr(found, "__args__", ()))
    return kind
