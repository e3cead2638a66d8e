"""A server whose answers hold no verdict is named, and closes the gate of its own judge."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify_assets_tests.builders import write_runs
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.judges.endpoint.faulty_server import (
    Action,
    chat_body,
    faulty_server,
    text_of,
)


def _answer(payload: dict[str, Any], times: int) -> Action:
    """Give no verdict as one model; as the other the right one, which one vote of five lacks."""
    if payload["model"] == "none" or payload["seed"] == 42:
        return Action(chat_body("<b>pass\x1b", model=payload["model"]))
    done = any(word in text_of(payload) for word in ("confirmed", "asked for", "sorted now"))
    verdict = f"VERDICT: {'SUCCESS' if done else 'FAIL'}"
    return Action(chat_body(verdict, model=payload["model"]))


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # the definitions of a process are of one data root, and other tests have others
    command = [sys.executable, "-m", "certify_assets.cli", "run", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.smoke
def test_no_answer_could_be_read(tmp_path: Path, call: Call) -> None:
    runs = write_runs(tmp_path / "runs.jsonl", tasks=90, attempts=3)
    root, where = tmp_path / "root", f"--root {tmp_path / 'root'}"
    call(f"corpus import {runs} --name c {where}")
    with faulty_server(_answer) as server:
        entries = [
            {"name": f"my_{model}", "url": server.url, "model": model, "asking": "sc_5"}
            for model in ("none", "some")
        ]
        (root / "judges.yaml").write_text(yaml.safe_dump({"judges": entries}), "utf-8")
        named = _run("c", "--judge", "my_none", "--judge", "my_some", "--root", str(root))
        every = _run("c", "--root", str(root), "--json")
    said = "my_none: 0 of 1005 answers could be read, the first: '<b>pass\\x1b'; see asking: cot."
    assert named.returncode == 3 and said.removeprefix("my_none: ") in " ".join(
        named.stderr.split()
    )
    printed = " ".join(named.stdout.split())
    assert said in printed
    assert "my_some: 804 of 1005 answers could be read (parse rate 80.0 %)." in printed
    # without names all judges open the gate, and the one that could not be read is named
    unread = {
        judge["judge"]: judge["unread"]
        for judge in json.loads(every.stdout)["corpora"][0]["judges"]
    }
    assert every.returncode == 0 and said == f"my_none: {unread['my_none']}"
    page = (root / "pages/judges/my_none/c/page.html").read_text("utf-8")
    assert "No run has a score." in page and "0 runs of 0 tasks" not in page
    assert "&lt;b&gt;pass" in page and "<b>pass" not in page
