"""The tables of a certificate page: procedures side by side, findings, facts of the corpus, controls, lineage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from certify_assets.reports.verdict import procedure_words
from certify_assets.reports.wording import compact, count, percent, rate, small

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate
    from certify_assets.reports.source import PageSource

__all__ = [
    "FindingRow",
    "control_rows",
    "corpus_facts",
    "finding_rows",
    "lineage_rows",
    "procedure_table",
]

_VALIDITY: dict[str, str] = {
    "asymptotic": "holds as tasks grow in number",
    "finite-sample": "holds at any number of tasks",
    "conjectured": "holds at any number of tasks, by a conjecture",
    "none under clustering": "does not hold when runs share tasks",
}
_LINEAGE: dict[str, str] = {
    "corpus": "corpus",
    "corpus_sha256": "corpus table",
    "manifest_sha256": "split manifest",
    "judge": "judge",
    "adapter_sha256": "judge's weights or adapter",
    "renderer_sha256": "renderer",
    "prompt_sha256": "prompt",
    "scores_sha256": "score table",
}
_CONTROLS: dict[str, str] = {
    "length_auroc": "text length alone",
    "agent_auroc": "the agent's average alone",
    "step_auroc": "number of steps alone",
    "steps_auroc": "number of steps alone",
}
_HASH = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class ProcedureCell:
    """What one procedure certifies at one budget and side; absent when it was not asked."""

    share: str
    bar: str
    detail: str


@dataclass(frozen=True)
class ProcedureRow:
    """One procedure, across budgets and sides."""

    name: str
    validity: str
    words: str
    deployed: bool
    cells: tuple[ProcedureCell | None, ...]


@dataclass(frozen=True)
class ProcedureTable:
    """Procedures by budgets and sides."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[ProcedureRow, ...]


@dataclass(frozen=True)
class FindingRow:
    """A finding, and which certificates it is on."""

    code: str
    message: str
    where: str
    deployed: bool


@dataclass(frozen=True)
class Fact:
    """A number about the corpus."""

    symbol: str
    value: str
    words: str


@dataclass(frozen=True)
class ControlRow:
    """An AUROC as a bar: the judge's own, or a control's."""

    words: str
    value: float
    text: str
    judge: bool


@dataclass(frozen=True)
class LineageRow:
    """One line of what the page rests on."""

    name: str
    value: str
    is_hash: bool


def procedure_table(source: PageSource) -> ProcedureTable | None:
    """Return what every procedure certifies; None when there is only one, which compares with nothing."""
    names = list(dict.fromkeys(c.procedure for c in source.certificates))
    if len(names) < 2:
        return None
    keys = sorted({(c.alpha, c.side) for c in source.certificates})
    found = {(c.procedure, c.alpha, c.side): c for c in source.certificates}
    deployed = source.headline.procedure
    names.sort(key=lambda name: name != deployed)
    return ProcedureTable(
        columns=tuple((side, percent(alpha)) for alpha, side in keys),
        rows=tuple(
            _procedure_row(name, [found.get((name, *key)) for key in keys], name == deployed)
            for name in names
        ),
    )


def _procedure_row(
    name: str, certificates: list[Certificate | None], deployed: bool
) -> ProcedureRow:
    first = next(c for c in certificates if c is not None)
    by_task = "" if first.estimand == "trajectory" else f"; error counted by {first.estimand}"
    words = _VALIDITY.get(first.validity, "") + by_task
    return ProcedureRow(
        procedure_words(name),
        first.validity,
        words,
        deployed,
        tuple(None if c is None else _procedure_cell(c) for c in certificates),
    )


def _procedure_cell(certificate: Certificate) -> ProcedureCell:
    if not certificate.certified:
        return ProcedureCell("nothing", "", "")
    detail = f"{percent(certificate.selective_error, 2)} wrong, tail {small(certificate.tail)}"
    return ProcedureCell(percent(certificate.coverage), f"{100 * certificate.coverage:.1f}", detail)


