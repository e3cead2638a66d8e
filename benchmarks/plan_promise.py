"""Whether a planned size certifies in 80 ± 5 % of draws: 300 fresh draws of the plan itself, and
1,000 under another seed.

python benchmarks/plan_promise.py [--quick]
"""

from __future__ import annotations

import argparse
import math
import time

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.populations import match_population
from certify_assets.certificates.sizing import size_tasks

# success rate, AUROC, ICC, attempts, alpha, side
SETTINGS = (
    (0.3, 0.85, 0.3, 8, 0.1, "reject"),
    (0.3, 0.90, 0.3, 8, 0.1, "reject"),
    (0.3, 0.95, 0.6, 8, 0.1, "reject"),
    (0.3, 0.90, 0.6, 8, 0.2, "reject"),
    (0.5, 0.90, 0.3, 8, 0.1, "reject"),
    (0.5, 0.95, 0.6, 8, 0.1, "reject"),
    (0.5, 0.85, 0.6, 8, 0.2, "reject"),
    (0.3, 0.85, 0.6, 4, 0.2, "reject"),
    (0.3, 0.95, 0.3, 8, 0.1, "release"),
    (0.5, 0.90, 0.6, 8, 0.1, "release"),
    (0.5, 0.85, 0.3, 8, 0.2, "release"),
    (0.3, 0.90, 0.6, 16, 0.2, "release"),
)


def again(
    rate: float,
    area: float,
    icc: float,
    attempts: int,
    settings: Settings,
    tasks: int,
    draws: int = 1000,
) -> float:
    """Success probability under keys that no search used."""
    population = match_population(success_rate=rate, auroc=area, icc=icc, sizes=(attempts,))
    found = [
        evaluate(observe(*population.draw(tasks, (7, 77, trial))), settings).chosen is not None
        for trial in range(draws)
    ]
    return sum(found) / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one setting and 100 other draws")
    quick = parser.parse_args().quick
    settings_run, draws = (SETTINGS[:1], 100) if quick else (SETTINGS, 1000)
    print(
        "π    AUROC ICC attempts α   side     tasks  300 fresh  checks  others (s.e.)         "
        "coverage  CPU-s"
    )
    for rate, area, icc, attempts, alpha, side in settings_run:
        began = time.process_time()
        population = match_population(success_rate=rate, auroc=area, icc=icc, sizes=(attempts,))
        settings = Settings(alpha=alpha, side=side)
        found = size_tasks(population, settings, guess=49, most=10_000)
        spent = time.process_time() - began
        if found.tasks is None:
            print(f"{rate:<4} {area:<5} {icc:<3} {attempts:<8} {alpha:<3} {side:<8} none")
            continue
        check, other = (
            found.checks[-1],
            again(rate, area, icc, attempts, settings, found.tasks, draws),
        )
        shares = "/".join(f"{one.share:.3f}" for one in found.checks)
        print(
            f"{rate:<4} {area:<5} {icc:<3} {attempts:<8} {alpha:<3} {side:<8} {found.tasks:<6} "
            f"{shares:<10} {len(found.checks):<7} "
            f"{other:.3f} ({math.sqrt(other * (1 - other) / draws):.3f})        "
            f"{check.coverage:.3f}     {spent:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
