"""Page, figures and exported tables of a comparison, with names that would break each of them."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from certify_assets.reports.comparison_page import (
    comparison_markdown,
    comparison_metrics,
    comparison_tables,
    folds_markdown,
    plotted,
    render_comparison,
    table_markdown,
    write_main_exports,
)
from certify_assets.reports.figures import auroc_figure
from certify_assets.storage.store import Store
from certify_assets_tests.pages import assert_stands_alone, text_of

HOSTILE = (
    "<script>alert(1)</script>",
    "a|b\n| c",
    "50 % & \\end{tabular} $x_1$ #~^",
    "**bold** [x](y)",
)


def area(value: float | None) -> dict[str, Any]:
    return {
        "value": value,
        "low": value and value - 0.1,
        "high": value and value + 0.1,
        "pairs": 10,
    }


def row(judge: str, family: str, value: float | None, coverage: float = 0.0) -> dict[str, Any]:
    nothing = {"certified": False, "coverage": 0.0, "audit": None}
    found = {"certified": True, "coverage": coverage, "audit": "PASS"}
    found |= {"test_error": 0.05, "test_coverage": coverage}
    cells = [
        {"side": side, "alpha": alpha, **(found if coverage and side == "reject" else nothing)}
        for side in ("reject", "release")
        for alpha in (0.1, 0.2)
    ]
    stage = {"cpu_seconds": 12.0, "peak_mib": 600.0, "rows": 100, "continued": family == "sft"}
    paid = family == "endpoint"
    cost = {
        "train": stage,
        "score": stage,
        "cpu_seconds_per_trajectory": 0.12,
        "tokens_per_decision": 120.0 if paid else None,
        "money_per_decision": 0.0015 if paid else None,
        "currency": "USD",
        "at_least": False,
        "parse_rate": None,
    }
    areas = {"rl": area(value), "cal": area(value), "test": None}
    return {
        "judge": judge,
        "family": family,
        "auroc": areas,
        "within_task": areas,
        "trained_on_rl": family == "grpo",
        "candidates": 1,
        "certified": [] if family == "control" else cells,
        "certified_on": None,
        "lift": None,
        "cost": cost,
    }


@pytest.fixture
def document() -> dict[str, Any]:
    folds = [
        {"agents": [name], "sft_runs": 5, "cal_runs": 4, "auroc": 0.6, "auroc_trained_on_all": None}
        for name in HOSTILE
    ]
    unseen = {"auroc": area(0.6), "within_agent": area(0.55)}
    agents = {
        "judge": "lexical",
        "rows": 20,
        "folds": folds,
        "disjoint": unseen,
        "trained_on_all": unseen,
        "difference": {"auroc": {"value": 0.05, "low": -0.01, "high": 0.1}},
        "sentence": "lexical is not shown to lose.",
    }
    nothing = {"judge": None, "value": None, "next": None}
    best = {"judge": "lexical", "value": 0.8, "next": {"judge": "grpo", "value": 0.7}}
    return {
        "corpus": "mine",
        "alphas": [0.1, 0.2],
        "cal": {"trajectories": 400, "tasks": 50, "success_rate": 0.3},
        "rows": [
            row("lexical", "lexical", 0.8, 0.4),
            row("sft", "sft", 0.6),
            row("grpo", "grpo", 0.7, 0.2),
            row("paid", "endpoint", None),
            row("length_only", "control", 0.55),
        ],
        "missing": [{"judge": "base", "what": "scores", "reason": f"not scored: {HOSTILE[0]}"}],
        "differences": [],
        "best": [
            {"what": "AUROC on CAL", **best},
            {"what": "certified reject coverage at 0.1", **nothing},
        ],
        "findings": [{"code": "not_above_floor", "message": f"sft does not help {HOSTILE[0]}"}],
        "agent_disjoint": [agents],
    }


def test_the_page_holds_every_name_as_text_and_runs_nothing(document: dict[str, Any]) -> None:
    page = render_comparison([document], [{"corpus": "other", "reason": HOSTILE[0]}])
    assert_stands_alone(page)
    text = text_of(page)
    for name in (*HOSTILE, "Judges on mine"):
        assert " ".join(name.split()) in text
    assert page == render_comparison([document], [{"corpus": "other", "reason": HOSTILE[0]}])


def test_figures_say_in_words_what_they_show(document: dict[str, Any]) -> None:
    drawn = auroc_figure(document["rows"], "auroc")
    assert "lexical 0.800" in drawn and "one outcome only" in drawn


def test_a_csv_of_the_comparison_runs_no_name_of_an_agent(
    document: dict[str, Any], tmp_path: Path
) -> None:
    names = ["=1+1", "n12;=1+1", "@x", "-0.5"]
    (fold, *_) = document["agent_disjoint"][0]["folds"]
    document["agent_disjoint"][0]["folds"] = [fold | {"agents": [name]} for name in names]
    write_main_exports(store := Store(str(tmp_path / "root")), [document])
    stored = store.read_bytes("study/main_table_agents.csv").decode("utf-8")
    _, every, *folds = csv.reader(io.StringIO(stored))
    assert [row[2] for row in folds] == ["'=1+1", "'n12;=1+1", "'@x", "-0.5"]
    assert every[-1] == "+0.050 (−0.010 to 0.100)"


def test_tables_say_what_was_not_measured_and_what_continues(document: dict[str, Any]) -> None:
    document["rows"][0]["cost"] |= {"train": None, "cpu_seconds_per_trajectory": None}
    ranking, certified, cost, _ = (
        {line[1]: line for line in table.rows} for table in comparison_tables([document])
    )
    assert any("trained on" in cell for cell in ranking["grpo"])
    assert "40" in certified["lexical"][2] and "PASS" in certified["lexical"][2]
    assert certified["sft"][2] == "nothing" and "length_only" not in certified
    assert cost["lexical"][2] == "not measured" and cost["lexical"][4] == "12.0"
    assert cost["sft"][2].startswith("≥ ") and cost["paid"][-2] == "0.0015 USD"


def test_blocks_for_the_asset_page_are_short_and_name_no_agent(document: dict[str, Any]) -> None:
    for block in (
        comparison_markdown(document),
        folds_markdown(document["agent_disjoint"]),
        table_markdown([document] * 60),
    ):
        assert len(block) < 1000 and "script" not in block
    metrics = comparison_metrics(document)
    assert metrics["auroc_lexical"] == 0.8 and metrics["coverage_lexical"] == 0.4
    assert "auroc_paid" not in metrics
    others = [{**document["rows"][0], "judge": f"judge_{number}"} for number in range(9)]
    shown = plotted(comparison_metrics({**document, "rows": others + document["rows"]}))
    # coverage is not crowded out by controls
    assert len(shown) == 12 and {"auroc_judge_5", "coverage_judge_5"} <= set(shown)
