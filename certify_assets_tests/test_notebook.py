"""Certificates of DataFrames and what notebooks show of them; the notebook of the docs is run."""

import ast
import copy
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from certify_assets import Certificate, InputError, certify
from certify_assets import certificates as core
from certify_assets.certificates.ladder import issue
from certify_assets.certificates.procedures import PROMISES
from certify_assets.cli.main import main
from certify_assets_tests.paths import REPOSITORY

NOTEBOOK = REPOSITORY / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    random = np.random.default_rng(3)
    success = random.random(400) < np.repeat(random.beta(0.7, 0.7, 100), 4)
    return pd.DataFrame(
        {
            "task_id": [f"t{place // 4}" for place in range(400)],
            "score": random.normal(3.0 * success),
            "outcome": success.astype(int),
        }
    )


@pytest.fixture(scope="module")
def plain(runs: pd.DataFrame) -> Certificate:
    return core.certify(runs["score"], runs["outcome"], runs["task_id"], alpha=0.2, side="reject")


def frames(runs: pd.DataFrame) -> dict[str, Any]:
    import polars
    import pyarrow

    plain = polars.DataFrame(runs.to_dict("list"))
    task = polars.col("task_id")
    return {
        "pandas": runs,
        "polars": plain,
        "categories": plain.with_columns(task.cast(polars.Categorical)),
        "enumerated": plain.with_columns(task.cast(polars.Enum(sorted(set(runs["task_id"]))))),
        "arrow": pyarrow.table(runs.to_dict("list")),
    }


def test_arrays_give_the_certificate_that_they_gave(runs: pd.DataFrame, plain: Certificate) -> None:
    found = certify(runs["score"], runs["outcome"], runs["task_id"], alpha=0.2, side="reject")
    assert isinstance(found, Certificate) and found.certified
    assert found == plain and plain == found and found.to_json() == plain.to_json()
    copied = copy.deepcopy(found)
    assert copied == found and copied.explain() == found.explain()
    with pytest.raises(InputError, match="changed copy without its table"):
        found.replace(seed=1).decide([0.5])


