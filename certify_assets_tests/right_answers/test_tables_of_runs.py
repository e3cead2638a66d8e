"""What a table of runs holds in its columns of texts: chats are steps, blanks are nothing."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from certify_assets.corpora.formats import ImportedCorpus, import_corpus
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.paths import shared_data
from certify_assets_tests.tables.ways import file_of


def chat(number: int, parts: bool) -> list[dict[str, Any]]:
    """Write a chat as OpenAI does, its contents as texts or as lists of parts."""

    def content(words: str) -> Any:
        return [{"type": "text", "text": words}] if parts else words

    call = {"type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    return [
        {"role": "system", "content": content("Be helpful.")},
        {"role": "user", "content": content(f"question {number}")},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **call}]},
        {"role": "tool", "tool_call_id": "c", "content": content(f"seen {number}")},
        {"role": "assistant", "content": content(f"answer {number}")},
    ]


def items(number: int) -> list[dict[str, Any]]:
    """Write the same chat as items of OpenAI's Responses API."""

    def message(role: str, words: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "text", "text": words}]}

    return [
        message("system", "Be helpful."),
        message("user", f"question {number}"),
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": f"seen {number}"},
        message("assistant", f"answer {number}"),
    ]


def imported(call: Call, path: Path, *options: str) -> tuple[dict[str, Any], pd.DataFrame]:
    root = path.parent / "root"
    answer = call("corpus", "import", path, "--name", "c", "--root", root, "--json", *options)
    assert answer.code == 0, answer.err
    return answer.json, Store(str(root)).read_table("corpora/c/trajectories.parquet")


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("column", ["messages", "log"])
def test_lists_of_messages_are_read_as_steps(
    column: str, ending: str, parts: bool, call: Call, tmp_path: Path
) -> None:
    if ending == "csv" and column == "log":
        pytest.skip("a text in a column of texts is a text")
    rows = [
        {"task_id": f"t{n}", "outcome": n % 2, "agent": "a", column: chat(n, parts)}
        for n in range(4)
    ]
    path = tmp_path / f"runs.{ending}"
    if ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    elif ending == "csv":
        frame = pd.DataFrame(rows)
        frame.assign(messages=frame["messages"].map(json.dumps)).to_csv(path, index=False)
    else:
        pd.DataFrame(rows).to_parquet(path)
    options = [] if column == "messages" else ["--format", "table"]
    options += [] if column == "messages" else ["--option", 'columns={"text": "log"}']
    facts, runs = imported(call, path, *options)
    assert facts["trajectories"] == 4
    first = runs.sort_values("task_id").iloc[0]
    assert first["instruction"] == "question 0"
    said = str(first.to_dict())
    assert "look" in said and "tool: seen 0" in said and "answer 0" in said
    assert "Be helpful" not in said


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "parquet"])
def test_items_of_responses_are_the_same_chat(ending: str, tmp_path: Path) -> None:
    def read(chats: list[list[dict[str, Any]]], name: str) -> ImportedCorpus:
        frame = pd.DataFrame({"task_id": ["a", "b"], "outcome": [0, 1], "messages": chats})
        texts = frame.assign(messages=frame["messages"].map(json.dumps))
        file_of(texts if ending == "csv" else frame)(path := tmp_path / f"{name}.{ending}")
        return import_corpus(path, name="c")

    same = ["instruction", "steps"]
    plain = read([chat(0, False), chat(1, False)], "plain")
    found = read([items(0), items(1)], "items")
    assert found.frame[same].to_json() == plain.frame[same].to_json() and found.notes == plain.notes
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}]}
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    *asked, called, seen, answered = items(0)
    found = read([[*asked, thought, called, seen, hidden, answered], items(1)], "thoughts")
    assert found.frame["steps"][0][0] == {
        "action": 'I look.\nlook({"at": 1})',
        "observation": "tool: seen 0",
    }
    assert found.notes == {**plain.notes, "messages of another role left out": 1}


def test_blank_texts_are_no_runs(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    texts = ["did it", "did it again", "", "  \n", None]
    rows = [{"task_id": f"t{n}", "outcome": n % 2, "text": text} for n, text in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    facts, _ = imported(call, path)
    assert facts["trajectories"] == 2 and facts["dropped"] == {"no_trajectory": 3}


def test_reported_tables(call: Call, tmp_path: Path) -> None:
    folder = shared_data("reported")
    root = ["--root", tmp_path / "root", "--json"]
    found = call("corpus", "import", folder / "messages.jsonl", "--name", "chats", *root).json
    assert (found["trajectories"], found["dropped"]) == (60, {})
    found = call("corpus", "import", folder / "f13_blank.jsonl", "--name", "blank", *root).json
    assert (found["trajectories"], found["dropped"]) == (1, {"no_trajectory": 2})


def test_an_empty_chat_is_no_run(call: Call, tmp_path: Path) -> None:
    rows = [
        {"task_id": f"t{n}", "outcome": n % 2, "messages": chat(n, parts=False) * (n != 1)}
        for n in range(4)
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    facts, _ = imported(call, path)
    assert facts["trajectories"] == 3 and facts["dropped"] == {"no_trajectory": 1}


@pytest.mark.parametrize("role", ["assistant", "Assistant", "ai", "model", "agent", "nobody"])
def test_what_the_agent_said_is_kept_whatever_its_role_is_called(
    role: str, call: Call, tmp_path: Path
) -> None:
    rows = [
        {
            "task_id": f"t{n}",
            "outcome": n % 2,
            "instruction": "answer",
            "messages": [{"role": "user", "content": "q"}, {"role": role, "content": f"said {n}"}],
        }
        for n in range(4)
    ]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    if role == "nobody":
        refused = call(f"corpus import {path} --name c --root {tmp_path}/root")
        assert refused.code == 2 and "no message with the role assistant" in refused.err
    else:
        _, runs = imported(call, path)
        assert "said 3" in str(runs.loc[3].to_dict())
