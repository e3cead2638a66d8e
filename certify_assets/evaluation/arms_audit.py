"""Candidates of GRPO on TEST: the choice between the best and the worst candidate.

Every certificate is registered first, and every read goes through the ledger. The best one on TEST
is chosen with TEST's outcomes: it says what a better choice could have had, and is never deployed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from certify_assets.errors import LedgerError, StaleCertificateError
from certify_assets.evaluation.anchors import anchor_heads, require_anchored
from certify_assets.evaluation.ledger import (
    READ_KINDS,
    LedgerEntry,
    last_result,
    ledger_entries,
    ledger_violations,
    reading_delta,
    reading_number,
    record_read,
    record_result,
    register,
    require_in_ledger,
)
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.arms import arm_key, scored_candidate, train_arm
from certify_assets.judges.base import judge_auroc
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.rewards import CONTROLS
from certify_assets.judges.record import columns
from certify_assets.judges.reinforced import START, Candidate, candidates, controls
from certify_assets.judges.selection import Bracket, Selection, SelectionDocument, bracket, select
from certify_assets.judges.specs import DELTA, PROCEDURES, SIDES, JudgeSpec
from certify_assets.storage.progress import Report, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate


class ArmsCell(SelectionDocument):
    """The choice at one side and budget; `chosen` is the deployed one, `cal_pick` CAL's here."""

    side: str
    alpha: float
    cal_pick: str


class ArmsPlan(TypedDict):
    """What is registered before TEST is read: all candidates and controls with their scores."""

    # of the corpus; earlier plans have neither
    trajectories_sha256: str
    version: int
    corpus: str
    judge: str
    split: str
    renderer_sha256: str
    adapter_sha256: str
    deployed: str
    selection_rule: str
    procedure: str
    delta: float
    grid: int
    arms: dict[str, str]
    scores: dict[str, str]
    auroc: dict[str, float | None]
    cells: list[ArmsCell]


class ArmResult(TypedDict):
    """A candidate or control on TEST, with an audit for each cell of the plan."""

    auroc: float | None
    audits: list[dict[str, float | str | bool | None]]


class ArmsAudit(TypedDict):
    """The audit of all candidates and controls; how TEST was read is not stored."""

    plan: ArmsPlan
    registration: str
    results: dict[str, ArmResult]
    ledger_head: str
    brackets: list[Bracket]
    ledger_reads: NotRequired[dict[str, str]]


def audit_arms(judged: JudgedCorpus, *, run_id: str = "cli", report: Report = silent) -> ArmsAudit:
    """Register every candidate's and control's certificates, and read TEST for each."""
    # missing controls are trained; reading the same hashes again is a replay with the same results
    folder = judged.key()
    if judged.store.exists(f"{folder}/arms_audit.json"):
        require_in_ledger(
            judged.corpus,
            str(judged.store.read_json(f"{folder}/arms_audit.json").get("ledger_head", "")),
        )
    plan, certificates = plan_arms(judged, report=report)
    require_anchored(judged.corpus)
    registration = register(judged.corpus, plan, run_id=run_id)
    tables, reads = {}, {}
    runs = judged.corpus.run_contents("test")
    for each in _entries(judged.spec):
        tables[each.name], hashes = scored_candidate(judged, each, "test", report=report)
        configuration = {
            **hashes,
            "certificates": [item.sha256 for item in certificates[each.name]],
        }
        judge = f"{judged}/{each.name}"
        reads[each.name] = record_read(
            judged.corpus,
            judge=judge,
            registration=registration,
            configuration=configuration,
            run_id=run_id,
            runs=runs,
        )
    _refuse_changed(judged.corpus.name, judged.spec, reads.values())
    readings = {name: reading_number(judged.corpus, entry) for name, entry in reads.items()}
    outcomes = judged.corpus.split("test")[["trajectory_id", "outcome"]]
    results = {
        name: _result(tables[name], outcomes, certificates[name], number)
        for name, number in readings.items()
    }
    head = ""
    for name, entry in reads.items():
        head = record_result(judged.store, entry, _sha256(results[name]))
    anchor_heads(judged.corpus)
    document: ArmsAudit = {
        "plan": plan,
        "registration": registration,
        "results": results,
        "ledger_head": head,
        "brackets": brackets(plan, results),
    }
    judged.store.write_json(f"{folder}/arms_audit.json", document)
    return {**document, "ledger_reads": {name: entry.kind for name, entry in reads.items()}}


