"""Terminal-Bench runs (`tb run`): a folder a trial with results.json and its terminal."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from certify_assets.corpora.formats.base import (
    Draft,
    Drafts,
    Reading,
    contents,
    corpus_format,
    is_json_named,
    json_document,
)
from certify_assets.corpora.formats.files import BrokenFileError, FileSet, SourceFile
from certify_assets.corpora.formats.records import Record
from certify_assets.corpora.formats.texts import Conversation, mapping, name_of, text_of
from certify_assets.corpora.schema import Step

# in the order of preference; each is gone through on its own, so that no two texts of a trial are
# held at once
_TERMINALS = ("panes/post-agent.txt", "sessions/agent.log", "sessions/agent.cast")
# post-test pane, recordings of tests and commands.txt, whose last lines start the tests, are never
# opened
_KNOWN = frozenset({"post-agent.txt", "pre-agent.txt", "post-test.txt", "commands.txt"}) | {
    f"{name}.{kind}" for name in ("agent", "tests") for kind in ("log", "cast")
}
# either names a result of one trial; a trial that was not checked has no is_resolved
_OF_A_TRIAL = frozenset({"trial_name", "is_resolved"})
_SUBMISSION = re.compile(r"\d{8}_(.+)")
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


class _Trial(NamedTuple):
    file: str
    row: int
    identity: str | None
    name: str
    task: str
    instruction: str
    resolved: Any

    @property
    def where(self) -> str:
        return f"{self.file} row {self.row}"


@dataclass
class _Outcomes:
    """All trials: by their folder, and those that only their run lists, by name."""

    by_folder: dict[str, _Trial] = field(default_factory=dict)
    by_run: dict[tuple[str, str], _Trial] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    identities: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, set[str]] = field(default_factory=dict)

    def of(self, folder: str) -> _Trial | None:
        if folder in self.by_folder:
            return self.by_folder[folder]
        name = PurePosixPath(folder).name
        return next(
            (
                self.by_run[str(run), name]
                for run in PurePosixPath(folder).parents
                if (str(run), name) in self.by_run
            ),
            None,
        )

    def copies(self, trial: _Trial) -> str | None:
        """Return where a trial of the same id was, and remember the first of them."""
        where = (
            self.identities.setdefault(trial.identity, trial.where)
            if trial.identity
            else trial.where
        )
        return None if where == trial.where else where

    def all(self) -> Iterator[tuple[str, _Trial]]:
        """Go through the trials, each with its folder."""
        listed = {
            (str(run), trial.name)
            for folder, trial in self.by_folder.items()
            for run in PurePosixPath(folder).parents
        }
        yield from self.by_folder.items()
        for (run, name), trial in self.by_run.items():
            if (run, name) not in listed:
                yield f"{run}/{trial.task}/{name}", trial


@corpus_format(
    title="Terminal-Bench runs (results.json of trials with their panes or recordings)",
    suffixes=(".json", ".txt", ".log", ".cast"),
    domain="shell",
    fits=lambda file: is_json_named(file, "results.json", (b'"task_id"', b'"trial_name"')),
    label_source="tests of the task, run by the harness in the container after the agent",
    options={
        "agent": "agent of all runs; read from the path or run_metadata.json where it is not given"
    },
)
def terminal_bench(files: FileSet, reading: Reading) -> Drafts:
    """Read trials with their terminal recordings."""
    outcomes = _outcomes(files, reading)
    for kind in _TERMINALS:
        # an archive is unpacked again for every kind
        if outcomes.recorded.get(kind, set()) <= outcomes.used:
            continue
        for file in files.matching(f"*/{kind}", f"*/{kind}.gz"):
            folder = str(PurePosixPath(file.plain_name).parent.parent)
            if folder not in outcomes.used:
                yield from _run(file, folder, outcomes, reading)
    for folder, trial in outcomes.all():
        if folder not in outcomes.used and trial.where not in outcomes.used:
            _drop_bare(trial, outcomes, reading)


def _drop_bare(trial: _Trial, outcomes: _Outcomes, reading: Reading) -> None:
    if original := outcomes.copies(trial):
        reading.drop("duplicate", f"{trial.where} is a copy of {original}: it has its id.")
    elif trial.resolved is None and not reading.options.get("keep_unlabelled"):
        reading.drop(
            "no_label",
            f"{trial.where} has no outcome and no terminal: the trial {trial.name} ended "
            "before its tests.",
        )
    else:
        outcome = "no outcome, and" if trial.resolved is None else "an outcome, but"
        reading.drop(
            "no_trajectory",
            f"{trial.where} has {outcome} nothing was recorded of the trial {trial.name}.",
        )


def _run(file: SourceFile, folder: str, outcomes: _Outcomes, reading: Reading) -> Drafts:
    trial = outcomes.of(folder)
    if trial is None:
        reading.drop("no_label", f"{file.name} belongs to no trial that a results.json names.")
        outcomes.used.add(folder)
        return
    steps = _steps(file, trial.instruction, reading)
    if not steps:
        return
    outcomes.used |= {folder, trial.where}
    if original := outcomes.copies(trial):
        reading.drop("duplicate", f"{trial.where} is a copy of {original}: it has its id.")
        return
    yield Draft(
        task_id=trial.task,
        agent=reading.options.get("agent") or _agent(folder, outcomes.agents),
        instruction=trial.instruction,
        steps=steps,
        outcome=trial.resolved,
        outcome_name="is_resolved",
        origin=reading.origin(file),
        trajectory_id=trial.identity,
    )


def _steps(file: SourceFile, instruction: str, reading: Reading) -> tuple[Step, ...]:
    try:
        text: str | None = file.read().decode("utf-8", "replace")
    except BrokenFileError as error:
        reading.drop("file_unreadable", str(error))
        return ()
    if file.suffix == ".cast":
        text = cast_text(text or "")
    if text is None:
        reading.drop(
            "file_unreadable",
            f"{file.name} is not an asciicast recording: its first line is not a JSON object.",
        )
    plain = plain_text(text or "")
    # a pane is the screen: its long lines are broken at the width of the terminal
    return steps_of_terminal(unwrapped(plain) if file.suffix == ".txt" else plain, instruction)


def _outcomes(files: FileSet, reading: Reading) -> _Outcomes:
    outcomes = _Outcomes()
    for file in files:
        path = PurePosixPath(file.plain_name)
        name, kind = path.name, "/".join(path.parts[-2:])
        if kind in _TERMINALS:
            outcomes.recorded.setdefault(kind, set()).add(str(path.parent.parent))
        elif name in ("results.json", "run_metadata.json"):
            for _, data in contents([file], reading):
                _take(file, data, outcomes, reading)
        elif name not in _KNOWN:
            reading.other(file, "is not a file of a Terminal-Bench trial.")
    return outcomes


def _take(file: SourceFile, data: bytes, outcomes: _Outcomes, reading: Reading) -> None:
    folder = str(PurePosixPath(file.plain_name).parent)
    if (document := json_document(file, data, reading)) is None:
        return
    if PurePosixPath(file.plain_name).name == "run_metadata.json":
        outcomes.agents[folder] = _named(mapping(document))
    elif isinstance(mapping(document).get("results"), list):
        reading.sha256(file)
        for row, record in enumerate(document["results"], 1):
            if trial := _trial(file, row, record, reading):
                outcomes.by_run[folder, trial.name] = trial
    elif _OF_A_TRIAL & mapping(document).keys():
        reading.sha256(file)
        if trial := _trial(file, 1, document, reading):
            outcomes.by_folder[folder] = trial
    else:
        reading.other(
            file, "is not a result of Terminal-Bench: it has neither trial_name nor results."
        )


def _trial(file: SourceFile, row: int, record: Any, reading: Reading) -> _Trial | None:
    known = mapping(record)
    name, task = known.get("trial_name"), name_of(known.get("task_id"))
    if task is None or not isinstance(name, str):
        reading.unusable(f"{file.name} row {row}", "it lacks task_id or trial_name")
        return None
    return _Trial(
        file=file.name,
        row=row,
        identity=name_of(known.get("id")),
        name=name,
        task=task,
        instruction=text_of(known.get("instruction")),
        resolved=known.get("is_resolved"),
    )


def _named(metadata: Record) -> str:
    parts = (text_of(metadata.get(key)) for key in ("agent_name", "model_name"))
    return "_".join(part.replace("/", "-") for part in parts if part)


def _agent(folder: str, agents: Mapping[str, str]) -> str:
    """Name the agent by its submission, <date>_<agent>_<model>, or by the metadata of the run."""
    for parent in PurePosixPath(folder).parents:
        if agents.get(str(parent)) and not any(
            _SUBMISSION.fullmatch(part) for part in parent.parts
        ):
            return agents[str(parent)]
        if match := _SUBMISSION.fullmatch(parent.name):
            return match[1]
    return "unknown"


def plain_text(recorded: str) -> str:
    """Remove what steers a terminal: escape sequences, text that was overwritten or taken back."""
    lines = _ESCAPES.sub("", recorded).split("\n")
    return "\n".join(_typed(line.rstrip("\r").rpartition("\r")[2]) for line in lines)


def cast_text(data: str) -> str | None:
    """Return the output of an asciicast recording."""
    lines = data.split("\n")
    if not isinstance(_json(lines[0]), dict):
        return None
    return "".join(_output(_json(line)) for line in lines[1:])


def unwrapped(screen: str, columns: int = _COLUMNS) -> str:
    """Join the lines that a terminal of so many columns broke."""
    lines: list[str] = []
    room: int | None = None
    for line in screen.split("\n"):
        if room is None or not line.strip() or _BEGINNING.match(line):
            lines.append(line)
        else:
            # a space at the end of a line is not on the screen
            lines[-1] += " " * room + line
        room = columns - _width(line)
        if room not in (0, 1) or _BOX.match(line[-1]):
            room = None
    return "\n".join(lines)


def _width(line: str) -> int:
    """Return the columns that a line takes."""
    if line.isascii():
        return len(line)
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else not unicodedata.combining(sign)
        for sign in line
    )


def steps_of_terminal(text: str, instruction: str = "") -> tuple[Step, ...]:
    """Turn the text of a terminal into steps: what was typed at a prompt, or an agent's turns.

    A first command that holds the `instruction` is the harness's, which starts the agent.
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
    """Read the console of an agent that names who speaks; nothing of any other."""
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


def _output(event: object) -> str:
    is_output = isinstance(event, list) and len(event) == 3 and event[1] == "o"
    return text_of(event[2]) if is_output and isinstance(event, list) else ""
