"""The saddlepoint against the exact tail on random tables: its largest error near the level, and
the decisions that it would flip.

    python benchmarks/tails.py [--tables 120000] [--quick]

Tables have 8 to 200 tasks of 1, 8, 16 or unequal (Poisson) sizes; errors are beta-binomial, and in
half of the tables some tasks are wrong throughout. Tails are compared with the level of a
certificate, δ/40 = .00125, and with .05. ``auto`` takes the exact tail within a factor of 4.
"""

from __future__ import annotations

import argparse
from fractions import Fraction

import numpy as np

from certify_assets.certificates.bootstrap import BAND, bootstrap_tails, error_lattice

BUDGET = Fraction(1, 10)
LEVELS = (0.05 / 40, 0.05)
KINDS = {"size 1": 1, "size 8": 8, "size 16": 16, "unequal sizes": 0}
CHUNK = 200


def tables(size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Covered and wrong trajectories a task of ``CHUNK`` tables with one number of tasks."""
    tasks = int(rng.choice([8, 12, 20, 30, 50, 84, 120, 200]))
    covered = np.full((CHUNK, tasks), size) if size else 1 + rng.poisson(7, (CHUNK, tasks))
    rho, mean = rng.uniform(0.02, 0.9, (CHUNK, 1)), rng.uniform(0.002, 0.09, (CHUNK, 1))
    rates = rng.beta(mean * (1 - rho) / rho, (1 - mean) * (1 - rho) / rho, (CHUNK, tasks))
    wholly = rng.random((CHUNK, tasks)) < rng.uniform(0, 3 / tasks, (CHUNK, 1)) * (
        rng.random((CHUNK, 1)) < 0.5
    )
    return covered.astype(np.int32), rng.binomial(covered, np.where(wholly, 1.0, rates)).astype(
        np.int32
    )


def compare(size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Exact tails, those of the saddlepoint, and those of ``auto`` at both levels; shape (4,
    tables).
    """
    parts = []
    for _ in range(-(-count // CHUNK)):
        lattice = error_lattice(*tables(size, rng), BUDGET)
        exact, saddle = (
            bootstrap_tails(lattice, LEVELS[0], engine) for engine in ("exact", "saddlepoint")
        )
        parts.append([exact, saddle, *(bootstrap_tails(lattice, level) for level in LEVELS)])
    return np.concatenate(parts, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=120_000)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the tables")
    arguments = parser.parse_args()
    count = max(CHUNK * len(KINDS), arguments.tables // 20) if arguments.quick else arguments.tables
    print(
        "ratio: exact tail over saddlepoint, where the saddlepoint lies within a factor of 4 of "
        "the level; flipped: decisions of the saddlepoint that"
    )
    print(
        "the exact tail turns over, of all tables; auto: the same for the engine in use; beyond "
        "4: the exact tail crosses the level from outside that band"
    )
    names = {
        "tables": 7,
        "level": 8,
        "near": 6,
        "median |ratio−1|": 17,
        "99 %": 7,
        "worst ratio": 12,
        "flipped": 8,
        "auto": 5,
        "beyond 4": 9,
    }
    print(" " * 14, *(f"{name:>{width}}" for name, width in names.items()))
    for place, (name, size) in enumerate(KINDS.items()):
        exact, saddle, *auto = compare(size, count // len(KINDS), np.random.default_rng([7, place]))
        for level, chosen in zip(LEVELS, auto, strict=True):
            near = (saddle >= level / BAND) & (saddle <= level * BAND)
            ratio = exact[near] / saddle[near]
            off = np.abs(ratio - 1)
            wrong = (exact <= level) != (saddle <= level)
            worst = (
                ratio[np.argmax(np.abs(np.log(np.maximum(ratio, 1e-300))))]
                if ratio.size
                else np.nan
            )
            print(
                f"{name:14} {exact.size:7d} {level:8.5f} {near.sum():6d} {np.median(off):17.5f} "
                f"{np.quantile(off, 0.99):7.4f} {worst:12.3f} "
                f"{wrong.sum():8d} {((exact <= level) != (chosen <= level)).sum():5d} "
                f"{(wrong & ~near).sum():9d}",
                flush=True,
            )


if __name__ == "__main__":
    main()
