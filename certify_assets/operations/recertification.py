"""Recertification: certificates of the deployed judge on CAL and the audit sample together, at a δ of their own.

A recertification is made of CAL with the judge's stored scores, of the tasks that count (`audit_sample`) with the scores that decided them, and of δ_n
(`spending`). Its number is claimed before it is computed; the same inputs are the same recertification. What is left is a folder from which anybody can
recompute it: ``certify verify recertifications/<n>/certificates.json recertifications/<n>/scores.parquet``.

Its population is that of CAL and the audit sample together. Where the runs have changed since CAL was drawn, the mixture says less of those to come than
the audit sample alone does, so each new threshold is also audited on the audit sample alone, and an ERROR there keeps it from being deployed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.evaluation.certification import require_paid
from certify_assets.evaluation.parity import parity_provenance
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, PROCEDURES, SIDES
from certify_assets.operations.audit_sample import (
    OPEN_SHARE,
    REASONS,
    CountedTasks,
    count_audit_tasks,
)
from certify_assets.operations.batches import corpus_lock
from certify_assets.operations.layout import batch_runs, recertification_key, require_as_decided
from certify_assets.operations.monitor_stream import stream_source
from certify_assets.operations.recertified import (
    CERTIFICATES,
    DOCUMENT,
    SCORES,
    load_recertification,
    recertifications,
)
from certify_assets.operations.spending import (
    Claim,
    Schedule,
    Spending,
    claim,
    declare,
    finish,
    read_spending,
)

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate

__all__ = ["RECERTIFICATION_SCHEMA", "Plan", "plan_recertification", "recertify"]

RECERTIFICATION_SCHEMA = "certify_assets/recertification/1"
_COLUMNS = ["task_id", "trajectory_id", "agent", "score", "outcome", "split", "provenance", "batch"]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a recertification would be made of; nothing in it says what would come of it.

    Parameters
    ----------
    judge : str
    table : pandas.DataFrame
        CAL and the tasks that count, sorted by task and run.
    counted : CountedTasks
    new_tasks : tuple of str
        Tasks that no recertification before has counted.
    hashes : mapping of str to str
    candidates : int
    selection : str
    inputs_sha256 : str
        Of the table, the hashes, the candidates, budgets and procedure.
    """

    judge: str
    table: pd.DataFrame
    counted: CountedTasks
    new_tasks: tuple[str, ...]
    hashes: Mapping[str, str]
    candidates: int
    selection: str
    inputs_sha256: str


def plan_recertification(judge: JudgedCorpus) -> Plan:
    """Gather what a recertification would be made of, without a look at what would come of it.

    Raises
    ------
    InputError, IntegrityError
        As `count_audit_tasks` does; and if the adapter's document counts fewer candidates than the judge has: δ is divided by their number.
    StaleCertificateError
        If the judge's scores are of something else than what is stored now.
    """
    cal, hashes, adapter = judge.calibration
    require_paid(judge, adapter.candidates)
    hashes = {**hashes, **parity_provenance(judge)}
    before = _counted_before(judge, hashes["adapter_sha256"])
    counted = count_audit_tasks(
        judge.corpus, adapter_sha256=hashes["adapter_sha256"], before=before
    )
    table = _table(cal, _scored(judge, counted.rows))
    about = {
        "judge": judge.name,
        "rows": [
            [str(row.trajectory_id), str(row.task_id), _number(row.score), int(row.outcome)]
            for row in table.itertuples()
        ],
        "hashes": hashes,
        "candidates": adapter.candidates,
        "alphas": list(ALPHAS),
        "sides": list(SIDES),
        "procedure": PROCEDURES[0],
        "grid": GRID,
    }
    return Plan(
        judge=judge.name,
        table=table,
        counted=counted,
        new_tasks=tuple(task for task in counted.tasks if task not in before),
        hashes=hashes,
        candidates=adapter.candidates,
        selection=adapter.selection_rule,
        inputs_sha256=sha256_bytes(canonical_json(about)),
    )


def recertify(
    judge: JudgedCorpus,
    *,
    schedule: Schedule | None = None,
    reason: str = "",
    least_new_tasks: int | None = None,
) -> tuple[dict[str, Any] | None, str]:
    """Certify the judge on CAL and the audit sample, once for each set of inputs.

    Parameters
    ----------
    store : Store
    corpus, judge : str
    schedule : Schedule, optional
        Declared where none is yet; the default one where none is given.
    reason : str
        Why the schedule changes, where it does.
    least_new_tasks : int, optional
        In place of the schedule's own.

    Returns
    -------
    document : dict or None
        None where too few tasks are new and nothing was spent.
    said : str
        What happened, in a sentence.

    Raises
    ------
    InputError, IntegrityError, StaleCertificateError
        As `plan_recertification` and `claim` do.
    """
    # one at a time: the files of one number are of one reading of the labels
    with corpus_lock(judge.corpus, "recertify"):
        spending = read_spending(judge.corpus)
        if schedule is not None or spending.schedule is None:
            spending = declare(judge.corpus, schedule or Schedule(), reason=reason)
        return _recertified(judge.corpus, plan_recertification(judge), spending, least_new_tasks)


