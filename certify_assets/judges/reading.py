"""What a judge reads of a run: characters of its text, tokens of its prompt, and the question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from certify_assets.corpora.rendering import UNLIMITED, Renderer
from certify_assets.errors import IntegrityError
from certify_assets.judges.lm.compact import CONTEXT
from certify_assets.judges.lm.prompt import AuditorPrompt

_WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class JudgeInput:
    """What a judge reads of a run; by default what judges of words read."""

    # of a run, and of each action and observation; None is the whole of it
    chars: int | None = 6000
    step_chars: int | None = 1200
    # of a language model's prompt; None is its context, at most 5,120
    tokens: int | None = None
    prompt: AuditorPrompt = field(default_factory=AuditorPrompt)

    @property
    def renderer(self) -> Renderer:
        """Return the renderer of these characters."""
        chars, step = (
            UNLIMITED if limit is None else limit for limit in (self.chars, self.step_chars)
        )
        return Renderer(chars, step, step)

    def to_dict(self) -> dict[str, Any]:
        """Return the document: tokens and prompt only where they are not the default."""
        characters = {"chars": self.chars, "step_chars": self.step_chars}
        return {
            **{name: limit or _WHOLE for name, limit in characters.items()},
            **({"tokens": self.tokens} if self.tokens else {}),
            **({"prompt": self.prompt.to_dict()} if self.prompt != AuditorPrompt() else {}),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> JudgeInput:
        """Read the document of a stored judge."""
        try:
            given = {
                name: None if value == _WHOLE else value
                for name, value in document.items()
                if name != "prompt"
            }
            return cls(**given, prompt=AuditorPrompt(**document.get("prompt", {})))
        except (TypeError, AttributeError):
            raise IntegrityError(
                "the record of a judge does not say what it reads; train the judge again."
            ) from None

    def describe(self) -> str:
        """Return what is read, in a few words."""
        run = "whole runs" if self.chars is None else f"{self.chars:,} characters of a run"
        step = "" if self.step_chars is None else f", {self.step_chars:,} of a step's part"
        tokens = f", {self.tokens:,} tokens of a prompt" if self.tokens else ""
        return f"{run}{step}{tokens}"


WHOLE = JudgeInput(chars=None, step_chars=None)
#: what judges of words read by default: with whole runs they rank no better (docs/reading.md)
LEXICAL = JudgeInput()
#: what the compact model reads: the tokens that it was pretrained on
COMPACT = JudgeInput(tokens=CONTEXT)
#: what a registration does not name
USUAL = (LEXICAL, COMPACT)