def plan_arms(
    judge: JudgedCorpus, *, report: Report = silent
) -> tuple[ArmsPlan, dict[str, list[Certificate]]]:
    """Certify every candidate and control on CAL; return the plan to register, and these."""
    adapter = judge.sibling(judge.spec.name).artifact
    keys = {arm: arm_key(judge, arm) for arm in [*judge.spec.arms, *CONTROLS]}
    stale = (
        f"the adapter of {judge.spec.name} on {judge.corpus} was not chosen among the arms of "
        f"now; materialize judges/{judge.spec.name}/model again."
    )
    if adapter.details["arms"] != {arm: keys[arm] for arm in judge.spec.arms}:
        raise StaleCertificateError(stale)
    for arm in keys:
        train_arm(judge, arm, report=report)
    tables, hashes = {}, {}
    for each in _entries(judge.spec):
        tables[each.name], hashes[each.name] = scored_candidate(judge, each, "cal", report=report)
    deployed = adapter.details["chosen"]
    if hashes[deployed]["adapter_sha256"] != adapter.adapter_sha256:
        raise StaleCertificateError(stale)
    about = {
        "corpus": judge.corpus.name,
        "judge": judge.spec.name,
        "split": "cal",
        "renderer_sha256": judge.renderer.sha256,
    }
    provenance = {name: {**about, "arm": name, **found} for name, found in hashes.items()}
    cells = {
        (side, alpha): _selection(judge, tables, provenance, (side, alpha))
        for side in SIDES
        for alpha in judge.corpus.config.alphas
    }
    version = judge.corpus.version
    plan: ArmsPlan = {
        "trajectories_sha256": version.trajectories_sha256,
        "version": version.number,
        "corpus": about["corpus"],
        "judge": about["judge"],
        "split": about["split"],
        "renderer_sha256": about["renderer_sha256"],
        "adapter_sha256": adapter.adapter_sha256,
        "deployed": deployed,
        "selection_rule": adapter.selection_rule,
        "procedure": PROCEDURES[0],
        "delta": DELTA,
        "grid": judge.corpus.config.thresholds(PROCEDURES[0]),
        "arms": keys,
        "scores": {name: found["scores_sha256"] for name, found in hashes.items()},
        "auroc": {name: judge_auroc(table) for name, table in tables.items()},
        "cells": [
            {
                "side": side,
                "alpha": alpha,
                **found.to_dict(),
                "chosen": deployed,
                "cal_pick": found.chosen,
            }
            for (side, alpha), found in cells.items()
        ],
    }
    return plan, {
        name: [(found.certificates | found.controls)[name] for found in cells.values()]
        for name in tables
    }


def load_arms_audit(judge: JudgedCorpus) -> ArmsAudit:
    """Return the stored audit of a judge's candidates; refuse an altered or stale one."""
    document: ArmsAudit = judge.store.read_json(judge.key("arms_audit.json"))
    require_in_ledger(judge.corpus, document["ledger_head"])
    again = f"materialize judges/{judge.spec.name}/arms_audit again."
    entries = ledger_entries(judge.corpus)
    registered = {entry.registration for entry in entries if entry.kind == "registration"}
    if document["registration"] not in registered & {_sha256(document["plan"])}:
        raise LedgerError(
            f"the plan of the arms of {judge.spec.name} on {judge.corpus} is not the registered "
            f"one: it was altered; {again}"
        )
    for name, result in document["results"].items():
        read = last_result(entries, f"{judge.spec.name}/{name}")
        if read is None or (read.configuration, read.registration) != (
            _sha256(result),
            document["registration"],
        ):
            raise LedgerError(
                f"the audit of {name} of {judge.spec.name} on {judge.corpus} is not what the "
                f"last read of TEST gave; {again}"
            )
    if brackets(document["plan"], document["results"]) != document["brackets"]:
        raise LedgerError(
            f"the brackets of {judge.spec.name} on {judge.corpus} are not those of its audits: "
            f"they were altered; {again}"
        )
    if document["plan"]["adapter_sha256"] != judge.sibling(judge.spec.name).artifact.adapter_sha256:
        raise StaleCertificateError(
            f"the arms of {judge.spec.name} on {judge.corpus} were audited for another adapter "
            f"than the deployed one; {again}"
        )
    return document


