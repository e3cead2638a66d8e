"""The compact model: at most three million parameters, shipped with the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from certify_assets.judges.lm.contract import LanguageModel, load_language_model

__all__ = ["CONTEXT", "compact_model_path", "load_compact"]

#: tokens of a prompt that the model was pretrained on; beyond, nothing is known of it
CONTEXT = 768


def compact_model_path() -> Path:
    """Return the folder of the compact model that comes with the package."""
    return Path(__file__).with_name("weights")


def load_compact() -> LanguageModel:
    """Load the compact model; its weights are stored in bfloat16, which float32 holds exactly."""
    return replace(load_language_model(compact_model_path()), source="compact")
