"""``certify certificate`` and ``certify show``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from certify_assets.certificates import (
    EVERY_PROCEDURE,
    Certificate,
    CertificateSet,
    Certifier,
    Settings,
    Sides,
    settings_of,
)
from certify_assets.certificates.certificate_files import read_certificate_file
from certify_assets.certificates.ladder import issue, nearest_side, next_rung
from certify_assets.certificates.procedures import AVERAGE, CONFIDENT, PROMISED, PROMISES
from certify_assets.certificates.sides import budget_words, weaker_words
from certify_assets.cli.gate import min_coverage_option, report_gate, too_little
from certify_assets.cli.options import (
    PLANNED,
    as_given,
    given_command,
    judge_option,
    labels_option,
    out_option,
    scores_argument,
    setting_option,
    settings_help,
    truth_option,
)
from certify_assets.cli.output import (
    NOTHING,
    PATH,
    TextTable,
    answer,
    answers,
    complain,
    figures,
    refuse_overwrite,
    wants_json,
    write_document,
)
from certify_assets.cli.plan import plan_words
from certify_assets.cli.reading import (
    calibration,
    read_pilot,
    read_pool,
    reading_options,
    reading_words,
)
from certify_assets.errors import ForgedCertificateError, UnlabelledRunError
from certify_assets.files import canonical_json, sha256_bytes, sha256_file
from certify_assets.tables.drawn import DrawnFile
from certify_assets.tables.settings import ReadingOptions
from certify_assets.words import WORDS, number_of, percent

_BAR = 60
_MARKS = {"reject": "█", "human": "░", "release": "▒"}
_NOT_HOLDING = "none under clustering"
_MOST_FINDINGS, _NAMED_FINDINGS = 2, 3
#: findings that say what a certificate is worth
_FIRST_FINDINGS = ("any_judge", "few_tasks")
_FIGURES = (
    "promise",
    "procedure",
    "certified",
    "coverage",
    "alpha",
    "delta",
    "threshold",
    "selective_error",
    "covered_tasks",
    "tasks",
    "trajectories",
    "success_rate",
    "icc",
    "deff",
    "n_eff",
    "effective_tasks",
    "tail",
    "level",
    "estimand",
    "validity",
    "sha256",
)
#: options of their own
_CHOSEN = ("alpha", "procedure", "side")
_RARE = [name for name in Settings.model_fields if name not in _CHOSEN]
_JOINT = (
    "joint=true certifies both sides together at 1 − δ. pilot=FILE names the labelled scores of "
    "other tasks that betting needs (rows with split=pilot, or else split=rl). "
)
#: said next to every certificate that is proved
_SIX = "This promise is proved under six assumptions: `certify show FILE` lists them."


@click.command()
@scores_argument
@click.option(
    "--side",
    type=click.Choice(["reject", "release", "both"]),
    help="Decision to certify: auto-fail (reject) or auto-pass (release). [default: both]",
)
@setting_option("alpha")
@setting_option("procedure", more="; or all, side by side")
@click.option(
    "--promise",
    type=click.Choice(PROMISES),
    help="An error within alpha on average, with confidence by simulation, or with a proof. "
    "[default: confident, or proved with --sample; average where that certifies nothing]",
)
@labels_option
@judge_option
@truth_option
@click.option(
    "--sample",
    type=PATH,
    help="The file that certify sample wrote, with or without its labels.",
)
@click.option(
    "--pool",
    type=PATH,
    help="Scores of other tasks, from which pseudo_task learns how unequal tasks are in size.",
)
@out_option
@min_coverage_option
@reading_options(*_CHOSEN, *_RARE, "joint", "pilot", about=settings_help(_RARE) + _JOINT)
@answers
def certificate(
    scores: Path,
    out: Path | None,
    promise: str | None,
    labels: Path | None,
    sample: Path | None,
    pool: Path | None,
    judge: str | None,
    truth: str | None,
    min_coverage: float | None,
    reading: ReadingOptions,
    settings: dict[str, Any],
    **options: str | float | None,
) -> None:
    """Certify what share of trajectories a judge may decide alone, on both sides.

    SCORES is a table (CSV, TSV, Parquet, Arrow, JSON, JSON Lines, Excel), or a log that certify
    doctor reads. Where a log has several judges or truths, name them with --judge and --truth.
    A table has the columns task_id, score and outcome. A higher score is more likely a success; an
    empty one is unscored. An outcome is 0, 1, or a word such as fail or pass.
    The columns trajectory_id, agent and split are optional; with split, the rows
    with split=cal are used. The document holds a certificate a side and the shares decided and left
    to people. With --side it is one certificate.
    """
    asked = {**settings, **{name: value for name, value in options.items() if value is not None}}
    side, joint = asked.pop("side", "both"), asked.pop("joint", False)
    procedure = asked.get("procedure")
    pilot = None if "pilot" not in asked else Path(str(asked.pop("pilot")))
    if out and pilot:
        refuse_overwrite([("--out", out)], [("--set pilot", pilot)])
    _refuse(joint, procedure, pilot, min_coverage)
    drawn = None if sample is None else DrawnFile.read(sample, reading)
    rows = calibration(scores, reading, labels=labels, drawn=drawn, judge=judge, truth=truth)
    same = rows.options_of_more(reading)
    certifier = Certifier.of(
        **rows.evidence,
        pilot=None if pilot is None else read_pilot(pilot, same),
        pool=None if pool is None else read_pool(pool, same),
    )
    try:
        found = issue(certifier, asked, side=side, promise=promise, joint=joint)
    except UnlabelledRunError as needed:
        assert drawn is not None
        other = " Or name one side (--side)." if side == "both" else ""
        raise UnlabelledRunError(
            f"{drawn.more_labels(needed, rows)}{other}", needed.task, needed.score
        ) from None
    single = procedure != "all" and side != "both"
    document = found.certificates[0].to_dict() if single else found.to_dict()
    if out is not None:
        write_document(out, document)
    little = too_little(found.sides.decided, min_coverage)
    lead = found.certificates[0]
    promised = [*weaker_words(lead), *found.promise.splitlines()] if found.certified else []
    report_gate(
        scores.name,
        [found.sides.sentence, _bar(found.sides), *promised],
        ([] if found.certified else [found.sides.sentence]) + little,
        list(_findings(found.certificates)),
    )
    for sentence in little:
        complain(sentence)
    more = [_SIX] if found.certified and lead.promise != CONFIDENT else []
    named = ["--judge", judge] if judge else []
    named += ["--truth", truth] if truth and labels is None else []
    joined = bool(labels or sample)
    plan = partial(_plan, certifier, scores, reading, asked, named=named, joined=joined)
    # where the promise of confidence fails, findings say what it takes
    rung = None
    if procedure is None and (found.certified or lead.promise != CONFIDENT) and not wants_json():
        rung = next_rung(certifier, found, settings_of(lead))
    if rung is not None:
        more.append(rung.sentence)
    # a plan guesses from the AUROC alone what the labels of a draw show
    planned = rung is None or sample is None
    following = None
    if rung is not None and planned:
        following = plan(plan_words(rung.side, PROMISED[rung.promise], rung.tasks))
    if not found.certified and rung is not None and rung.promise == lead.promise:
        step, following = following, None
    elif not found.certified:
        near = nearest_side(certifier, found, settings_of(lead))
        step = plan(plan_words(near, lead.procedure)) if planned else None
    elif little:
        step = None
    elif out is None:
        step = given_command("--out", "certificate.json")
    else:
        # of several procedures the default, unless it certifies nothing
        chosen = next(item.procedure for item in found.certificates if item.certified)
        choice = ["--procedure", chosen] if procedure == "all" else []
        new = "NEW_SCORES" if isinstance(rows.source, Path) else "NEW_RUNS"
        step = shlex.join(["certify", "decide", str(out), new, *choice])
    ends = [] if out is None else [f"wrote {out}"]
    ends += [f"next: {step}"] if step else []
    answer(
        document,
        *_summary(found, more, out),
        "; ".join(ends) or None,
        f"for the promise {rung.promise}: {following}" if rung and following else None,
        code=0 if found.certified and not little else NOTHING,
    )


def _plan(
    certifier: Certifier,
    scores: Path,
    reading: ReadingOptions,
    asked: Mapping[str, Any],
    chosen: Sequence[str],
    *,
    named: Sequence[str],
    joined: bool,
) -> str:
    """Return the command that plans under the same settings; empty where nothing helps."""
    known = certifier.table.labelled
    if np.isnan(certifier.table.scores).all():
        # neither labels nor tasks help where there are no scores
        return ""
    words = ["certify", "plan", as_given(scores), *named]
    words += ["--alpha", str(asked["alpha"])] if "alpha" in asked else []
    words += chosen
    for name in PLANNED:
        words += ["--set", f"{name}={asked[name]}"] if name in asked else []
    if joined or known.auroc is None:
        # plan reads the table alone; its guess is between 0 and 1, whatever few labels show
        rate = float(np.clip(known.outcomes.mean(), 0.01, 0.99)) if known.rows else 0.5
        words += ["--success-rate", f"{rate:.3g}", "--auroc", f"{known.auroc or 0.5:.3g}"]
    return shlex.join([*words, *reading_words(reading)])


def _refuse(
    joint: object, procedure: str | None, pilot: Path | None, min_coverage: float | None
) -> None:
    if min_coverage is not None and procedure == "all":
        raise click.UsageError("--min-coverage needs one procedure. Name it with --procedure.")
    if procedure != "all" and (pilot is None) == (procedure == "betting"):
        raise click.UsageError(
            f"{procedure or EVERY_PROCEDURE[0]} does not fit the pilot. Betting needs one (--set "
            "pilot=FILE), and no other procedure reads it."
        )
    if joint not in (False, True):
        raise click.UsageError(f"joint is {joint!r}; write joint=true or joint=false.")


def _summary(found: CertificateSet, more: Sequence[str], out: Path | None) -> list[Any]:
    """Return what people read of certificates of one table: at most seven lines.

    The lines of `more` take the place of findings.
    """
    items, findings = found.certificates, _findings(found.certificates)
    if len({item.procedure for item in items}) > 1:
        return [_procedures(items), *findings, *_left_out(items), *more]
    shown = max(0, _MOST_FINDINGS - len(more))
    if hidden := list(findings.values())[shown:]:
        codes = ", ".join(dict.fromkeys(hidden[:_NAMED_FINDINGS]))
        codes += ", …" * (len(hidden) > _NAMED_FINDINGS)
        plural = "s" * (len(hidden) > 1)
        seen = shlex.join(["certify", "show", "FILE" if out is None else str(out)])
        more = [f"{len(hidden)} more finding{plural} ({codes}): {seen}", *more]
    # where nothing is certified, the first line says it
    promise = [found.promise] if found.certified else []
    return [*_decided(found), *promise, *list(findings)[:shown], *more]


def _decided(found: CertificateSet) -> list[str]:
    """Say what is decided, as a sentence, a bar and numbers of runs."""
    sides, lead = found.sides, found.certificates[0]
    runs = {name: round(share * lead.trajectories) for name, share in sides.shares.items()}
    counts = ", ".join(f"{runs[name]:,} {word}" for name, word in WORDS.items())
    trust = f"{100 * (1 - lead.delta):.4g} % confidence"
    if lead.promise == AVERAGE:
        trust = f"at most twice that with {trust}"
    size = f"{number_of(lead.trajectories, 'run')} of {number_of(lead.tasks, 'task')}"
    top = weaker_words(lead) if found.certified else []
    return [*top, sides.sentence, _bar(sides), f"{size}: {counts}; {budget_words(lead)}, {trust}"]


def _bar(sides: Sides) -> str:
    """Draw the shares: auto-fail, review, auto-pass."""
    cells = {side: round(_BAR * sides.shares[side]) for side in ("reject", "release")}
    cells["human"] = _BAR - sum(cells.values())
    legend = " ".join(f"{mark} {WORDS[name]}" for name, mark in _MARKS.items())
    return "".join(mark * cells[name] for name, mark in _MARKS.items()) + f"  {legend}"


def _findings(certificates: Sequence[Certificate]) -> dict[str, str]:
    """Return each finding once, with the certificates that carry it, and its code.

    Those that a reader must know before relying on a certificate come first.
    """
    several = len({item.procedure for item in certificates}) > 1
    owners: dict[tuple[str, str], list[str]] = {}
    for item in certificates:
        word = WORDS[item.side]
        name = f"{item.procedure} {word}" if several else word
        reversed_scores = any(said["code"] == "scores_look_reversed" for said in item.findings)
        for finding in item.findings:
            # of several procedures the table says it; reversed scores are the reason themselves
            if finding["code"] == "nothing_passes" and (several or reversed_scores):
                continue
            owners.setdefault((finding["code"], finding["message"]), []).append(name)
    named = len(certificates) > 1 and not several
    return {
        f"{', '.join(owners[code, text])}: {code}: {text}" if named else f"{code}: {text}": code
        for code, text in sorted(owners, key=lambda finding: finding[0] not in _FIRST_FINDINGS)
    }


def _left_out(certificates: Sequence[Certificate]) -> list[str]:
    """Name the procedures that cannot serve, where all were asked for."""
    found = {item.procedure for item in certificates}
    missing = [name for name in EVERY_PROCEDURE if name not in found]
    if not missing:
        return []
    return [
        f"These procedures do not fit the table or the settings: {', '.join(missing)}. To see why, "
        "name one with --procedure."
    ]


def _procedures(certificates: Sequence[Certificate]) -> TextTable:
    """Return a row a procedure, marked where it decides most of those that hold."""
    rows: dict[str, list[Certificate]] = {}
    for item in certificates:
        rows.setdefault(item.procedure, []).append(item)
    decided = {name: Sides(tuple(items)).decided for name, items in rows.items()}
    holding = [name for name, items in rows.items() if items[0].validity != _NOT_HOLDING]
    best = max(holding, key=lambda name: decided[name], default="")
    return TextTable(
        "Procedures. ▸ marks the widest one that is valid when runs share a task. "
        f"To choose one by its result, certify with --set candidates={len(rows)}.",
        ["procedure", *(WORDS[item.side] for item in next(iter(rows.values()))), "validity"],
        [
            [
                f"{'▸' if name == best and decided[name] else ' '} {name}",
                *(percent(item.coverage) if item.certified else "nothing" for item in items),
                items[0].validity,
            ]
            for name, items in rows.items()
        ],
    )


@click.command()
@click.argument("file", type=PATH)
@answers
def show(file: Path) -> None:
    """Show a certificate in words, with its hashes.

    FILE is one certificate or a document of several, also one of the platform. Only FILE is read.
    Its digests are checked (exit 3 where one does not fit). To recompute the figures from the
    scores, use `certify verify`.
    """
    given = read_certificate_file(file)
    try:
        found = given.checked()
    except ForgedCertificateError as error:
        raise ForgedCertificateError(f"{file}: {error}") from None
    groups: dict[str, list[Certificate]] = {}
    for item in found.certificates:
        groups.setdefault(f"{item.procedure}, α = {item.alpha:g}", []).append(item)
    blocks: list[Any] = []
    for title, items in groups.items():
        blocks += [title, *_whole(CertificateSet(tuple(items)))]
    first = found.certificates[0]
    if proved := [item for item in found.certificates if item.promise != CONFIDENT]:
        blocks += ["The proof holds under six assumptions"]
        blocks += [f"  {number}. {text}" for number, text in enumerate(proved[0].assumptions, 1)]
    document = given.document if given.several else first.to_dict()
    canonical = sha256_bytes(canonical_json(document))
    hashes = {"file": sha256_file(file), "canonical": canonical}
    each = {
        f"{WORDS[item.side]}, {item.procedure}, α = {item.alpha:g}": item.sha256
        for item in found.certificates
    }
    table = {name: value for name, value in first.inputs.items() if name != "tasks"}
    for title, rows in (
        ("SHA-256 of the file, of its canonical JSON, and of each certificate", {**hashes, **each}),
        ("Provenance: how the table was read, and what made its scores", first.provenance),
        ("Table", table),
    ):
        # whole lines, from which a hash can be copied
        blocks += [title, *(f"  {name}: {_copied(rows[name])}" for name in rows)] if rows else []
    items_ = [{**item.to_dict(), "sha256": item.sha256} for item in found.certificates]
    answer({**hashes, "certificates": items_, **found.outline()}, *blocks)


def _whole(found: CertificateSet) -> list[Any]:
    """Return all that people read of certificates of one procedure and budget."""
    items = found.certificates
    each = [{**item.to_dict(), "sha256": item.sha256} for item in items]
    names = [WORDS[item.side] for item in items] if len(items) > 1 else []
    return [
        *_decided(found),
        *figures("Certificate", *each, most=_FIGURES, names=names),
        *(
            f"The success rate is that of the labelled runs: {item.inputs['labels']:,} of "
            f"{item.inputs['rows']:,} were read."
            for item in items[:1]
            if item.partly_labelled
        ),
        found.promise,
        *_findings(items),
    ]


def _copied(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return str(value)
