"""How much a judge reads of a run, in characters and tokens, and the question it is asked."""

from __future__ import annotations

from pydantic import SerializerFunctionWrapHandler, model_serializer

from certify_assets.corpora.rendering import UNLIMITED, Renderer
from certify_assets.documents import Document, JsonObject
from certify_assets.errors import IntegrityError
from certify_assets.judges.lm.compact import CONTEXT
from certify_assets.judges.lm.prompt import AuditorPrompt

_UNSAID = {"tokens": None, "prompt": AuditorPrompt()}


class JudgeInput(Document):
    """How much a judge reads of a run; the defaults are those of judges of words."""

    TITLE = "reading of a judge"
    REFUSAL = IntegrityError

    # of a run, and of each action and observation; None is the whole of it
    chars: int | None = 6000
    step_chars: int | None = 1200
    # of a language model's prompt; None is its context, at most 5,120
    tokens: int | None = None
    prompt: AuditorPrompt = AuditorPrompt()

    @property
    def renderer(self) -> Renderer:
        """Return the renderer of these characters."""
        chars, step = (
            UNLIMITED if limit is None else limit for limit in (self.chars, self.step_chars)
        )
        return Renderer(chars, step, step)

    @model_serializer(mode="wrap")
    def _said(self, dump: SerializerFunctionWrapHandler) -> JsonObject:
        # tokens and prompt only where they are not the default
        usual = {name for name, value in _UNSAID.items() if getattr(self, name) == value}
        return {name: value for name, value in dump(self).items() if name not in usual}

    def describe(self) -> str:
        """Describe the reading in a few words."""
        run = "whole runs" if self.chars is None else f"{self.chars:,} characters of a run"
        step = "" if self.step_chars is None else f", {self.step_chars:,} of a step's part"
        tokens = f", {self.tokens:,} tokens of a prompt" if self.tokens else ""
        return f"{run}{step}{tokens}"


WHOLE = JudgeInput(chars=None, step_chars=None)
#: what judges of words read by default: with whole runs they rank no better
LEXICAL = JudgeInput()
#: what the compact model reads: the tokens that it was pretrained on
COMPACT = JudgeInput(tokens=CONTEXT)
#: what a registration does not name
USUAL = (LEXICAL, COMPACT)
