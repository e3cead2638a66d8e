"""Text of a terminal, plain or recorded, turned into steps: what was typed at the prompt and what came back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from certify_assets.corpora.formats.base import excerpt
from certify_assets.corpora.schema import Step

__all__ = ["cast_text", "plain_text", "steps_of_terminal"]

_ESCAPES = re.compile(
    "\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # window titles
    "|\x1b[P^_][^\x1b]*(?:\x1b\\\\)?"
    "|\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_BACKSPACE = "\b"
_PROMPT = re.compile(
    r"^(?:\([^()\n]{1,60}\) )?(?:[\w.-]+@[\w.-]+:[^\n#$]{0,200}|(?:ba)?sh-\d[\d.]{0,8})[#$][ \t]*(.*)$",
    re.MULTILINE,
)
_FURTHER_LINES = re.compile(r"(?:\n>[^\n]*)+")
_WAITING = re.compile(r"; tmux wait -S \w+")
_HOUSEKEEPING = re.compile(r"(?:clear|exit|asciinema rec\b.*)?$")
_SETUP = re.compile(r"(?:source|bash|\.) /installed-agent/")
_TESTS = re.compile(r"/tests/run-tests\.sh|\btests\.cast\b")
_CHUNK = 1000


def plain_text(recorded: str) -> str:
    """Remove what steers a terminal: escape sequences, text that was overwritten or taken back."""
    lines = _ESCAPES.sub("", recorded).split("\n")
    return "\n".join(_typed(line.rstrip("\r").rpartition("\r")[2]) for line in lines)


def cast_text(data: str) -> str | None:
    """Return the output of an asciicast recording (a JSON header, then lines of time, kind and text); None where it is none."""
    lines = data.split("\n")
    if not isinstance(_json(lines[0]), dict):
        return None
    return "".join(_output(_json(line)) for line in lines[1:])


def steps_of_terminal(text: str) -> tuple[Step, ...]:
    """Turn the text of a terminal into steps, one for every command typed at a prompt.

    The installation of the agent by the harness is left out unless nothing else happened. Long output is one step for every thousand
    characters, so that a judge's budget is not spent on its first and last lines.
    """
    commands = [
        (command, output)
        for command, output in _commands(_WAITING.sub("", text))
        if command or output
    ]
    own = [pair for pair in commands if not _SETUP.match(pair[0])]
    if not any(output for _, output in own):
        own = [pair for pair in commands if pair[1]]
    return tuple(step for command, output in own for step in _steps(command, output))


def _commands(text: str) -> Iterator[tuple[str, str]]:
    prompts = list(_PROMPT.finditer(text))
    ends = [*(prompt.start() for prompt in prompts), len(text)]
    yield "", text[: ends[0]].strip()
    for prompt, end in zip(prompts, ends[1:], strict=True):
        further = _FURTHER_LINES.match(text, prompt.end(), end)
        typed = prompt[1] + (further[0] if further else "")
        command = typed.strip()
        # what the harness types to run its tests ends what the agent did
        if _TESTS.search(command):
            return
        output = text[prompt.end() + len(further[0] if further else "") : end].strip()
        yield ("" if _HOUSEKEEPING.match(command) else command), output


def _steps(command: str, output: str) -> Iterator[Step]:
    chunks = _chunks(excerpt(output)) or [""]
    yield Step(excerpt(command), chunks[0])
    for chunk in chunks[1:]:
        yield Step("", chunk)


def _chunks(text: str) -> list[str]:
    """Cut a text at line ends into pieces of at most a thousand characters, or where a line is longer, of that line."""
    chunks: list[str] = []
    for line in text.splitlines(keepends=True):
        if chunks and len(chunks[-1]) + len(line) <= _CHUNK:
            chunks[-1] += line
        else:
            chunks.append(line)
    return [chunk.rstrip("\n") for chunk in chunks if chunk.strip()]


def _typed(line: str) -> str:
    if _BACKSPACE not in line:
        return line
    kept: list[str] = []
    for character in line:
        if character != _BACKSPACE:
            kept.append(character)
        elif kept:
            kept.pop()
    return "".join(kept)


def _json(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _output(event: object) -> str:
    is_output = (
        isinstance(event, list)
        and len(event) == 3
        and event[1] == "o"
        and isinstance(event[2], str)
    )
    return str(event[2]) if is_output and isinstance(event, list) else ""
