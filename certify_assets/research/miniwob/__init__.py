"""MiniWoB++ runs of scripted agents in a real Chromium: the generator of the embedded corpora.

``generate`` is the one entry; ``python -m certify_assets.research.miniwob --help`` calls it from a
shell. No task is known whose runs do not repeat for a seed: ``--compare`` of two generations names
them (2,000 runs generated twice, by two workers and by one, were the same).
"""

from __future__ import annotations

from certify_assets.research.miniwob.browser import list_tasks
from certify_assets.research.miniwob.generate import CORPORA, Generated, generate, read_episodes

__all__ = ["CORPORA", "Generated", "generate", "list_tasks", "read_episodes"]
