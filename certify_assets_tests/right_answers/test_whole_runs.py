"""People read whole runs: only judges cut, and their pages say so."""

import json
import re
from pathlib import Path

from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.review_client import Client, served
from certify_assets_tests.corpora.formats.terminal_bench import PROMPT, put, trial
from certify_assets_tests.operations_builders import deliver

DECISIVE = "the order was refused by the bank"
LONG = "a line of the log\n" * 1400 + DECISIVE + "\nanother line" * 1900


def stored_steps(root: Path, corpus: str) -> list[list[tuple[str, str]]]:
    frame = Store(str(root)).read_table(f"corpora/{corpus}/trajectories.parquet")
    return [[(step["action"], step["observation"]) for step in steps] for steps in frame["steps"]]


def test_an_import_keeps_the_whole_text(call: Call, tmp_path: Path) -> None:
    assert len(LONG) > 49_000
    table = tmp_path / "runs.jsonl"
    run = {"task_id": "t", "outcome": 1, "steps": [["act", LONG], ["x" * 20_000_001, ""]]}
    table.write_text(json.dumps(run) + "\n", "utf-8")
    answer = call(f"corpus import {table} --name c --root {tmp_path}/root --json")
    assert "texts longer than 20,000,000 characters" in str(answer.json["notes"])
    ((first, second),) = stored_steps(tmp_path / "root", "c")
    assert first == ("act", LONG)
    assert "[1 characters cut]" in second[0]


def test_reviewers_read_what_the_judge_cuts(call: Call, operated: Store, tmp_path: Path) -> None:
    root = ("--root", operated.root)

    def change(record: dict[str, object]) -> None:
        record["steps"] = [["look()", LONG]]

    new = deliver(tmp_path / "new.jsonl", tasks=1, attempts=1, change=change)
    rates = ("--audit-rate", 1)
    assert call("ops", "deploy", "c", "lexical", *rates, *root).code == 0
    assert call("ops", "ingest", "c", new, *root).code == 0
    studio = tmp_path / "tasks.json"
    assert call("review", "export", "c", "--label-studio", studio, *root).code == 0
    (task,) = json.loads(studio.read_text("utf-8"))
    assert DECISIVE in task["data"]["run"] and "characters cut" not in task["data"]["run"]
    with served(operated, "--reviewer", "Ann") as server:
        client = Client(server.url, links=server.links)
        link = re.search(r'href="(text\?run=[^"]+)"', client.enter("Ann").text)
        assert link is not None
        whole = client.ask("GET", f"/{link[1]}").text
    assert LONG in whole and "characters cut" not in whole
    judge = json.loads(operated.read_bytes("judges/lexical/c/adapter.json"))
    assert judge["reads"] == {"chars": 6000, "step_chars": 1200}


TASK = (
    "Write a small server that answers on port 5000 and returns the state of the chain as JSON, "
    "with an error key where something fails. Install what it needs."
)
TYPED = f"{PROMPT}mini -m maker/model -t '{TASK}\n>\n> Take care.' -y"
SPOKEN = f"""System:
You are a helpful assistant.

User:
Please solve this issue: {TASK}

{"─" * 160}
mini-swe-agent (step 1, $0.01):
THOUGHT: I look {"first " * 30}at what is there.

User:
<output>
mini-swe-agent (step 7, $0.01):
</output>

{"─" * 160}
mini-swe-agent (step 2, $0.02):
It is done.

User:

Saved the run.
"""


def screen(text: str) -> str:
    """Break lines as a terminal of 160 columns does."""
    return "\n".join(
        line[start : start + 160].rstrip()
        for line in text.split("\n")
        for start in range(0, max(1, len(line)), 160)
    )


def imported(call: Call, path: Path, shown: str) -> list[tuple[str, str]]:
    record = trial("a.1-of-1", "serve", True, instruction=f"{TASK}\nTake care.")
    put(path / "runs" / "serve" / "a.1-of-1", record, {"panes/post-agent.txt": screen(shown)})
    root = ("--root", path / "root")
    assert call("corpus", "import", path / "runs", "--name", "c", *root).code == 0
    return stored_steps(path / "root", "c")[0]


def test_turns_of_a_terminal_have_their_speakers(call: Call, tmp_path: Path) -> None:
    steps = imported(call, tmp_path, f"{TYPED}\nWelcome.\n\n{SPOKEN}{PROMPT}\n")
    thought = f"THOUGHT: I look {'first ' * 30}at what is there."
    answer = "<output>\nmini-swe-agent (step 7, $0.01):\n</output>"
    assert steps == [(thought, answer), ("It is done.", "Saved the run.")]


def test_lines_that_a_terminal_broke_are_one(call: Call, tmp_path: Path) -> None:
    command, said = f"echo {'word ' * 60}end", "word " * 60 + "end"
    drawn = f"╭{'─' * 158}╮\n│{'x' * 158}│"
    shown = f"{TYPED}\nit ran\n{PROMPT}{command}\n{said}\n{drawn}\n{PROMPT}\n"
    # the harness's own command, which starts the agent, is no action
    assert imported(call, tmp_path, shown) == [("", "it ran"), (command, f"{said}\n{drawn}")]