def _recertified(
    corpus: Corpus, plan: Plan, spending: Spending, least_new_tasks: int | None
) -> tuple[dict[str, Any] | None, str]:
    known = next(
        (item for item in spending.claims if item.inputs_sha256 == plan.inputs_sha256), None
    )
    if known is not None and corpus.store.exists(
        key := recertification_key(corpus.name, known.number, DOCUMENT)
    ):
        if known.number not in spending.made:
            # a kill came between the document and its line
            finish(corpus, known.number, corpus.store.sha256(key))
        return load_recertification(
            corpus, known.number
        ), f"these labels are recertification {known.number} already; nothing was spent."
    least = (
        (spending.schedule or Schedule()).least_new_tasks
        if least_new_tasks is None
        else least_new_tasks
    )
    if known is None and len(plan.new_tasks) < least:
        return (
            None,
            f"{len(plan.new_tasks)} tasks are new and complete, {least} are needed; nothing was spent.",
        )
    claimed = claim(corpus, plan.inputs_sha256)
    document = _make(corpus, plan, claimed)
    certified = [item for item in document["sides"] if item["certified"]]
    return (
        document,
        f"recertification {claimed.number}: {len(certified)} of {len(document['sides'])} sides and budgets are certified.",
    )


def _make(corpus: Corpus, plan: Plan, claimed: Claim) -> dict[str, Any]:
    spending, source = read_spending(corpus), stream_source(corpus)
    scores_sha256 = corpus.store.write_table(
        recertification_key(corpus.name, claimed.number, SCORES), plan.table
    )
    certificates = _certify(corpus.name, plan, claimed, spending, source)
    key = recertification_key(corpus.name, claimed.number, CERTIFICATES)
    corpus.store.write_json(key, {"certificates": [item.to_dict() for item in certificates]})
    counted, sides = plan.counted, [_side(item, plan) for item in certificates]
    document = {
        "schema": RECERTIFICATION_SCHEMA,
        "corpus": corpus.name,
        "judge": plan.judge,
        "adapter_sha256": plan.hashes["adapter_sha256"],
        "number": claimed.number,
        "time": claimed.time,
        "delta": claimed.delta,
        "first_delta": DELTA,
        "spent": spending.spent,
        "schedule": "" if spending.schedule is None else spending.schedule.words(),
        "joint": spending.joint(DELTA),
        "inputs_sha256": plan.inputs_sha256,
        "scores_sha256": scores_sha256,
        "certificates_key": key,
        "certificates": [item.sha256 for item in certificates],
        "sides": sides,
        "tasks": {
            "cal": len(set(plan.table.loc[plan.table["provenance"] == "cal", "task_id"])),
            "audit_sample": len(counted.tasks),
        },
        "drawn": counted.drawn,
        "new_tasks": list(plan.new_tasks),
        "left_out": dict(counted.left_out),
        "open_share": counted.open_share,
        "came_again": counted.came_again,
        "findings": _findings(counted, sides),
        "labels": {"lines": source["labels"], "sha256": source["labels_sha256"]},
        "batches": source["batches"],
    }
    # the last of the folder: what a kill left without it is made again under the same number
    finish(
        corpus,
        claimed.number,
        corpus.store.write_json(
            recertification_key(corpus.name, claimed.number, DOCUMENT), document
        ),
    )
    return document


def _certify(
    corpus: str, plan: Plan, claimed: Claim, spending: Spending, source: Mapping[str, Any]
) -> list[Certificate]:
    from certify_assets.certificates import certify

    provenance = {
        "corpus": corpus,
        "judge": plan.judge,
        "split": "cal and audit_sample",
        **plan.hashes,
        "recertification": str(claimed.number),
        "recertification_inputs_sha256": plan.inputs_sha256,
        "audit_tasks": str(len(plan.counted.tasks)),
        "labels_sha256": source["labels_sha256"],
        "decisions_sha256": sha256_bytes(canonical_json(source["batches"])),
        "delta_schedule": "" if spending.schedule is None else spending.schedule.words(),
    }
    rows = columns(plan.table)
    return [
        certify(
            *rows,
            alpha=alpha,
            delta=claimed.delta,
            side=side,
            procedure=PROCEDURES[0],
            grid=GRID,
            candidates=plan.candidates,
            selection=plan.selection or None,
            provenance=provenance,
        )
        for alpha in ALPHAS
        for side in SIDES
    ]


