from certify_assets.certificates import certify
from certify_assets.reports.corpus_page import profile_markdown
from certify_assets.reports.judge_page import gates
from certify_assets_tests.reports.conftest import arrays
from certify_assets_tests.reports.synthetic import score_table


def test_gates_are_of_the_budget_of_the_certificate() -> None:
    cal = score_table(30, seed=5)
    for alpha, needed in ((0.1, "needed 39"), (0.2, "needed 19")):
        lines = gates(cal, certify(*arrays(cal), alpha=alpha, grid=8)).splitlines()
        assert len(lines) == 3 and needed in lines[2]


def test_a_profile_shows_its_gates_without_a_judge() -> None:
    found = [
        {"alpha": 0.1, "possible": True, "enough_samples": False, "reason": "CAL has few."},
        {"alpha": 0.2, "possible": True, "enough_samples": True, "reason": "CAL has enough."},
    ]
    assert profile_markdown(found).splitlines() == [
        "- ○ not passed: α = 0.1. CAL has few.",
        "- ● passed: α = 0.2. CAL has enough.",
    ]
