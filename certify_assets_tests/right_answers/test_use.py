"""What a user meets at the first use: pages, names, titles."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pandas as pd

from certify_assets import certify
from certify_assets.storage.store import Store
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.corpora.builders import tau_record, write_json
from certify_assets_tests.paths import REPOSITORY
from certify_assets_tests.right_answers.importing import Import

SCORES = REPOSITORY / "docs/examples/scores.csv"


def _columns(row: str) -> int:
    spans = re.findall(r"<t[hd]\b(?:[^>]*?colspan=\"(\d+)\")?", row)
    return sum(int(span or 1) for span in spans)


def test_the_page_of_a_table_has_whole_rows_and_a_true_title(call: Call, tmp_path: Path) -> None:
    certificate, page = tmp_path / "c.json", tmp_path / "c.html"
    assert call(f"certificate {SCORES} --out {certificate}").code == 0
    assert call(f"report {certificate} {SCORES} --out {page}").code == 0
    html = page.read_text("utf-8")
    # nothing is released
    assert re.search(r"<h1>scores\.csv, auto-fail ≤ 10\s%</h1>", html)
    for table in re.findall(r"<table class=\"cards\">.*?</table>", html, re.DOTALL):
        head, *rows = map(_columns, re.findall(r"<tr\b.*?</tr>", table, re.DOTALL))
        assert rows == [head] * len(rows)


def test_a_name_cannot_turn_the_text_after_it(call: Call, tmp_path: Path) -> None:
    certificate, page = tmp_path / "c.json", tmp_path / "c.html"
    scores = tmp_path / "safe\u202etxt.csv"
    scores.write_bytes(Path(SCORES).read_bytes())
    call("certificate", scores, "--out", certificate)
    call("report", certificate, scores, "--out", page)
    html = page.read_text("utf-8")
    assert "safe\\u202etxt.csv" in html and "\u202e" not in html


def test_a_certificate_is_a_line_in_a_terminal() -> None:
    found = certify(pd.read_csv(SCORES), side="reject")
    assert repr(found) == "<certificate: 55.8 % auto-fail at ≤ 0.2722>"
    released = certify(pd.read_csv(SCORES), side="release")
    assert repr(released) == "<certificate: no auto-pass with an error of at most 10 %>"


def test_an_agent_that_only_the_file_names_is_said(imported: Import, tmp_path: Path) -> None:
    path = write_json(tmp_path / "week.json", [tau_record()])
    document = imported(path).json
    said = "agent 'week', from the file name (--option agent=NAME says another)"
    assert document["agents"] == {"week": 1} and said in document["read_as"][0]
    named = imported(path, "--option", "agent=gpt-4o").json
    assert named["agents"] == {"gpt-4o": 1} and named["read_as"] == []


def test_an_empty_inbox_and_a_draw_are_one_line(call: Call, operated: Store) -> None:
    empty = call(f"ops ingest c --root {operated.root}")
    assert empty.out == "" and empty.err.count("\n") == 1 and "holds no file" in empty.err
    drawn = call(f"ops ingest c --draw --root {operated.root}")
    assert (drawn.out, drawn.err) == ("No run waits for a draw of labels.\n", "")


def test_groups_of_assets_form_no_cycle() -> None:
    from certify_assets.definitions import defs

    graph = defs.resolve_asset_graph()
    nodes = [graph.get(key) for key in graph.get_all_asset_keys()]
    above = {node.group_name: set[str | None]() for node in nodes}
    for node in nodes:
        parents = {graph.get(key).group_name for key in node.parent_keys}
        above[node.group_name] |= parents - {node.group_name}
    # raises CycleError
    assert set(TopologicalSorter(above).static_order()) == set(above)
