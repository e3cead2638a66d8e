"""The corpus page and its check table."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from certify_assets.corpora.config import load_config, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.report import CorpusReport, gather_report
from certify_assets.reports.corpus_page import render_corpus, standing
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs
from certify_assets_tests.pages import assert_stands_alone

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> CorpusReport:
    """A corpus whose texts are markup, and whose observations reveal the outcome."""
    folder = tmp_path_factory.mktemp("nasty")
    path = write_runs(folder / "runs.jsonl", tasks=40)
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for record in records:
        record["task_id"] = f"{NASTY}{record['task_id']}"
        record["trajectory_id"] = f"{NASTY}{record['trajectory_id']}"
        record["agent"] = f"{NASTY}{record['agent']}"
        record["steps"][1]["observation"] = (
            f"{NASTY} {'3 passed' if record['outcome'] else 'nothing'} {NASTY}"
        )
    path.write_text("\n".join([*map(json.dumps, records), json.dumps(records[0])]) + "\n", "utf-8")
    store = Store(str(folder / "root"))
    register_runs(store, "nasty", path)
    Corpus(store, "nasty").import_trajectories()
    return gather_report(Corpus(store, "nasty"))


def test_the_page_shows_everything_and_escapes_it(nasty: CorpusReport) -> None:
    html = render_corpus(nasty)
    assert html == render_corpus(nasty)
    assert_stands_alone(html)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt; 3 passed") == 2
    assert (
        standing(nasty).state == "failed" and "by phrase test_summary; it is not accepted" in html
    )
    for words in (
        "Flips",
        "Outcomes by task and attempt",
        "success rate of those",
        "the column outcome",
        "duplicate",
        "is a copy of",
    ):
        assert words in html, words
    assert re.search(r"The \d+ tasks of TEST are left out", html)


def test_no_outcome_of_test_is_on_the_page(nasty: CorpusReport) -> None:
    assert nasty.manifest is not None
    test = set(nasty.manifest.tasks["test"])
    assert test and not test & set(nasty.runs["task_id"])
    shown = re.findall(r"<title>(.*?)</title>", render_corpus(nasty))
    assert not {task.replace("<", "&lt;").replace(">", "&gt;") for task in test} & set(shown)


def test_what_is_stored_and_what_is_measured_anew_give_one_page(corpora: Store) -> None:
    stored = render_corpus(gather_report(Corpus(corpora, "one")))
    for name in ("profile.json", "controls.json", "splits/manifest.json"):
        corpora.delete(f"corpora/one/{name}")
    assert render_corpus(gather_report(Corpus(corpora, "one"))) == stored
    assert not corpora.exists("corpora/one/profile.json")


def test_an_accepted_leak_and_other_thresholds_are_measured_anew(corpora: Store) -> None:
    strict = replace(load_config(corpora, "one"), leak_thresholds={"length": 0.501})
    save_config(corpora, strict)
    blocked = gather_report(Corpus(corpora, "one"))
    assert standing(blocked).heading == "Blocked by a structural leak"
    save_config(corpora, replace(strict, accept_structural_leak=f"known {NASTY}"))
    html = render_corpus(gather_report(Corpus(corpora, "one")))
    assert "over, accepted" in html and "known &lt;script&gt;" in html and "<script" not in html


def test_a_corpus_that_cannot_be_split_still_has_a_page(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    register_runs(store, "tiny", write_runs(tmp_path / "runs.jsonl", tasks=2))
    Corpus(store, "tiny").import_trajectories()
    report = gather_report(Corpus(store, "tiny"))
    html = render_corpus(report)
    assert standing(report).state == "nothing" and report.unsplit
    assert "Not split:" in html and "TEST are left out" not in html
