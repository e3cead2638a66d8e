"""MiniWoB++ runs of scripted agents in a real Chromium: the generator of embedded corpora."""

from __future__ import annotations

from certify_assets.research.miniwob.browser import list_tasks
from certify_assets.research.miniwob.generate import (
    CORPORA,
    differing_tasks,
    generate,
    read_episodes,
)

__all__ = ["CORPORA", "differing_tasks", "generate", "list_tasks", "read_episodes"]