def finding_rows(source: PageSource) -> list[FindingRow]:
    """Return every finding of every certificate once, with where it stands; those of the deployed procedure first."""
    places: dict[tuple[str, str], list[Certificate]] = {}
    ordered = sorted(source.certificates, key=lambda c: c.procedure != source.headline.procedure)
    for certificate in ordered:
        for finding in certificate.findings:
            places.setdefault((finding["code"], finding["message"]), []).append(certificate)
        if leak := certificate.provenance.get("accepted_structural_leak"):
            message = f"The outcome can be told without reading the run: {leak}"
            places.setdefault(("accepted_structural_leak", message), []).append(certificate)
        if limits := certificate.provenance.get("training_limits"):
            places.setdefault(("training_limits", f"{limits[0].upper()}{limits[1:]}."), []).append(
                certificate
            )
        if taken := certificate.provenance.get("pseudo_labels"):
            message = f"It is certified on half B of CAL alone, and not all of its training is labelled by people: {taken}."
            places.setdefault(("pseudo_labels", message), []).append(certificate)
        if reason := certificate.provenance.get("no_parity"):
            message = f"The scores were not compared with those of a local model: {reason}"
            places.setdefault(("no_parity", message), []).append(certificate)
    deployed = source.headline.procedure
    return [
        FindingRow(
            code,
            message,
            _where(found, source.certificates),
            any(c.procedure == deployed for c in found),
        )
        for (code, message), found in places.items()
    ]


def _where(found: list[Certificate], everything: Sequence[Certificate]) -> str:
    if len(found) == len(everything):
        return "every certificate"
    parts = []
    for name in dict.fromkeys(c.procedure for c in found):
        mine = [f"{c.side} {percent(c.alpha)}" for c in found if c.procedure == name]
        whole = len(mine) == sum(c.procedure == name for c in everything)
        parts.append(procedure_words(name) + ("" if whole else f" ({', '.join(mine)})"))
    return "; ".join(parts)


def corpus_facts(source: PageSource) -> list[Fact]:
    """Return what the corpus is like: size, clustering, what that leaves."""
    main, profile = source.headline, source.profile
    sizes = np.unique(source.cal.tasks, return_counts=True)[1].astype(float)
    weighted = float(np.square(sizes).sum() / sizes.sum()) if sizes.size else None
    return [
        Fact("n", count(main.trajectories), f"scored runs in {source.evidence}"),
        Fact("G", count(main.tasks), "tasks they belong to"),
        Fact("m̃", compact(weighted), "runs a task (size-weighted)"),
        Fact("π", percent(main.success_rate), "of runs succeed"),
        Fact("ICC", rate(main.icc), "likeness of runs of one task"),
        Fact("DEFF", compact(main.deff), "design effect 1 + (m̃ − 1)·ICC"),
        Fact(Markup("n<sub>eff</sub>"), compact(round(main.n_eff, 1)), "effective runs, n / DEFF"),
        *(
            [Fact("", count(source.cal.unlabelled), "rows without an outcome, left out")]
            if source.cal.unlabelled
            else []
        ),
        *_extra_facts(profile),
    ]


def _extra_facts(profile: Mapping[str, Any]) -> list[Fact]:
    told = {
        "trajectories": "runs in the whole corpus",
        "tasks": "tasks in the whole corpus",
        "agents": "agents",
        "duplicates": "duplicate runs",
    }
    facts = []
    for key, words in told.items():
        value = profile.get(key)
        value = len(value) if isinstance(value, list | tuple | dict | set) else value
        if isinstance(value, int | float):
            facts.append(Fact("", compact(float(value)), words))
    return facts


def control_rows(source: PageSource) -> list[ControlRow]:
    """Return the judge's AUROC on what certifies it and that of every control, for the bars."""
    from certify_assets.certificates.auroc import auroc

    own = float(source.controls.get("judge_auroc") or auroc(source.cal.scores, source.cal.outcomes))
    rows = [ControlRow("the judge", own, rate(own), True)] if np.isfinite(own) else []
    for key, value in source.controls.items():
        if (
            key.endswith("_auroc")
            and key != "judge_auroc"
            and isinstance(value, int | float)
            and np.isfinite(value)
        ):
            words = _CONTROLS.get(key, key.removesuffix("_auroc").replace("_", " ") + " alone")
            rows.append(ControlRow(words, float(value), rate(float(value)), False))
    return rows


def lineage_rows(source: PageSource) -> list[LineageRow]:
    """Return everything the headline certificate rests on, each hash in full."""
    main = source.headline
    given = {**main.provenance, **{key: str(value) for key, value in source.lineage.items()}}
    ordered = [key for key in _LINEAGE if key in given] + sorted(
        key for key in given if key not in _LINEAGE
    )
    rows = [(_LINEAGE.get(key, key.replace("_", " ")), given[key]) for key in ordered]
    rows += [
        ("certified rows (content hash)", str(main.inputs["sha256"])),
        ("rows", count(main.inputs["rows"])),
    ]
    rows += [
        (f"certificate: {c.side}, error ≤ {percent(c.alpha)}", c.sha256) for c in source.deployed
    ]
    rows += [(f"software: {name}", str(value)) for name, value in sorted(main.software.items())]
    rows += [("seed", str(main.seed))]
    return [LineageRow(name, value, bool(_HASH.fullmatch(value))) for name, value in rows]
