"""``certify simulate``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import PATH, Finite
from certify_assets.cli.output import console, emit_json, json_option, say, show_table, write_document

if TYPE_CHECKING:
    from certify_assets.certificates.simulation import Cell

__all__ = ["simulate"]

_SEVERAL = ("--tasks", "--rho", "--design", "--procedure")


class _Several(click.Command):
    """Lets ``--tasks 20 50`` stand for ``--tasks 20 --tasks 50``; the command takes no arguments, so nothing else can be meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        option: str | None = None
        for word in args:
            if word.startswith("-") and not word[1:2].isdigit():
                option = word if word in _SEVERAL else None
            elif option is not None and spread[-1] != option:
                spread.append(option)
            spread.append(word)
        return super().parse_args(ctx, spread)


@click.command(cls=_Several)
@click.option("--tasks", multiple=True, type=click.IntRange(2, 1_000_000), help="Tasks in a calibration set; several may follow.")
@click.option("--rho", multiple=True, type=Finite(0, 0.9), help="Nominal label ICCs; several may follow.")
@click.option("--design", multiple=True, help="paper, adversarial, fooled, all, or designs by name; several may follow.")
@click.option("--trials", type=click.IntRange(1, 1_000_000), default=300, show_default=True, help="Calibration sets a design.")
@click.option("--alpha", type=Finite(0, 1, min_open=True, max_open=True), default=0.1, show_default=True, help="Error budget α.")
@click.option("--delta", type=Finite(0, 1, min_open=True, max_open=True), default=0.05, show_default=True, help="1 − confidence.")
@click.option("--procedure", multiple=True, help="Procedures; several may follow. [default: the paper's five, and guarded_taskboot]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=42, show_default=True, help="Seed of all draws.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes; results do not depend on it.")
@click.option("--out", type=PATH, default=None, help="Write the JSON document to this file as well.")
@json_option
def simulate(
    tasks: tuple[int, ...],
    rho: tuple[float, ...],
    design: tuple[str, ...],
    procedure: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """How often each procedure certifies wrongly where the truth is known.

    Every trial draws a calibration set, lets each procedure certify a threshold on the reject side, and reads that threshold's true error. Reported are
    the share of the trials whose true error exceeds α (of all trials, which δ bounds, and of those that certified anything, as the paper prints it)
    and the mean coverage, 0 where nothing was certified.

    \b
    Designs: paper          the clustered process of the paper: 20, 50, 100, 500 tasks, ICC .1, .5, .8
             low_base_rate  (i) near-perfect judge, few successes
             size_outcome   (ii) larger tasks fail more
             heavy_tails    (iii) heavy-tailed task sizes
             fooled         a few tasks fool the judge throughout (true error 1.5 α)
             fooled_partly  the same with errors of ICC .7
             fooled_larger  the same with wrong tasks three times larger

    Without --design all of them are run, and the paper's process alone where --tasks or --rho is given. Progress is on stderr.
    """  # noqa: D301
    from certify_assets.certificates import simulation
    from certify_assets.certificates.designs import study_designs

    started = time.monotonic()
    cells = study_designs(_names(design or (("paper",) if tasks or rho else ("all",))), tasks=tasks, rhos=rho, alpha=settings["alpha"])
    if out is not None:
        _check_folder(out)
    document = simulation.simulate(cells, procedures=procedure or simulation.STUDY_PROCEDURES, progress=_progress, **settings)
    if out is not None:
        write_document(out, document.to_dict())
    if as_json:
        emit_json(document.to_dict())
    else:
        _show(document.cells, settings["trials"])
    say(f"{len(cells)} designs × {settings['trials']} trials in {time.monotonic() - started:.1f} s")


def _names(given: Sequence[str]) -> list[str]:
    from certify_assets.certificates.designs import DESIGNS

    named = list(DESIGNS)
    groups = {"all": named, "adversarial": named[1:4], "fooled": named[4:]}
    return [name for item in given for name in groups.get(item, [item])]


def _check_folder(out: Path) -> None:
    from certify_assets.errors import InputError

    if not out.resolve().parent.is_dir():
        raise InputError(f"{out} cannot be written (its folder does not exist); choose another place for --out.")


def _progress(cell: Cell, done: int, total: int) -> None:
    say(f"{done} of {total}: {_title(cell)}")


def _title(cell: Cell) -> str:
    return f"{cell.design} G={cell.tasks}" + ("" if cell.rho is None else f" ρ={cell.rho:g}")


def _show(cells: Sequence[Cell], trials: int) -> None:
    rows = []
    for cell in cells:
        rows.append([_title(cell), "", "", "", ""])
        for found in cell.procedures:
            printed = [] if found.paper is None else ["–" if value is None else _short(value) for value in found.paper.values()]
            rows.append(
                [
                    f"  {found.procedure}",
                    _rate(found.violation, found.violation_se),
                    _rate(found.violation_conditional, found.violation_conditional_se),
                    _rate(found.coverage, found.coverage_se),
                    " / ".join(printed),
                ]
            )
    show_table(f"Synthetic validity, {trials} trials a design", ["design", "violation", "if certified", "coverage", "paper"], rows)
    console().print(
        "violation: share of all trials whose true error exceeds α, which δ bounds; if certified: of the trials that certified anything; coverage: 0 "
        "where nothing was; each ± standard error. paper: violation if certified / coverage. A standard error of 0 proves nothing: --json has the upper "
        "95 % bound."
    )


def _rate(value: float | None, error: float | None) -> str:
    return "–" if value is None or error is None else f"{_short(value)} ± {_short(error)}"


def _short(share: float) -> str:
    return f"{share:.3f}".removeprefix("0")
