import re

import pytest

from certify_assets.certificates import table_gates
from certify_assets.reports.certificate_page import render_page
from certify_assets.reports.gates import gate_mark, gates_markdown, profile_markdown
from certify_assets_tests.reports.conftest import Case, arrays, certificates_of
from certify_assets_tests.reports.synthetic import score_table


def lamps_of(html: str) -> str:
    found = re.search(r'<ul class="lamps".*?</ul>', html, flags=re.DOTALL)
    assert found is not None
    return found[0]


def test_a_page_has_three_lamps_with_icon_word_and_reason(certified: Case, nothing: Case) -> None:
    for case in (certified, nothing):
        block = lamps_of(case.html)
        items = re.findall(
            (
                r'<li><span class="tag \w+"><svg.*?</svg>([a-z ]+)</span><p><b>([^<]+)</b> '
                r"([^<]{30,})</p></li>"
            ),
            block,
            flags=re.DOTALL,
        )
        assert [name for _, name, _ in items] == [
            "judge can learn",
            "fine-tuning not saturated",
            "enough samples",
        ]
        gates = table_gates(*arrays(case.cal))
        assert [words for words, _, _ in items] == [gate_mark(gate).words for gate in gates]
        assert f"n_eff {gates[2].value:.1f}" in items[2][2] and "39 at δ/3" in items[2][2]
    assert [words for words, _, _ in items] == ["passed", "unknown", "passed"]


@pytest.mark.slow
def test_lamps_are_of_cal_and_of_the_budget_in_question(certified: Case) -> None:
    cal = score_table(30, seed=5)
    pages = [
        render_page(certificates_of(cal, ("taskboot",)), cal, title="t", audit_frame=test)
        for test in (None, certified.test)
    ]
    assert lamps_of(pages[0]) == lamps_of(pages[1]) != lamps_of(certified.html)
    strict, loose = (
        next(c for c in certified.certificates if c.alpha == alpha) for alpha in (0.1, 0.2)
    )
    assert "39 at δ/3" in gates_markdown(strict, *arrays(cal))
    assert "19 at δ/3" in gates_markdown(loose, *arrays(cal))


def test_a_profile_shows_its_gates_without_a_judge() -> None:
    gates = [
        {"alpha": 0.1, "possible": True, "enough_samples": False, "reason": "CAL has few."},
        {"alpha": 0.2, "possible": True, "enough_samples": True, "reason": "CAL has enough."},
    ]
    assert profile_markdown(gates).splitlines() == [
        "- ○ not passed: α = 0.1. CAL has few.",
        "- ● passed: α = 0.2. CAL has enough.",
    ]
