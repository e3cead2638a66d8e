"""``certify research simulate``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from certify_assets.cli.options import OPEN_SHARE, SIDE, Finite, out_option
from certify_assets.cli.output import answer, answers, refuse_overwrite, say, table, write_document
from certify_assets.errors import InputError

_LEGEND = (
    "violation: share of all trials whose true error exceeds α, which δ bounds; if certified: of "
    "the trials that certified anything; by task: every task weighs the same; each ± standard "
    "error. paper: violation if certified, coverage."
)


@click.command()
@click.option(
    "--tasks",
    multiple=True,
    type=click.IntRange(2, 1_000_000),
    help="Tasks in a calibration set; repeat for more.",
)
@click.option(
    "--rho", multiple=True, type=Finite(0, 0.9), help="Nominal label ICCs; repeat for more."
)
@click.option(
    "--design",
    multiple=True,
    help="paper, adversarial, fooled, failure, all, or designs by name; repeat for more.",
)
@click.option("--side", type=SIDE, default="reject", help="Which decision to certify.")
@click.option(
    "--trials", type=click.IntRange(1, 1_000_000), default=300, help="Calibration sets a design."
)
@click.option("--alpha", type=OPEN_SHARE, default=0.1, help="Error budget α.")
@click.option("--delta", type=OPEN_SHARE, default=0.05, help="1 − confidence.")
@click.option(
    "--procedure",
    multiple=True,
    help="Procedures; repeat for more. [default: the paper's five, guarded_taskboot and "
    "pseudo_task]",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=42, help="Seed of all draws.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=1,
    help="Processes; results do not depend on it.",
)
@out_option
@answers
def simulate(
    tasks: tuple[int, ...],
    rho: tuple[float, ...],
    design: tuple[str, ...],
    procedure: tuple[str, ...],
    out: Path | None,
    **settings: Any,
) -> None:
    """How often each procedure certifies wrongly where the truth is known.

    Every trial draws a calibration set, lets each procedure certify a threshold on one side, and
    reads that threshold's true error over trajectories. The violation is the share of trials whose
    true error exceeds α: of all trials, which δ bounds, and of those that certified anything, as
    the paper prints it. Coverage is 0 where nothing was certified.

    \b
    Designs:
      paper             the clustered process of the paper
      low_base_rate     (i) near-perfect judge, few successes
      size_outcome      (ii) larger tasks fail more
      heavy_tails       (iii) heavy-tailed task sizes
      fooled            a few tasks fool the judge throughout (1.5 α)
      fooled_partly     the same with errors of ICC .7
      fooled_larger     the same with wrong tasks three times larger
      fooled_scattered  the same with errors of ICC .3 (in failure only)
      fooled_largest    the same, five times larger (in failure only)

    The paper's process has 20, 50, 100, 500 tasks and ICC .1, .5, .8. Without --design, all but the
    last two are run. With --tasks or --rho it is the paper's process alone. The design failure is
    the five of fooled tasks, with true errors of 1.02 α and 1.5 α.
    """  # noqa: D301
    from certify_assets.research.designs import EXCESSES, GROUPS, study_designs
    from certify_assets.research.simulation import STUDY_PROCEDURES
    from certify_assets.research.simulation import simulate as run

    started = time.monotonic()
    refuse_overwrite({"--out": out}, {})
    if out is not None and not out.resolve().parent.is_dir():
        raise InputError(
            f"{out} cannot be written (its folder does not exist); choose another place for --out."
        )
    chosen = design or (("paper",) if tasks or rho else ("all",))
    cells = study_designs(
        [name for item in chosen for name in GROUPS.get(item, (item,))],
        tasks=tasks,
        rhos=rho,
        alpha=settings["alpha"],
        side=settings["side"],
        excess=EXCESSES if "failure" in chosen else EXCESSES[-1:],
    )
    document = run(
        cells,
        procedures=procedure or STUDY_PROCEDURES,
        progress=lambda cell, done, total: say(f"{done} of {total}: {cell.title}"),
        **settings,
    )
    if out is not None:
        write_document(out, document.to_dict())
    say(f"{len(cells)} designs × {settings['trials']} trials in {time.monotonic() - started:.1f} s")
    rows = [
        {
            "design": cell.title,
            "procedure": found.procedure,
            "violation": _rate(found.violation, found.violation_se),
            "if certified": _rate(found.violation_conditional, found.violation_conditional_se),
            "by task": found.own_violation,
            "coverage": _rate(found.coverage, found.coverage_se),
            "paper": list((found.paper or {}).values()),
        }
        for cell in document.cells
        for found in cell.procedures
    ]
    title = f"Synthetic validity, {document.side} side, {document.trials} trials a design"
    answer(document.to_dict(), table(title, rows), _LEGEND)


def _rate(value: float | None, error: float | None) -> str | None:
    return None if value is None or error is None else f"{value:.3f} ± {error:.3f}"
