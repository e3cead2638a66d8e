"""What the paper says of itself, with the value that comes out."""

import numpy as np
import pytest

from certify_assets_tests.paths import benchmark

facts = benchmark("paper_facts")

FACTS = {fact.key: fact for fact in facts.arithmetic_facts()}


# as printed: as many digits count
PRINTED = {
    "loocv_without_success_rate": {"alone": "0.471", "with_saturation": "0.383"},
    "parameter_free_law": {
        "free": "0.971", "free_error": "0.033", "fitted": "0.964", "fitted_error": "0.039",
    },
    "law_without_code_o": {"r2": "0.81"},
    "term_base_twice": {"main": "0.290", "real": "0.315"},
    "tool_sft_twice": {"main": "0.293", "real": "0.325", "equal": "11", "cells": "13"},
    "tool_test_share": {"tasks": "0.20"},
    "web_m_cal_tasks": {"tasks": "12", "rows": "192"},
    "self_training_start": {"gain_from_table": "0.010", "gain_from_text": "0.025"},
    "six_harvests": {"harvests": "5", "largest": "0.024"},
    "web_coverages_on_test_grid": {
        "on_grid": "7", "cells": "11", "on_grid_at_.1": "7", "cells_at_.1": "9",
    },
    "third_gate": {"term": "29.5", "limit": "29", "limit_on_grid": "64"},
}  # fmt: skip


@pytest.mark.parametrize("key", PRINTED)
def test_what_follows_from_printed_numbers(key: str) -> None:
    for name, printed in PRINTED[key].items():
        digits = len(printed.partition(".")[2])
        assert f"{FACTS[key].values[name]:.{digits}f}" == printed, name


def test_the_printed_tables_hang_together() -> None:
    assert FACTS["web_coverages_on_test_grid"].values["p"] < 0.001
    on_test = facts.coverages(on_test=True)
    differing = [key for key, share in facts.coverages().items() if share != on_test[key]]
    assert differing == [("Tool", "SFT"), ("Term", "base")]


def test_isotonic_regression_changes_certificates_and_a_strict_map_does_not() -> None:
    found = facts.isotonic_coverages(12)
    assert np.array_equal(found[:, 0], found[:, 1])
    assert (found[:, 0] != found[:, 2]).sum() >= 6


def test_taskboot_covers_more_than_naive_at_twenty_tasks() -> None:
    gaps = facts.comparison_fact(trials=60).values
    assert gaps["gap_0.5"] > 0.02 and gaps["gap_0.8"] > 0.02
