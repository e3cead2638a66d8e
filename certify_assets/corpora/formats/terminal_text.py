"""The text of a terminal as steps: commands typed at a prompt, or the turns of an agent."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator

from certify_assets.corpora.formats.messages import Conversation
from certify_assets.corpora.formats.records import text_of
from certify_assets.corpora.trajectory import Step

_ESCAPES = re.compile(
    "\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # window titles
    "|\x1b[P^_][^\x1b]*(?:\x1b\\\\)?"
    "|\x1b\\[[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_BACKSPACE = "\b"
_PROMPT = re.compile(
    r"^(?:\([^()\n]{1,60}\) )?(?:[\w.-]+@[\w.-]+:[^\n#$]{0,200}|"
    r"(?:ba)?sh-\d[\d.]{0,8})[#$][ \t]*(.*)$",
    re.MULTILINE,
)
_BEGINNING = re.compile(rf"> |>$|{_PROMPT.pattern}")
_FURTHER_LINES = re.compile(r"(?:\n>[^\n]*)+")
_WAITING = re.compile(r"; tmux wait -S \w+")
_HOUSEKEEPING = re.compile(r"(?:clear|exit|asciinema rec\b.*)?$")
_SETUP = re.compile(r"(?:source|bash|\.) /installed-agent/")
_TESTS = re.compile(r"/tests/run-tests\.sh|\btests\.cast\b")
_CHUNK = 1000
#: columns of the terminal in which the harness runs an agent
_COLUMNS = 160
# borders and rules fill a line without being continued in the next
_BOX = re.compile("[\u2500-\u259f]")
_RULE = re.compile("^\u2500{20,}$\n?", re.MULTILINE)
# how mini-swe-agent names who speaks
_SPEAKER = re.compile(r"^(?:(System|User)|mini-swe-agent \(step (\d+), \$[\d.]+\)):$", re.MULTILINE)
_LEAST_LETTERS = 20


def plain_text(recorded: str) -> str:
    """Remove terminal control: escape sequences, and text that was overwritten or deleted."""
    lines = _ESCAPES.sub("", recorded).split("\n")
    return "\n".join(_typed(line.rstrip("\r").rpartition("\r")[2]) for line in lines)


def cast_text(data: str) -> str:
    """Return the output of an asciicast recording: a header, then lines [time, "o", text]."""
    events = map(_json, data.split("\n")[1:])
    return "".join(
        text_of(event[2])
        for event in events
        if isinstance(event, list) and len(event) == 3 and event[1] == "o"
    )


def unwrapped(screen: str) -> str:
    """Join the lines that the harness's terminal wrapped."""
    lines: list[str] = []
    room: int | None = None
    for line in screen.split("\n"):
        if room is None or not line.strip() or _BEGINNING.match(line):
            lines.append(line)
        else:
            # a space at the end of a line is not on the screen
            lines[-1] += " " * room + line
        room = _COLUMNS - _width(line)
        if room not in (0, 1) or _BOX.match(line[-1]):
            room = None
    return "\n".join(lines)


def _width(line: str) -> int:
    """Return the width of a line in columns."""
    if line.isascii():
        return len(line)
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else not unicodedata.combining(sign)
        for sign in line
    )


def steps_of_terminal(text: str, instruction: str = "") -> tuple[Step, ...]:
    """Turn the text of a terminal into steps: commands at a prompt, or an agent's turns.

    A first command that holds the `instruction` is the harness's start of the agent.
    """
    commands = [
        (command, output)
        for command, output in _commands(_WAITING.sub("", text))
        if command or output
    ]
    own = [pair for pair in commands if not _SETUP.match(pair[0])]
    if not any(output for _, output in own):
        own = [pair for pair in commands if pair[1]]
    # what is typed before the shell is ready is shown in another order, from the second line on
    task = _letters(instruction.strip().partition("\n")[0])
    first = next((place for place, (command, _) in enumerate(own) if command), None)
    if first is not None and len(task) >= _LEAST_LETTERS and task in _letters(own[first][0]):
        own[first] = ("", own[first][1])
    return tuple(step for command, output in own for step in _steps_of_command(command, output))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


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


def _steps_of_command(command: str, output: str) -> Iterator[Step]:
    if turns := _turns(output):
        yield from turns
        return
    chunks = _chunks(output) or [""]
    if command or chunks[0]:
        yield Step(command, chunks[0])
    for chunk in chunks[1:]:
        yield Step("", chunk)


def _turns(output: str) -> tuple[Step, ...]:
    """Read the console of an agent that names the speakers; empty for any other."""
    spoken = _RULE.sub("", output)
    headings = list(_headings(spoken))
    first = next((int(found[2]) for found in headings if found[2]), 0)
    if not first:
        return ()
    chat = Conversation()
    if first > 1:
        # the beginning has scrolled off the screen
        chat.see(spoken[: headings[0].start()].strip())
    ends = [*(found.start() for found in headings[1:]), len(spoken)]
    for found, end in zip(headings, ends, strict=True):
        text = spoken[found.end() : end].strip()
        if found[2]:
            chat.act(text)
        elif chat:
            # what comes before is the agent's prompt
            chat.see(text)
    return chat.steps()


def _headings(spoken: str) -> Iterator[re.Match[str]]:
    # what an agent prints may look like a heading: turns are numbered, and answers are between
    number, speaker = 0, ""
    for found in _SPEAKER.finditer(spoken):
        turn, said = int(found[2] or 0), found[1] or "agent"
        if said != speaker and (not turn or not number or turn == number + 1):
            number, speaker = turn or number, said
            yield found


def _chunks(text: str) -> list[str]:
    """Cut a text at line ends into pieces of a thousand characters, or one longer line."""
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