def test_a_pandas_frame_needs_no_pyarrow(
    runs: pd.DataFrame, plain: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pandas keeps texts in pyarrow where that is installed
    texts = runs.astype(object)
    others = texts.astype({"task_id": "category", "score": "Float64", "outcome": "Int8"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for frame in (texts, others):
        assert certify(frame, alpha=0.2, side="reject") == plain


@pytest.mark.parametrize("kind", ["pandas", "polars", "categories", "enumerated", "arrow"])
def test_a_frame_is_certified_and_decided_as_the_kind_that_it_is(
    kind: str, runs: pd.DataFrame, plain: Certificate
) -> None:
    frame = frames(runs)[kind]
    found = certify(frame, alpha=0.2, side="reject")
    assert found == plain
    decided = found.decide(frame)
    assert type(decided) is type(frame)
    expected = core.decide(plain, runs["score"])
    # columns of an earlier decision are replaced
    for table in (decided, found.decide(decided)):
        assert list(table["decision"].to_numpy()) == expected.decisions.tolist()
        assert list(table["reason"].to_numpy()) == expected.reasons.tolist()


def test_columns_are_read_as_those_of_score_tables(runs: pd.DataFrame, plain: Certificate) -> None:
    odd = pd.DataFrame(
        {
            "Instance": runs["task_id"].astype("category"),
            "p": runs["score"].map(repr).str.replace(".", ","),
            "verdict": np.where(runs["outcome"] == 1, "good", "<b>bad</b>"),
            "anything": [object()] * len(runs),
            "split": "cal",
        }
    )
    columns = {"task": "instance", "score": "p", "outcome": "verdict"}
    both = pd.concat([odd, odd.head(3).assign(split="test", verdict=None)], ignore_index=True)
    found = certify(both, alpha=0.2, columns=columns, success="good", side="reject")
    said = {"success": "good", "columns": "task=instance,score=p,outcome=verdict"}
    assert found == plain.replace(provenance=said)
    card = found._repr_html_()
    assert "scores with decimal commas" in card and "<b>" not in card and "&lt;b&gt;bad" in card
    assert found.decide(odd)["decision"].tolist() == found.decide(runs["score"]).tolist()
    with pytest.raises(InputError) as refused:
        certify(odd, columns={"score": "p"})
    message = str(refused.value)
    for words in (
        "no column 'task_id'",
        ": certify(table, columns={'score': 'p', 'task': 'Instance'",
    ):
        assert words in message and "--" not in message
    for table, more, words in (
        (odd, {"columns": columns}, r"'good' is not an outcome.* success=VALUE"),
        (runs, {"sample": "draw.csv"}, "certify certificate SCORES --sample FILE"),
        (runs.drop(columns="outcome"), {}, r"no outcome column.*columns=\{'outcome': 'NAME'\}"),
        (pd.concat([runs, runs[["score"]]], axis=1), {}, "two columns called 'score'"),
    ):
        with pytest.raises(InputError, match=words):
            certify(table, **more)


def test_scores_that_fall_or_are_percentages_are_certified_and_decided_alike(
    runs: pd.DataFrame, plain: Certificate
) -> None:
    decided = core.decide(plain, runs["score"]).decisions.tolist()
    falling = runs.assign(score=-runs["score"])
    found = certify(falling, alpha=0.2, lower_is_better=True, side="reject")
    assert found == plain.replace(provenance={"lower_is_better": "true"})
    assert found.decide(falling)["decision"].tolist() == decided
    assert found.decide(falling["score"]).tolist() == decided
    columns = (falling["score"], runs["outcome"], runs["task_id"])
    assert certify(*columns, alpha=0.2, lower_is_better=True, side="reject") == found
    unit = runs.assign(score=(1 / (1 + np.exp(-runs["score"]))).round(8))
    percent = unit.assign(score=100 * unit["score"])
    found = certify(percent, alpha=0.2, score_scale="probability", side="reject")
    assert found.provenance == {"score_scale": "percent"}
    assert found.decide(percent)["decision"].tolist() == decided
    with pytest.raises(InputError, match="the certificate was issued on scores from"):
        certify(unit, alpha=0.2, side="reject").decide(percent)
    with pytest.raises(InputError, match=r"column .score.: .* Leave score_scale out"):
        certify(falling, score_scale="probability")
    with pytest.raises(InputError, match="score_scale is for tables"):
        certify(*columns, score_scale="probability")


def test_tables_that_cannot_be_meant_are_refused(runs: pd.DataFrame) -> None:
    for table, words in (
        ((runs["score"], runs["outcome"].iloc[::-1], runs["task_id"]), "different indexes"),
        ((runs, runs["outcome"], runs["task_id"]), "Give only the table"),
        ((runs["score"],), "Outcomes or tasks are missing"),
        ((frames(runs)["polars"].lazy(),), r"Give table\.collect\(\)"),
    ):
        with pytest.raises(InputError, match=words):
            certify(*table)
    with pytest.raises(InputError, match="procedure 'all' is not available"):
        certify(runs, procedure="all")


def test_a_file_is_read_by_its_path_and_unknown_words_are_named(
    runs: pd.DataFrame, tmp_path: Path
) -> None:
    runs.to_csv(tmp_path / "s.csv", index=False)
    asked = certify(runs, alpha=0.2).to_dict()
    assert certify(tmp_path / "s.csv", alpha=0.2).to_dict() == asked
    assert certify(str(tmp_path / "s.csv"), alpha=0.2).to_dict() == asked
    with pytest.raises(InputError, match="one of both, reject, release"):
        certify(runs, side="x")  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"Did you mean joint\?"):
        certify(runs, jont=True)


def test_both_sides_are_a_pair_with_the_document_of_the_command(runs: pd.DataFrame) -> None:
    pair = certify(runs, alpha=0.2, joint=True)
    columns = (runs["score"], runs["outcome"], runs["task_id"])
    expected = issue(core.Certifier.of(*columns), {"alpha": 0.2}, joint=True)
    document = expected.to_dict()
    assert pair.to_dict() == document
    assert [pair.reject.side, pair.release.side] == ["reject", "release"]
    assert (pair.decided, pair.human) == (document["decided"], document["human"])
    decisions = core.decide(expected.certificates, runs["score"]).decisions
    assert pair.decide(runs)["decision"].tolist() == decisions.tolist()
    assert pair.promise == expected.statement and "Both hold" in pair.promise


@pytest.mark.parametrize("promise", [None, *PROMISES])
def test_a_promise_is_chosen_as_the_command_chooses_it(
    promise: Any, runs: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = runs.drop_duplicates("task_id").assign(trajectory_id=lambda rows: rows["task_id"])
    few.to_csv(tmp_path / "few.csv", index=False)
    asked = [] if promise is None else ["--promise", promise]
    with suppress(SystemExit):
        main(["certificate", str(tmp_path / "few.csv"), "--alpha", "0.2", "--json", *asked])
    issued = json.loads(capsys.readouterr().out)
    assert certify(few, alpha=0.2, promise=promise).to_dict() == issued


def test_an_account_says_why_and_what_would_widen(runs: pd.DataFrame) -> None:
    found = certify(runs, alpha=0.2, side="reject")
    said = found.explain()
    assert said == repr(said) and found.statement in said
    assert "is the widest of the 160 thresholds tried that passes" in said
    few = certify(runs.head(100), alpha=0.05, side="reject")
    assert not few.certified and "Nothing is certified" in few._repr_html_()
    assert "none of the 160 thresholds tried passes" in few.explain()
    for account in (said, few.explain()):
        assert re.search(r"about \d+ more tasks?|a judge that ranks better", account, re.IGNORECASE)
    release = certify(runs.assign(score=-runs["score"]), alpha=0.05, side="release").explain()
    assert "More tasks will not help" in release
    assert "What would widen it: a judge that ranks better" in release


def _cells() -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return cells


def _outputs(cell: dict[str, Any], kind: str) -> str | None:
    for output in cell.get("outputs", []):
        if kind in output.get("data", {}):
            return "".join(output["data"][kind])
    return None


def test_the_notebook_of_the_docs_shows_what_its_cells_give(tmp_path: Path) -> None:
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    cells, names = _cells(), dict[str, Any]()
    assert len(cells) == 10
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if last is None:
            continue
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307 - our own notebook
        if (stored := _outputs(cell, "text/html")) and not isinstance(shown, pd.DataFrame):
            assert shown._repr_html_() == stored
        elif stored is None:
            assert repr(shown) == _outputs(cell, "text/plain")
    pyplot.close("all")
    assert any(_outputs(cell, "image/png") for cell in cells)


@pytest.mark.slow
def test_the_notebook_of_the_docs_runs_in_a_kernel() -> None:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    for cell, stored in zip(book.cells, _cells(), strict=True):
        html = _outputs(stored, "text/html")
        if html and "certify-card" in html:
            assert _outputs(cell, "text/html") == html
