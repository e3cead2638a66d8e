"""``certify certificate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.figures import verbose_option
from certify_assets.cli.gate import (
    MIN_COVERAGE,
    Case,
    CiResult,
    coverage_case,
    gated,
    min_coverage_option,
    report,
)
from certify_assets.cli.options import (
    DEFAULT_PROCEDURE,
    PATH,
    alpha_option,
    labelled,
    out_option,
    read_pilot,
    read_pool,
    read_scores,
    reading_options,
    scores_argument,
)
from certify_assets.cli.output import (
    NOTHING,
    complain,
    emit_json,
    json_option,
    percent,
    refuse_overwrite,
    show_line,
    show_table,
    write_document,
)
from certify_assets.files import shortest
from certify_assets.tables.score_reading import ReadingOptions

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate, CertificateSet, Sides

_SIDE_BY_SIDE = 2
_BAR = 60
_MARKS = {"reject": "█", "human": "░", "release": "▒"}
_NOT_HOLDING = "none under clustering"
#: findings that say of a procedure why it certifies nothing, as a cell says it
_OF_PROCEDURE = {
    "pilot_missing": "needs --pilot",
    "nothing_passes": "nothing",
}
_PROCEDURE_HELP = (
    "pseudo_task (calibrated by simulation; takes --pool), guarded_taskboot, taskboot, naive, "
    "deff, one_per_task, task_hoeffding or betting (proved at any number of tasks; needs --pilot); "
    "or 'all' for every one side by side."
)
_SETTINGS = (
    "delta",
    "joint",
    "guard",
    "size_ratio",
    "grid",
    "engine",
    "draws",
    "seed",
    "candidates",
)
_ABOUT_SETTINGS = (
    "Rare settings of the certificate, such as delta=.05, joint=true (both sides together at "
    "1−δ), candidates=3 (judges compared on this table); docs/certificates.md lists all. "
)


@click.command()
@scores_argument
@click.option(
    "--side",
    type=click.Choice(["reject", "release", "both"]),
    default="both",
    show_default=True,
    help="Which decision to certify.",
)
@alpha_option
@click.option("--procedure", default=DEFAULT_PROCEDURE, show_default=True, help=_PROCEDURE_HELP)
@click.option(
    "--pilot",
    type=PATH,
    help=(
        "Scores of other, labelled tasks, from which betting takes thresholds, start and bets "
        "(its rows with split=pilot, or else split=rl)."
    ),
)
@click.option(
    "--pool",
    type=PATH,
    help=(
        "Scores of other, unlabelled tasks, from which pseudo_task takes how unequal tasks are in "
        "size (its rows without split=cal); outcomes are not read."
    ),
)
@out_option
@min_coverage_option
@reading_options(*_SETTINGS, about=_ABOUT_SETTINGS)
@verbose_option
@json_option
@click.pass_context
@gated
def certificate(
    ctx: click.Context,
    /,
    scores: Path,
    out: Path | None,
    as_json: bool,
    pilot: Path | None,
    pool: Path | None,
    min_coverage: float | None,
    verbose: bool,
    reading: ReadingOptions,
    settings: dict[str, Any],
    side: str,
    procedure: str,
    alpha: float,
) -> None:
    """Certify what share of trajectories a judge may decide alone, on both sides.

    SCORES is a table (CSV, TSV, Parquet, Arrow, JSON, JSON Lines or Excel) with the columns
    task_id, score (higher = more likely a success; empty = unscored) and outcome (0 or 1, or words
    such as fail and pass), optionally trajectory_id, agent and split (then the rows with split=cal
    are used). The document holds a certificate a side, and the shares decided and left to people;
    with --side, one certificate.
    """
    from certify_assets.certificates import EVERY_PROCEDURE

    given = {"SCORES": scores, "--pilot": pilot, "--pool": pool}
    refuse_overwrite({"--out": out}, given)
    if min_coverage is not None and procedure == "all":
        raise click.UsageError("--min-coverage goes with one procedure; name it.")
    _refuse(side, procedure, settings, pilot=pilot, pool=pool)
    procedures = EVERY_PROCEDURE if procedure == "all" else (procedure,)
    sides = ("reject", "release") if side == "both" else (side,)
    settings["alpha"] = alpha
    found = _certify(scores, reading, sides, procedures, pilot, pool, **settings)
    single = procedure != "all" and side != "both"
    document = found.certificates[0].to_dict() if single else found.to_dict()
    if out is not None:
        write_document(out, document)
    for sentence in _unread(procedures, settings):
        complain(sentence)
    if as_json:
        emit_json(document)
    else:
        show_certificates(found, verbose=verbose)
        if out is not None:
            certified = any(item.certified for item in found.certificates)
            command = f"decide {out} NEW_SCORES" if certified else f"plan {scores}"
            show_line(f"wrote {out}\nnext: certify {command}")
    result = _gate_result(found, scores, min_coverage)
    report(result)
    for case in result.failed:
        if case.name == MIN_COVERAGE:
            complain(case.message)
    ctx.exit(NOTHING if result.failed else 0)


def _gate_result(found: CertificateSet, scores: Path, minimum: float | None) -> CiResult:
    from certify_assets.certificates import Sides

    sides = found.sides or Sides(found.certificates[:1])
    several = len({item.procedure for item in found.certificates}) > 1
    opened = any(item.certified for item in found.certificates)
    cases = [
        Case(
            f"{item.procedure} {item.side}" if several else item.side,
            "passed" if item.certified else "skipped" if opened else "failed",
            f"{_certified(item)} at a {_region(item)}, error at most {100 * item.alpha:g} %"
            if item.certified
            else item.promise,
        )
        for item in found.certificates
    ]
    promise = found.promise or sides.certificates[0].promise
    return CiResult(
        scores.name,
        sides.sentence,
        (*cases, *coverage_case(sides.decided, minimum)),
        bar=_bar(sides),
        promise=tuple(promise.splitlines()),
        warnings=tuple(
            f"{', '.join(names)}: {code}: {message}"
            for (code, message), names in _gathered(list(found.certificates)).items()
        ),
    )


def _certify(
    scores: Path,
    reading: ReadingOptions,
    sides: Sequence[str],
    procedures: Sequence[str],
    pilot: Path | None,
    pool: Path | None,
    **options: Any,
) -> CertificateSet:
    from certify_assets.certificates import certify_sides

    whole = read_scores(scores, reading)
    table, reading = labelled(whole.choose_split("cal")), reading.as_read(whole)
    return certify_sides(
        table.scores,
        table.labels,
        table.tasks,
        sides=sides,
        procedures=procedures,
        pilot=None if pilot is None else read_pilot(pilot, reading),
        pool=None if pool is None else read_pool(pool, reading),
        agents=table.agents,
        named=table.named,
        alone=table.alone,
        provenance=table.reading.provenance(),
        **options,
    )


def _refuse(
    side: str,
    procedure: str,
    settings: Mapping[str, Any],
    *,
    pilot: Path | None,
    pool: Path | None,
) -> None:
    for name, path, reader in (("--pilot", pilot, "betting"), ("--pool", pool, "pseudo_task")):
        if path is not None and procedure not in (reader, "all"):
            raise click.UsageError(
                f"{name} is for {reader}, and {procedure} does not read it; leave it out or name "
                f"{reader} or all."
            )
    if procedure == "betting" and pilot is None:
        raise click.UsageError(
            "betting takes thresholds, start and bets from a pilot; give one (--pilot), scores of "
            "other, labelled tasks."
        )
    joint = settings.get("joint", False)
    if not isinstance(joint, bool):
        raise click.UsageError(f"joint is {joint!r}; give true or false.")
    if joint and side != "both":
        raise click.UsageError("joint is about both sides; add --side both.")


def _unread(procedures: Sequence[str], settings: Mapping[str, object]) -> list[str]:
    """Say which settings change nothing under some of the procedures."""
    from certify_assets.certificates import PROCEDURES

    known = [PROCEDURES[name] for name in procedures if name in PROCEDURES]
    unread = {
        name: [item.name for item in known if not item.reads(name, value)]
        for name, value in settings.items()
    }
    return [
        f"{name} changes nothing under {', '.join(found)}."
        for name, found in unread.items()
        if found
    ]


def show_certificates(found: CertificateSet, *, verbose: bool = False) -> None:
    """Print certificates of one table in words: shares, figures, promise and findings."""
    certificates = list(found.certificates)
    if len(certificates) > _SIDE_BY_SIDE:
        _show_procedures(certificates)
        return
    if found.sides is not None:
        show_line(found.sides.sentence)
        show_line(_bar(found.sides))
    _show_upright(certificates, verbose=verbose)
    show_line(found.promise or certificates[0].promise)
    for finding, names in _gathered(certificates).items():
        owner = f"{', '.join(names)}: " if len(certificates) > 1 else ""
        show_line(f"  {owner}{finding[0]}: {finding[1]}")


def _show_procedures(certificates: list[Certificate]) -> None:
    """Print a row a procedure, marked where it decides most of those that hold; no promises."""
    from certify_assets.certificates import Sides

    rows: dict[str, list[Certificate]] = {}
    for item in certificates:
        rows.setdefault(item.procedure, []).append(item)
    decided = {name: Sides(tuple(items)).decided for name, items in rows.items()}
    holding = [name for name, items in rows.items() if items[0].validity != _NOT_HOLDING]
    best = max(holding, key=lambda name: decided[name], default="")
    best = best if decided.get(best) else ""
    show_table(
        "Procedures, ▸ the one that decides most of those that hold where runs share a task",
        ["procedure", *(item.side for item in next(iter(rows.values()))), "estimand", "validity"],
        [
            [
                f"{'▸' if name == best else ' '} {name}",
                *map(_share_or_reason, items),
                items[0].estimand,
                items[0].validity,
            ]
            for name, items in rows.items()
        ],
    )
    show_line(
        "What each promises: --procedure NAME. One that is chosen by its result is one of "
        f"--set candidates={len(rows)}."
    )
    # a procedure that certifies nothing is a row; what is peculiar to the data is said once
    said: dict[str, str] = {}
    for item in certificates:
        for finding in item.findings:
            if finding["code"] not in _OF_PROCEDURE:
                said.setdefault(finding["code"], finding["message"])
    for code, message in said.items():
        show_line(f"  {code}: {message}")


def _share_or_reason(item: Certificate) -> str:
    if item.certified:
        return percent(item.coverage)
    codes = {finding["code"] for finding in item.findings}
    return next((words for code, words in _OF_PROCEDURE.items() if code in codes), "nothing")


def _bar(sides: Sides) -> str:
    """Draw the shares: rejected, left to reviewers, released."""
    cells = {side: round(_BAR * sides.shares[side]) for side in ("reject", "release")}
    middle = _BAR - sum(cells.values())
    drawn = [_MARKS[name] * number for name, number in ({**cells, "human": middle}).items()]
    return f"{drawn[0]}{drawn[2]}{drawn[1]}  █ rejected ░ human review ▒ released"


def _gathered(certificates: list[Certificate]) -> dict[tuple[str, str], list[str]]:
    """Return each finding once, with the certificates that carry it."""
    several = len({item.procedure for item in certificates}) > 1
    sides = len({item.side for item in certificates}) > 1
    found: dict[tuple[str, str], list[str]] = {}
    for item in certificates:
        name = " ".join([*([item.procedure] if several else []), *([item.side] if sides else [])])
        for finding in item.findings:
            found.setdefault((finding["code"], finding["message"]), []).append(name)
    return found


def _show_upright(certificates: list[Certificate], *, verbose: bool) -> None:
    """Print one column a certificate: a terminal is narrow."""
    figures: dict[str, Callable[[Certificate], str]] = {
        "procedure": lambda item: item.procedure,
        "certified": lambda item: (
            percent(item.coverage) + " of trajectories" if item.certified else "nothing"
        ),
        "error budget": lambda item: (
            f"{100 * item.alpha:g} %, confidence {100 * (1 - item.delta):g} %"
        ),
        "threshold": _region,
        "observed error": lambda item: _rounded(item.selective_error),
        "tasks": lambda item: f"{item.covered_tasks} of {item.tasks} covered",
        "trajectories": lambda item: str(item.trajectories),
        "success rate, ICC": lambda item: f"{item.success_rate:.3f}, {item.icc:.3f}",
        "estimand": lambda item: f"error by {item.estimand}",
        "validity": lambda item: item.validity,
    }
    if verbose:
        figures |= {
            "p-value ≤ cutoff": lambda item: (
                "" if item.tail is None else f"{item.tail:.2e} ≤ {item.level:.2e}"
            ),
            "design effect, effective runs": lambda item: f"{item.deff:.3g}, {item.n_eff:.1f}",
            "effective tasks": lambda item: f"{item.effective_tasks:.1f}",
            "hash of the certificate": lambda item: item.sha256,
        }
    rows = [[name, *[show(item) for item in certificates]] for name, show in figures.items()]
    show_table("Certificate", ["", *[item.side for item in certificates]], rows)


def _certified(item: Certificate) -> str:
    return percent(item.coverage) if item.certified else "nothing"


def _region(item: Certificate) -> str:
    if item.threshold is None:
        return ""
    return f"score {'≤' if item.side == 'reject' else '≥'} {shortest(item.threshold)}"


def _rounded(error: float | None) -> str:
    return "" if error is None else percent(error)