def _side(certificate: Certificate, plan: Plan) -> dict[str, Any]:
    """Return the figures of a certificate: what it covers, how it stands on the audit sample alone, and with every open run wrong."""
    from certify_assets.certificates import audit_certificate

    names = ("side", "alpha", "certified", "threshold", "coverage", "selective_error")
    found: dict[str, Any] = {name: getattr(certificate, name) for name in names}
    found |= {"certificate_sha256": certificate.sha256, "audit_sample": None, "worst_error": None}
    audit = plan.table[plan.table["provenance"] == "audit_sample"]
    if not certificate.certified or audit.empty or certificate.threshold is None:
        return found
    found["audit_sample"] = audit_certificate(certificate, *columns(audit)).to_dict()
    waiting = plan.counted.unresolved["score"].to_numpy(np.float64)
    inside = (
        waiting <= certificate.threshold
        if certificate.side == "reject"
        else waiting >= certificate.threshold
    )
    covered, wrong = (
        certificate.covered_trajectories + int(inside.sum()),
        certificate.errors + int(inside.sum()),
    )
    found["worst_error"] = wrong / covered if covered else None
    return found


def _findings(counted: CountedTasks, sides: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    found = []
    above = [
        f"{side['side']} at {side['alpha']:g}: {side['worst_error']:.3f}"
        for side in sides
        if (side["worst_error"] or 0) > side["alpha"]
    ]
    if counted.open_share > OPEN_SHARE or above:
        worst = (
            f" Were every open run wrong that is decided, the error would exceed the budget ({'; '.join(above)})."
            if above
            else ""
        )
        text = (
            f"{100 * counted.open_share:.0f} % of the drawn tasks that could count are open or tied.{worst} The certificates hold for tasks that got "
            "complete; label the rest, or be sure that whether a task gets complete does not depend on its outcomes."
        )
        found.append({"code": "open_tasks", "message": text})
    found += [
        {"code": name, "message": f"{number} drawn tasks are left out: {REASONS[name]}."}
        for name, number in counted.left_out.items()
    ]
    if counted.came_again:
        text = f"{counted.came_again} tasks that count got attempts after they were counted; those attempts are left out."
        found.append({"code": "came_again", "message": text})
    return found


def _counted_before(judge: JudgedCorpus, adapter_sha256: str) -> dict[str, frozenset[str]]:
    """Return the runs of the tasks that the last recertification of this very judge counted."""
    earlier = [item for item in recertifications(judge.corpus) if item["judge"] == judge.name]
    for document in reversed(earlier):
        if document["adapter_sha256"] == adapter_sha256:
            table = judge.store.read_table(
                recertification_key(judge.corpus.name, document["number"], SCORES)
            )
            rows = table[table["provenance"] == "audit_sample"]
            return {
                str(task): frozenset(map(str, names))
                for task, names in rows.groupby("task_id")["trajectory_id"]
            }
    return {}


def _table(cal: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    # `certify verify` takes the rows of split=cal: all of them are calibration rows now
    parts = [cal.assign(provenance="cal", batch=""), rows.assign(provenance="audit_sample")]
    table = pd.concat(
        [part.assign(split="cal").reindex(columns=_COLUMNS) for part in parts if len(part)],
        ignore_index=True,
    )
    if table["trajectory_id"].duplicated().any():
        name = table.loc[table["trajectory_id"].duplicated(), "trajectory_id"].iloc[0]
        raise InputError(
            f"the run {name!r} is in CAL and in the audit sample; a run counts once, so take it out of its batch."
        )
    return table.astype({"outcome": "int8", "score": "float64"}).sort_values(
        ["task_id", "trajectory_id"], kind="stable", ignore_index=True
    )


def _scored(judge: JudgedCorpus, rows: pd.DataFrame) -> pd.DataFrame:
    """Score the rows of refused batches now: the draw was made before, and whoever recertifies after an alarm needs them."""
    rows = rows.copy()
    for batch in rows.loc[rows["refused"], "batch"].drop_duplicates():
        require_as_decided(judge.corpus, str(batch), "runs")
        wanted = rows["refused"] & (rows["batch"] == batch)
        runs = (
            batch_runs(judge.corpus, str(batch))
            .set_index("trajectory_id", drop=False)
            .loc[rows.loc[wanted, "trajectory_id"]]
        )
        rows.loc[wanted, "score"] = judge.score_runs(runs.reset_index(drop=True))[0][
            "score"
        ].to_numpy(np.float64)
    return rows


def _number(score: Any) -> float | None:
    return None if np.isnan(score) else float(score)
