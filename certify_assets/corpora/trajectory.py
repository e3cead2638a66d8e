"""A trajectory in memory, and hashes of its texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from certify_assets.files import sha256_bytes
from certify_assets.names import plain_names

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACES: Final = b" \t\n\r\v\f"
# without signs of arithmetic: 3 - 1 and 3 + 1 are two tasks
_PUNCTUATION: Final = ".,;:!?…\"'`´()[]{}«»‹›“”„‘’‚¿¡"


def clean_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 does not allow, with the replacement character."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of an agent with its environment: an action, and the observation after it."""

    action: str
    observation: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt of one agent at one task."""

    corpus: str
    # the cluster: trajectories of a task are never treated as independent
    task_id: str
    # unique within the corpus
    trajectory_id: str
    agent: str
    # number among the agent's attempts at the task, from 0
    attempt: int
    instruction: str
    steps: tuple[Step, ...]
    # 1 = success, None = not labelled
    outcome: int | None
    # the file that it was read from, with its SHA-256 ("" where it was generated in place)
    source_file: str = ""
    source_sha256: str = ""


def trajectory_sha256(run: Trajectory) -> str:
    """Hash what identifies a run: task, agent and texts, but not its id, file and label."""
    steps = [[step.action, step.observation] for step in run.steps]
    content = [run.task_id, run.agent, run.instruction, steps]
    return sha256_bytes(json.dumps(content).encode("ascii"))


def letters_sha256(instruction: str, steps: Iterable[Sequence[str]]) -> str:
    """Hash the texts of a run without their spaces; empty for a run without texts."""
    # bytes.translate takes a tenth of the time of splitting into words, and every import pays it
    texts = [instruction, *(text for step in steps for text in step)]
    letters = [text.encode("utf-8", "surrogatepass").translate(None, _SPACES) for text in texts]
    return sha256_bytes(b"\0".join(letters)) if any(letters) else ""


# attempts at a task ask the same
@lru_cache(maxsize=1024)
def instruction_sha256(text: str) -> str:
    """Hash the words of an instruction; empty for one without words.

    Case, spaces, invisible characters, forms of Unicode and punctuation around words are ignored.
    """
    plain = plain_names([text])[0].casefold()
    words = [word for part in plain.split() if (word := part.strip(_PUNCTUATION))]
    return sha256_bytes(json.dumps(words).encode("ascii"))[:32] if words else ""
