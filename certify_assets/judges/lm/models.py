"""The language models that are known by name: their weights and suitable settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from certify_assets.errors import InputError
from certify_assets.judges.lm import smollm2
from certify_assets.judges.lm.compact import CONTEXT, compact_model_path
from certify_assets.judges.lm.language_model import is_folder
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.lm.recipe import Recipe
from certify_assets.judges.reading import COMPACT, WHOLE, JudgeInput

#: a commit of a hub repository
COMMIT = "[0-9a-f]{40}"

#: what SmolLM2 reads: as many tokens as two cores have time for, and verdicts of one token each
SMOLLM2 = JudgeInput(
    tokens=512,
    prompt=AuditorPrompt(
        closing="END OF RUN\nWas the task done? Answer with one word, yes or no.",
        success=" yes",
        fail=" no",
    ),
)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Settings of a known language model; the defaults suit an unknown one."""

    # what it reads, and how it is trained, where nothing else is written
    reading: JudgeInput = WHOLE
    recipe: Recipe = field(default_factory=Recipe)
    # finds the folder of its weights; without it the name is a folder's or a hub's
    folder: Callable[[], Path] | None = None
    # that scores carry; by default the hash of its files, or the commit
    revision: str | None = None
    # tokens beyond which nothing is known of it; by default what its configuration declares
    context: int | None = None
    # stays on the CPU in float32 and padded rows: the same bits on every machine
    exact: bool = False
    # two cores train it
    small: bool = False
    # the package builds it and brings its weights
    shipped: bool = False

    def path(self, name: str) -> str:
        """Return the folder or hub name of the model's files."""
        return str(self.folder()) if self.folder else name


def known_model(name: str) -> KnownModel:
    """Return the settings of a model by its name in a judge's configuration."""
    return _KNOWN.get(name, KnownModel())


def placed(name: str, base: Path) -> str:
    """Return the name of a model, as an absolute path if it is a folder below the given one."""
    relative = bool(name) and name not in _KNOWN and not Path(name).is_absolute()
    if relative and (name.startswith(".") or is_folder(str(base / name))):
        return os.path.normpath(base.absolute() / name)
    return name


def require_commit(name: str, revision: str | None) -> None:
    """Refuse a revision that can move, or one for a model without revisions."""
    if revision is None:
        return
    if name in _KNOWN or is_folder(name):
        what = "known by the hash of its files" if name in _KNOWN else "a folder"
        raise InputError(
            f"the revision is {revision!r}, and the model {name} is {what} and has none; remove "
            "the revision."
        )
    if not re.fullmatch(COMMIT, revision):
        raise InputError(
            f"the revision of {name} is {revision!r}; give the commit of the hub repository, 40 "
            "hexadecimal digits, as a branch or a tag can move."
        )


_KNOWN = {
    "compact": KnownModel(
        reading=COMPACT,
        # the paper's rates would not move models as small as these; a tenth for GRPO is its ratio
        recipe=Recipe(
            # better than two on tasks of SFT that were held out
            epochs=4.0,
            learning_rate=2e-3,
            grpo_learning_rate=2e-4,
            grpo_steps=(30, 60),
            checkpoint_steps=30,
        ),
        folder=compact_model_path,
        context=CONTEXT,
        exact=True,
        small=True,
        shipped=True,
    ),
    smollm2.NAME: KnownModel(
        reading=SMOLLM2,
        # 800 readings of 512 tokens are what one core trains on in an hour in float32
        recipe=Recipe(
            runs=400,
            epochs=2.0,
            learning_rate=2e-4,
            grpo_learning_rate=2e-5,
            # four arms of 60 prompts, so that they are trained and scored in an hour as well
            grpo_steps=(10,),
            checkpoint_steps=10,
        ),
        folder=smollm2.smollm2_path,
        revision=smollm2.SHA256,
        small=True,
    ),
}
