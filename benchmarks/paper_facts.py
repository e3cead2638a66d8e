"""The paper's statements about itself, measured again: statement, what the paper says, what comes
out, how.

    python benchmarks/paper_facts.py [--quick] [--trials 1000] [--json] [--figure
    docs/taskboot_fooled.svg]

Facts that follow from printed numbers take no time; those from trials with known truth about a
minute at 1,000 trials. ``--figure`` draws how often TaskBoot and both guards certify too much where
a few tasks are wrong throughout.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from certify_assets.files import write_atomic
from certify_assets.research.pages.simulation_page import violation_figure
from certify_assets.research.paper_facts import (
    FOOLED_TASKS,
    PaperFact,
    arithmetic_facts,
    comparison_facts,
    fooled_facts,
    isotonic_fact,
    other_fact,
    selection_fact,
)


def rates(
    facts: Sequence[PaperFact],
) -> Mapping[float, Mapping[str, list[tuple[int, float, float]]]]:
    """True error → procedure → (tasks, violation, standard error)."""
    found: dict[float, dict[str, list[tuple[int, float, float]]]] = {}
    values = {fact.key: fact.values for fact in facts}
    for share in (0.11, 0.15):
        for tasks in FOOLED_TASKS:
            cell = values[f"fooled_{share:g}_{tasks}"]
            for name in (name for name in cell if f"{name}_se" in cell):
                found.setdefault(share, {}).setdefault(name, []).append(
                    (tasks, cell[name], cell[f"{name}_se"])
                )
    return found


def show(facts: Sequence[PaperFact]) -> None:
    for fact in facts:
        print(f"\n{fact.key}: {fact.verdict}\n  {fact.statement}")
        for name in ("paper", "measured", "how"):
            print(f"  {name + ':':<10}{getattr(fact, name)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the trials")
    options = parser.parse_args()
    options.trials = options.trials // 50 if options.quick else options.trials
    fooled = fooled_facts(options.trials)
    facts = [
        *arithmetic_facts(),
        *comparison_facts(20 if options.quick else 300),
        isotonic_fact(5 if options.quick else 50),
        selection_fact(options.trials),
        *fooled,
        other_fact(options.trials),
    ]
    if options.figure is not None:
        write_atomic(
            options.figure,
            violation_figure(rates(fooled), delta=0.05, trials=options.trials).encode("utf-8"),
        )
    if options.json:
        print(json.dumps([asdict(fact) for fact in facts], indent=2, ensure_ascii=False))
    else:
        show(facts)


if __name__ == "__main__":
    main()
