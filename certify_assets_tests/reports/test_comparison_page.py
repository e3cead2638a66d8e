"""Page and exported tables of a comparison, with names that would break each of them."""

import copy
import csv
import io
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.audit import audit_judge
from certify_assets.operations.comparison import compare
from certify_assets.reports.comparison_page import (
    best_markdown,
    comparison_metrics,
    comparison_tables,
    plotted,
    render_comparison,
)
from certify_assets.reports.wording import percent
from certify_assets_tests.builders import judged
from certify_assets_tests.conftest import copy_world
from certify_assets_tests.pages import assert_stands_alone, text_of

HOSTILE = (
    "<script>alert(1)</script>",
    "a|b\n| c",
    "50 % & \\end{tabular} $x_1$ #~^",
    "**bold** [x](y)",
)


@pytest.fixture(scope="module")
def lexical(_small_corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The comparison of a certified and audited judge with the controls, as it is stored."""
    store = copy_world(_small_corpora, tmp_path_factory.mktemp("compared"))
    audit_judge(judged(store, "one"))
    return dict(compare(Corpus(store, "one")))


@pytest.fixture
def document(lexical: dict[str, Any]) -> dict[str, Any]:
    """That comparison with judges of other families, and what is missing."""
    found = copy.deepcopy(lexical)
    first = found["rows"][0]
    nothing = {"certified": False, "coverage": 0.0, "audit": None}
    continued = {**first["cost"]["train"], "continued": True}
    paid = {"tokens_per_decision": 120.0, "money_per_decision": 0.0015, "currency": "USD"}
    unseen = {"rl": None, "cal": None, "test": None}
    for judge, change in {
        "sft": {
            "cost": {**first["cost"], "train": continued},
            "certified": [{**cell, **nothing} for cell in first["certified"]],
        },
        "grpo": {"trained_on_rl": True},
        "paid": {"cost": {**first["cost"], **paid}, "auroc": unseen, "within_task": unseen},
    }.items():
        found["rows"].append({**first, "judge": judge, **change})
    found["missing"].append({"judge": "base", "what": "scores", "reason": HOSTILE[0]})
    found["findings"].append({"code": "not_above_floor", "message": HOSTILE[0]})
    return found


def test_the_page_holds_every_name_as_text_and_runs_nothing(document: dict[str, Any]) -> None:
    page = render_comparison([document], [{"corpus": "other", "reason": HOSTILE[0]}])
    assert_stands_alone(page)
    text = text_of(page)
    for name in (HOSTILE[0], "Judges on one"):
        assert name in text
    assert page == render_comparison([document], [{"corpus": "other", "reason": HOSTILE[0]}])


def test_a_csv_of_the_comparison_runs_no_name_as_a_formula(document: dict[str, Any]) -> None:
    names = ["=1+1", "n12;=1+1", "@x", "-0.5"]
    document["rows"] = [document["rows"][0] | {"judge": name} for name in names]
    stored = comparison_tables([document])[0].csv()
    _, *rows = csv.reader(io.StringIO(stored))
    assert [row[1] for row in rows] == ["'=1+1", "'n12;=1+1", "'@x", "-0.5"]


def test_tables_say_what_was_not_measured_and_what_continues(document: dict[str, Any]) -> None:
    first = document["rows"][0]
    first["cost"] |= {"train": None, "cpu_seconds_per_trajectory": None}
    ranking, certified, cost = (
        {line[1]: line for line in table.rows} for table in comparison_tables([document])
    )
    assert any("trained on" in cell for cell in ranking["grpo"])
    (cell,) = (one for one in first["certified"] if (one["side"], one["alpha"]) == ("reject", 0.1))
    assert cell["certified"]
    assert certified["lexical"][2].startswith(percent(cell["coverage"]))
    assert certified["lexical"][2].endswith(f"{cell['audit']})")
    assert certified["sft"][2] == "nothing" and "length_only" not in certified
    assert cost["lexical"][2] == "not measured" and cost["sft"][2].startswith("≥ ")
    assert cost["lexical"][3] == f"{first['cost']['score']['cpu_seconds']:.1f}"
    assert cost["paid"][-2] == "0.0015 USD"


def test_blocks_for_the_asset_page_are_short(document: dict[str, Any]) -> None:
    for block in (best_markdown([document]), best_markdown([document] * 60)):
        assert len(block) < 1000 and "script" not in block
    first = document["rows"][0]
    metrics = comparison_metrics(document)
    assert metrics["auroc_lexical"] == first["auroc"]["cal"]["value"]
    assert 0 < metrics["coverage_lexical"] < 1 and "auroc_paid" not in metrics
    others = [{**first, "judge": f"judge_{number}"} for number in range(9)]
    shown = plotted(comparison_metrics({**document, "rows": others + document["rows"]}))
    # coverage is not crowded out by controls
    assert len(shown) == 12 and {"auroc_judge_5", "coverage_judge_5"} <= set(shown)
