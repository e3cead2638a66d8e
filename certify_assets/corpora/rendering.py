"""The one text of a trajectory that judges read: instruction, then actions and observations."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from certify_assets.corpora.trajectory import Step, clean_text
from certify_assets.errors import require_whole
from certify_assets.files import canonical_json, sha256_bytes

if TYPE_CHECKING:
    import pandas as pd


# Only the instruction and the steps are rendered, so no reward, evaluator output or gold answer can
# be. Both are untrusted: headings start in the first column and every line of untrusted text is
# indented, so no text can pass for a heading; characters that hide or reorder text are written out
# as escapes, and chat markup is broken up.
RENDERER_VERSION = "certify_assets/renderer/1"

_INDENT = "  "
#: characters of a run, and of an action or observation, that a renderer keeps at least
LEAST_CHARS, LEAST_STEP_CHARS = 400, 40
#: longer than any run: nothing is cut
UNLIMITED = 10**9
_LINE_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# control characters but tab and newline, and the format characters that hide, join or reorder what
# a reader sees
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_NAMES = "s|bos|eos|pad|unk|start_of_turn|end_of_turn|think|tool_call|tool_response"
_TAG = re.compile(f"</?(?:{_NAMES})>")
_CHAT_MARKUP = re.compile(rf"<(?=\|)|(?<=\|)>|<(?=/?(?:{_NAMES})>)|\[(?=/?INST\])")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered trajectory and how many of its characters were cut to fit the budget."""

    text: str
    cut_chars: int

    @property
    def length(self) -> int:
        """Characters of the uncut rendering."""
        return len(self.text) + self.cut_chars

    def outline(self) -> Outline:
        """Return figures of the text without keeping it."""
        digest = hashlib.sha256(self.text.encode("utf-8")).digest()
        return Outline(digest, self.length, self.cut_chars)


class Outline(NamedTuple):
    """The figures of a rendered trajectory that a corpus profile needs."""

    # SHA-256 of the text
    digest: bytes
    length: int
    cut_chars: int


def defuse(text: str) -> str:
    """Make untrusted text safe to show, without invisible characters and chat markup."""
    if not text.replace("\n", "").replace("\t", "").isprintable():
        # nothing that these patterns look for is printable
        text = _LINE_BREAKS.sub("\n", clean_text(text))
        text = _UNSEEN.sub(lambda match: f"\\u{{{ord(match.group()):x}}}", text)
    if not ("<|" in text or "|>" in text or "INST]" in text or _TAG.search(text)):
        # most texts, found out in a tenth of the time of the pattern
        return text
    return _CHAT_MARKUP.sub(
        lambda match: " >" if match.group() == ">" else f"{match.group()} ", text
    )


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders trajectories within a budget of characters."""

    # what does not fit is cut from the middle of the steps
    budget_chars: int = 6000
    # longer actions and observations lose their middle
    action_chars: int = 1200
    observation_chars: int = 1200

    def __post_init__(self) -> None:
        require_whole(
            self,
            "the renderer's {name}",
            budget_chars=LEAST_CHARS,
            action_chars=LEAST_STEP_CHARS,
            observation_chars=LEAST_STEP_CHARS,
        )

    @property
    def sha256(self) -> str:
        """Hash of version and settings: texts of renderers with equal hashes are equal."""
        return sha256_bytes(canonical_json({"version": RENDERER_VERSION} | asdict(self)))

    def render(self, instruction: str, steps: Iterable[Step | Mapping[str, str]]) -> Rendered:
        """Render one trajectory as text of at most `budget_chars` characters."""
        task, cut = _excerpt(defuse(instruction).strip(), self.budget_chars // 3)
        parts: list[str] = []
        for number, step in enumerate(steps, 1):
            text, lost = self._step(number, step)
            parts.append(text)
            cut += lost
        head = f"TASK\n{_indented(task)}\n"
        body, lost = _cut_middle("".join(parts) or "NO STEPS\n", self.budget_chars - len(head))
        return Rendered(head + body, cut + lost)

    def _step(self, number: int, step: Step | Mapping[str, str]) -> tuple[str, int]:
        action, observation = (
            (step.action, step.observation)
            if isinstance(step, Step)
            else (step["action"], step["observation"])
        )
        text, cut = f"STEP {number}\n", 0
        for heading, content, limit in (
            ("ACTION", action, self.action_chars),
            ("OBSERVATION", observation, self.observation_chars),
        ):
            excerpt, lost = _excerpt(defuse(content or "").strip(), limit)
            cut += lost
            if excerpt:
                text += f"{heading}\n{_indented(excerpt)}\n"
        return text, cut


def render_frame(frame: pd.DataFrame, renderer: Renderer | None = None) -> list[Rendered]:
    """Render every row of a table of trajectories, in its order."""
    renderer = renderer or Renderer()
    columns: list[list[Any]] = [frame["instruction"].tolist(), frame["steps"].tolist()]
    return [
        renderer.render(instruction, steps) for instruction, steps in zip(*columns, strict=True)
    ]


def _indented(text: str) -> str:
    return _INDENT + text.replace("\n", f"\n{_INDENT}")


def _excerpt(text: str, limit: int) -> tuple[str, int]:
    """Keep the two ends of a text longer than `limit`."""
    if len(text) <= limit:
        return text, 0
    room = max(0, limit - len(_note(len(text))) - 2)
    cut = len(text) - room
    return f"{text[: room - room // 2]} {_note(cut)} {text[len(text) - room // 2 :]}", cut


def _cut_middle(body: str, limit: int) -> tuple[str, int]:
    """Cut one piece from the middle of the steps."""
    if len(body) <= limit:
        return body, 0
    room = max(0, limit - len(_note(len(body))) - 2 - len(_INDENT))
    start = len(body) - room // 2
    head, tail = body[: room - room // 2], body[start:]
    if body[start - 1] != "\n":
        tail = _INDENT + tail
    return f"{head}\n{_note(start - len(head))}\n{tail}", start - len(head)


def _note(cut: int) -> str:
    return f"[{cut} characters cut]"


def outlines(path: Path) -> list[Outline]:
    """Render every run of a corpus, in the order of the file, and keep the outlines."""
    from certify_assets.corpora.schema import read_runs

    render = Renderer().render
    return [render(run.instruction, run.steps).outline() for run in read_runs(path)]
