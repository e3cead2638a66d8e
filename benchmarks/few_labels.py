"""What few labels decide: against all labels, against what was planned, and against other proofs.

    python benchmarks/few_labels.py [TABLE …] [--draws 200] [--quick]
    python benchmarks/few_labels.py --corpora [--picture FILE.svg] [--data DIR]
    python benchmarks/few_labels.py --baselines [--data DIR]

Each TABLE is a score table with all outcomes; by default docs/examples/scores.csv. Runs are drawn by
seeds 0, 1, … and certified on the reject side. A row has the mean coverage over draws with its
standard error, the mean number of labels that are read until the stop, and the coverage of the
default with every label. --quick: twenty draws.

--corpora does so on six corpora with lexical scores (those of `corpora_by_procedure.py`), both
sides, for one run a task, two, four and all. The number in brackets is what `certify plan` expects
from scores without labels, the true success rate and AUROC. The mean error of these predictions
comes last, with a standard error over corpora, and with guesses that are off. --picture draws
coverage against labels of five corpora.

--baselines sets one_run beside the procedures that the paper compares, on the reject side.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from corpora_by_procedure import Runs, scored
from published import DATA, labelled_corpora

from certify_assets.certificates import Settings, evaluate, observe
from certify_assets.certificates.auroc import auroc
from certify_assets.certificates.one_run import rows_until_stop, stop_limit
from certify_assets.certificates.planning import Planner
from certify_assets.certificates.procedures import DEFAULT
from certify_assets.certificates.sampling import TASKS, Draw
from certify_assets.tables.score_table import read_score_table

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "scores.csv"
CORPORA = (
    "miniwob_weak",
    "miniwob_mixed",
    "intercode_bash",
    "taubench_retail",
    "swebench_lite_acr",
    "multi_swe_bench_java",
)
#: corpora and sides of the picture, at its budget
PICTURED: Final = {
    "miniwob_weak": "reject",
    "miniwob_mixed": "reject",
    "intercode_bash": "reject",
    "taubench_retail": "release",
    "swebench_lite_acr": "reject",
}
PICTURE_ALPHA: Final = 0.2
BUDGETS: Final = (0.1, 0.2)
SIDES: Final = ("reject", "release")
BASELINES: Final = (
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "taskboot",
    DEFAULT,
    "one_run",
)
#: draws, as the columns of a table
COLUMNS: Final = ("one_run", "average", "2", "4", "all")
#: columns whose plans are judged together
PLANNED: Final = {
    "`one_run`": COLUMNS[:1],
    "`average`": COLUMNS[1:2],
    "default, 2 runs": COLUMNS[2:3],
    "default, 4 runs": COLUMNS[3:4],
    "default, all runs": COLUMNS[4:],
    "default, together": COLUMNS[2:],
}
#: errors of a guess of AUROC and of success rate
GUESSES: Final = ((0.03, 0.0), (-0.03, 0.0), (0.0, 0.05), (0.0, -0.05))
#: below this nothing is decided, and a plan that says so is right for nothing
NOTHING: Final = 0.01


class Found(NamedTuple):
    """Means over draws: labels read, share decided with its standard error, and share planned."""

    labels: float
    coverage: float
    spread: float
    planned: float = math.nan
    # planned by guesses that are off
    guessed: tuple[float, ...] = ()


class Cell(NamedTuple):
    """What the draws of a corpus decide on one side at one budget, by their column."""

    corpus: str
    side: str
    alpha: float
    found: Mapping[str, Found]


def share(runs: Runs, threshold: float | None, side: str) -> float:
    """Share of all runs that a threshold decides."""
    if threshold is None:
        return 0.0
    return float(
        np.mean(runs.scores <= threshold if side == "reject" else runs.scores >= threshold)
    )


def measured(runs: Runs, asked: Settings, draws: int, attempts: int = 1) -> Found:
    """Draw some runs of every task by seeds 0, 1, …, and certify them."""
    tasks, names = list(map(str, runs.tasks)), list(map(str, range(runs.tasks.size)))
    number = len(set(tasks))
    covered, read = [], []
    for seed in range(draws):
        draw = Draw(number * attempts, attempts, TASKS, 1, seed, "")
        rows = draw.rows(tasks, names)
        scores, outcomes = runs.scores[rows], runs.outcomes[rows]
        made = evaluate(observe(scores, outcomes, runs.tasks[rows]), asked.replace(seed=seed))
        covered.append(share(runs, made.threshold, asked.side))
        limit = rows.size
        if asked.method.by_rows:
            level, planned = asked.level(number), asked.planned_share
            limit = stop_limit(
                asked.procedure, number, alpha=asked.alpha, level=level, share=planned
            )
        reject = asked.side == "reject"
        order = np.argsort(scores if reject else -scores, kind="stable")
        read.append(rows_until_stop((outcomes == reject)[order], limit))
    spread = float(np.std(covered)) / math.sqrt(draws)
    return Found(float(np.mean(read)), float(np.mean(covered)), spread)


def all_labels(runs: Runs, asked: Settings) -> Found:
    """Certify with every label."""
    made = evaluate(observe(*runs), asked)
    return Found(float(runs.scores.size), share(runs, made.threshold, asked.side), 0.0)


def planned(runs: Runs, asked: Settings, attempts: int, guess: tuple[float, float]) -> float:
    """Return the share that a plan expects, from scores and a guess that is off by so much."""
    area, rate = auroc(runs.scores, runs.outcomes == 1), float(runs.outcomes.mean())
    planner = Planner.of(
        runs.scores,
        runs.tasks,
        success_rate=float(np.clip(rate + guess[1], 0.01, 0.99)),
        auroc=min(area + guess[0], 0.999),
    )
    return planner.plan(asked, attempts=attempts).coverage


def cells(name: str, runs: Runs, draws: int) -> Iterator[Cell]:
    """Measure and plan every draw of a corpus."""
    planner = Planner.of(runs.scores, runs.tasks, success_rate=0.5, auroc=0.5)
    several = planner.designs
    draws_of = {"one_run": ("one_run", 1), "average": ("average", 1)}
    draws_of |= {str(number): (DEFAULT, number) for number in several[:-1]}
    draws_of["all"] = (DEFAULT, several[-1])
    for alpha in BUDGETS:
        for side in SIDES:
            found = {}
            for column, (procedure, attempts) in draws_of.items():
                asked = Settings(procedure=procedure, alpha=alpha, side=side)
                if column == "all":
                    made = all_labels(runs, asked)
                else:
                    made = measured(runs, asked, draws, attempts)
                found[column] = made._replace(
                    planned=planned(runs, asked, attempts, (0.0, 0.0)),
                    guessed=tuple(planned(runs, asked, attempts, guess) for guess in GUESSES),
                )
            yield Cell(name, side, alpha, found)


def clustered_mean(groups: Sequence[Sequence[float]]) -> tuple[float, float, int]:
    """Mean of values that come in groups, its standard error over groups, and their number."""
    values = np.concatenate([np.asarray(group) for group in groups])
    mean = float(values.mean())
    sums = np.array([float(np.sum(np.asarray(group) - mean)) for group in groups])
    correction = len(groups) / max(1, len(groups) - 1)
    return mean, math.sqrt(correction * float(np.square(sums).sum())) / values.size, values.size


def print_corpora(every: Sequence[Cell]) -> None:
    """Print what draws decide, and how far plans are off."""
    print("| corpus | α | side | one_run | average | default, 2 runs | 4 runs | all |")
    print("|---|---|---|---|---|---|---|---|")
    for cell in every:
        row = []
        for column in COLUMNS:
            one = cell.found.get(column)
            text = "–" if one is None else f"{one.labels:,.0f} → {one.coverage:.3f}"
            row.append(text if one is None else f"{text} ({one.planned:.3f})")
        print(f"| {cell.corpus} | {cell.alpha:g} | {cell.side} | {' | '.join(row)} |")
    print("\n| planned | mean error | bias | with a guess that is off | cells |")
    print("|---|---|---|---|---|")
    for kind, columns in PLANNED.items():
        groups: dict[str, list[Found]] = {}
        for cell in every:
            for column in columns:
                one = cell.found.get(column)
                if one is not None and max(one.coverage, one.planned) > NOTHING:
                    groups.setdefault(cell.corpus, []).append(one)
        kept = list(groups.values())
        if not kept:
            continue
        exact = clustered_mean([[abs(f.planned - f.coverage) for f in group] for group in kept])
        bias = clustered_mean([[f.planned - f.coverage for f in group] for group in kept])
        off = clustered_mean(
            [[abs(guess - f.coverage) for f in group for guess in f.guessed] for group in kept]
        )
        print(
            f"| {kind} | {exact[0]:.3f} ± {exact[1]:.3f} | {bias[0]:+.3f} ± {bias[1]:.3f} | "
            f"{off[0]:.3f} ± {off[1]:.3f} | {exact[2]} |"
        )


def draw_picture(every: Sequence[Cell], path: Path) -> None:
    """Draw the share decided against the labels read."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    marks = ("o", "s", "^", "D", "v")
    colours = ("#1f57b0", "#13776f", "#8a5a00", "#b3261e", "#5a6470")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "few_labels", "font.size": 10}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        chosen = [
            cell
            for cell in every
            if cell.alpha == PICTURE_ALPHA and PICTURED.get(cell.corpus) == cell.side
        ]
        for cell, mark, colour in zip(chosen, marks, colours, strict=False):
            line = [found for column, found in cell.found.items() if column != "average"]
            axes.plot(
                [found.labels for found in line],
                [100 * found.coverage for found in line],
                marker=mark,
                color=colour,
                label=f"{cell.corpus} ({cell.side})",
            )
            average = cell.found["average"]
            axes.plot(
                [average.labels], [100 * average.coverage], mark, color=colour, mfc="white", ls=""
            )
        axes.set_xscale("log")
        ticks = [25, 50, 100, 200, 400, 800, 1600]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 102)
        axes.grid(color="#e4e8ed")
        axes.set_xlabel("labels read")
        axes.set_ylabel("runs decided, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        figure.savefig(path, format=path.suffix[1:], metadata={"Date": None})


def print_baselines(name: str, runs: Runs, draws: int) -> None:
    """Print a row a budget: what each procedure certifies on the reject side of a corpus."""
    tasks, sizes = np.unique(runs.tasks, return_counts=True)
    for alpha in BUDGETS:
        row = []
        for procedure in BASELINES:
            asked = Settings(procedure=procedure, alpha=alpha)
            one = procedure == "one_run" or asked.method.one_draw
            made = measured(runs, asked, draws) if one else all_labels(runs, asked)
            row.append(f"{made.coverage:.3f}")
        whole = Settings(procedure="one_run", alpha=alpha, planned_share=1.0)
        row.append(f"{measured(runs, whole, draws).coverage:.3f}")
        print(
            f"| {name} | {tasks.size} | {sizes.mean():.3g} | {alpha:g} | {' | '.join(row)} |",
            flush=True,
        )


def table_rows(path: Path, draws: int) -> None:
    """Print what one run a task of a table decides."""
    table = read_score_table(path)
    runs = Runs(table.scores, table.labels.astype(np.int64), table.tasks.astype(str))
    for alpha in BUDGETS:
        best = all_labels(runs, Settings(alpha=alpha))
        for procedure in ("one_run", "average"):
            found = measured(runs, Settings(procedure=procedure, alpha=alpha), draws)
            print(
                f"| {path.stem} | {alpha:g} | `{procedure}` | {100 * found.coverage:.1f} % ± "
                f"{100 * found.spread:.1f} | {found.labels:.0f} of {np.unique(runs.tasks).size} | "
                f"{len(table):,} → {100 * best.coverage:.1f} % |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path, metavar="TABLE", default=[EXAMPLE])
    parser.add_argument("--draws", type=int)
    parser.add_argument("--corpora", action="store_true")
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.corpora:
        draws = given.draws or 50
        corpora = labelled_corpora(CORPORA, given.data)
        every = [cell for name, frame in corpora for cell in cells(name, scored(frame), draws)]
        print_corpora(every)
        if given.picture is not None:
            draw_picture(every, given.picture)
        return
    if given.baselines:
        columns = (*BASELINES, "one_run, planned_share 1")
        print(f"| corpus | tasks | runs a task | α | {' | '.join(columns)} |")
        print("|" + "---|" * (4 + len(columns)))
        for name, frame in labelled_corpora(CORPORA, given.data):
            print_baselines(name, scored(frame), given.draws or 200)
        return
    print("| table | α | procedure | decided | labels read | all labels, default |")
    print("|---|---|---|---|---|---|")
    for path in given.tables:
        table_rows(path, 20 if given.quick else given.draws or 200)


if __name__ == "__main__":
    main()
