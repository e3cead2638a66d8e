"""The compact model: at most three million parameters, shipped with the package."""

from __future__ import annotations

from pathlib import Path

#: tokens of a prompt that the model was pretrained on; beyond, nothing is known of it
CONTEXT = 768


def compact_model_path() -> Path:
    """Return the folder of the compact model that comes with the package."""
    return Path(__file__).with_name("weights")