def verify_arms(judge: JudgedCorpus) -> str | None:
    """Certify every candidate again from the stored scores; return what differs, if anything."""
    document = load_arms_audit(judge)
    plan, _ = plan_arms(judge)
    if _sha256(plan) == document["registration"]:
        return None
    differing = next(
        (name for name, value in plan.items() if document["plan"].get(name) != value), "cells"
    )
    return (
        f"{differing} of the arms is not what was registered; materialize "
        f"judges/{judge.spec.name}/arms_audit again."
    )


def brackets(plan: ArmsPlan, results: Mapping[str, ArmResult]) -> list[Bracket]:
    """Put the deployed candidate between the best and the worst on TEST, for each cell."""
    return [
        bracket(cell, {name: result["audits"][place] for name, result in results.items()})
        for place, cell in enumerate(plan["cells"])
    ]


def arm_reads(judge: JudgedCorpus) -> tuple[dict[str, int], list[LedgerEntry]]:
    """Count the reads of TEST by the candidates, by kind; return the violations as well."""
    prefix = f"{judge}/"
    kinds = [
        entry.kind
        for entry in ledger_entries(judge.corpus)
        if entry.judge.startswith(prefix) and entry.kind != "result"
    ]
    broken = [entry for entry in ledger_violations(judge.corpus) if entry.judge.startswith(prefix)]
    return {kind: kinds.count(kind) for kind in READ_KINDS}, broken


def _entries(spec: JudgeSpec) -> tuple[Candidate, ...]:
    return (*candidates(spec), *controls(spec))


def _selection(
    judge: JudgedCorpus,
    tables: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Mapping[str, str]],
    cell: tuple[str, float],
) -> Selection:
    from certify_assets.certificates import Settings

    spec, grid = judge.spec, judge.corpus.config.grid
    _, outcomes, tasks = columns(tables[START])
    scores = {name: table["score"].to_numpy(float) for name, table in tables.items()}
    return select(
        {each.name: scores[each.name] for each in candidates(spec)},
        outcomes,
        tasks,
        settings=Settings(
            side=cell[0], alpha=cell[1], delta=DELTA, procedure=PROCEDURES[0], grid=grid
        ),
        baseline=START,
        provenance=provenance,
        controls={each.name: scores[each.name] for each in controls(spec)},
    )


def _result(
    table: pd.DataFrame,
    outcomes: pd.DataFrame,
    certificates: Sequence[Certificate],
    reading: int,
) -> ArmResult:
    from certify_assets.certificates import audit_certificate

    joined = table.drop(columns="outcome").merge(
        outcomes, on="trajectory_id", how="left", validate="one_to_one"
    )
    joined = joined[joined["outcome"].notna()]
    audits = [
        {
            "side": item.side,
            "alpha": item.alpha,
            "threshold": item.threshold,
            **audit_certificate(
                item, *columns(joined), delta=reading_delta(item.delta, reading)
            ).to_dict(),
            **({} if reading == 1 else {"reading": reading}),
        }
        for item in certificates
    ]
    return {"auroc": judge_auroc(joined), "audits": audits}


def _refuse_changed(corpus: str, spec: JudgeSpec, reads: Iterable[LedgerEntry]) -> None:
    changed = next((entry for entry in reads if entry.kind == "changed"), None)
    if changed is not None:
        raise LedgerError(
            f"TEST of {corpus} was read before for {changed.judge} under the same registration "
            "with other scores, and the result was seen; restore the adapter and scores of that "
            f"read, or train {spec.name} again."
        )


def _sha256(value: Any) -> str:
    return sha256_bytes(canonical_json(value))
