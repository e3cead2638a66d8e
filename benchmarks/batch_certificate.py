"""The tables of the batch certificate: their exact risk, and the labels they take.

    python benchmarks/batch_certificate.py [--quick]

Everything is exact, by a recursion over labels and errors of a set. `risk` is the probability to
certify a set with so many errors, however many labels are taken: at K₀ = ⌊αN⌋ + 1, the worst, and
at 1.1 and 1.2 α. Labels are the mean until a set is certified or K₀ errors are found.
"""

from __future__ import annotations

import argparse

import numpy as np

from certify_assets.certificates.batch_tables import SetTable, error_limit, set_table

DELTA = 0.05
HEADS = [
    "N",
    "alpha",
    "K0",
    "critical",
    "labels(0)",
    "labels(1)",
    "risk(K0)",
    "risk(1.1)",
    "risk(1.2)",
]
ERRORS = (0, 0.02, 0.05, 0.08)


def walk(table: SetTable, errors: int) -> tuple[float, float]:
    """Return the probability to certify a set with so many errors, and the mean labels."""
    alive = np.zeros(errors + 1)
    alive[0], certified, labels = 1.0, 0.0, 0.0
    places = np.arange(errors + 1)
    for drawn in range(1, table.runs + 1):
        labels += alive[: table.limit].sum()
        wrong = np.clip((errors - places) / (table.runs - drawn + 1), 0.0, 1.0)
        alive[1:], alive[0] = (
            alive[1:] * (1 - wrong[1:]) + alive[:-1] * wrong[:-1],
            alive[0] * (1 - wrong[0]),
        )
        certain = int((table.needed <= drawn).sum())
        certified += alive[:certain].sum()
        alive[:certain] = 0.0
    return certified, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="sets of 50 and 200 runs")
    sizes = (50, 200) if parser.parse_args().quick else (50, 200, 700, 1500)
    heads = [*HEADS, *(f"at {error:g}" for error in ERRORS)]
    print(" ".join(f"{head:>9}" for head in heads))
    for alpha in (0.1, 0.2):
        for runs in sizes:
            table = set_table(runs, alpha, DELTA)
            more = [max(table.limit, error_limit(factor * alpha, runs)) for factor in (1.1, 1.2)]
            cells: list[float] = [runs, alpha, table.limit, table.critical_value]
            cells += table.needed[:2].tolist()
            cells += [walk(table, errors)[0] for errors in (table.limit, *more)]
            cells += [walk(table, round(error * runs))[1] for error in ERRORS]
            print(" ".join(f"{cell:9.4g}" for cell in cells))


if __name__ == "__main__":
    main()
