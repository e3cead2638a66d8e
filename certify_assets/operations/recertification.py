"""Recertification: certificates of the deployed judge on drawn runs of CAL and audit sample."""

# Of the audit sample the runs count that were drawn when their batch came. Next to them are, as the
# corpus says, labelled runs of CAL, or one run of each of its tasks, drawn by the same seed: then
# the promise is proved (docs/few-labels.md), and where that certifies nothing, one on average is
# tried. Its number is claimed before it is computed; the same inputs are the same one. Labels
# that come meanwhile are no part of it: it names the last one that is. Its documents are enough to
# recompute it by `certify verify`. Its population is that of CAL and the audit sample together.
# Where the runs have changed since CAL was drawn, the mixture says less about later runs than the
# audit sample alone, so each new threshold is also audited on the audit sample alone, and an ERROR
# there keeps it from deployment.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates.certifier import Certifier
from certify_assets.certificates.counts import covers
from certify_assets.certificates.ladder import climb, next_rung, procedures_of
from certify_assets.certificates.one_run import CAP, fewest_rows
from certify_assets.certificates.procedures import CONFIDENT, PROVED, find_procedure
from certify_assets.certificates.sampling import TASKS, table_hash
from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import JsonObject
from certify_assets.errors import CertifyError, GateClosedError, InputError, UnfitTableError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.pool import document_of
from certify_assets.judges.record import columns, runs_are_tasks
from certify_assets.judges.specs import DELTA, SIDES, judges
from certify_assets.operations.audit_sample import (
    OPEN_SHARE,
    REASONS,
    CountedTasks,
    RunsOfTask,
    SamplingPlan,
    count_audit_tasks,
)
from certify_assets.operations.batches import batch_names, batch_runs, decisions_sha256
from certify_assets.operations.certified_before import relabelling_finding
from certify_assets.operations.certifier import own_key, paid_candidates
from certify_assets.operations.deploying import promote
from certify_assets.operations.deployment import corrected_labels, load_deployment
from certify_assets.operations.labels import Label, LabelPrefix, labels_head, overruled, read_labels
from certify_assets.operations.recertification_record import (
    CERTIFICATES,
    DOCUMENT,
    NEXT_PROMISE,
    OVERRULED,
    SCORES,
    SECOND_PROMISE,
    CertifiedSide,
    RecertificationRecord,
    load_recertification,
    recertification_key,
    recertifications,
    rows_of_draw,
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
from certify_assets.words import WORDS, number_of

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.certificates import Certificate
    from certify_assets.certificates.inputs import SampleInputs

NOTHING_DEPLOYED: Final = "no judge is deployed, so there is nothing to monitor or to recertify."
_COLUMNS = ["task_id", "trajectory_id", "agent", "score", "outcome", "split", "provenance", "batch"]
# steps that the weekly run repeats for a judge whose scores are current
_CERTIFYING: Final = ("certificate", "audit", "report", "monitor")
_CHAIN: Final = ("model", "scores", *_CERTIFYING)


@dataclass(frozen=True, eq=False)
class Plan:
    """The inputs of a recertification, independent of what would come of it."""

    table: pd.DataFrame  # where it is proved, with the runs that were not drawn; by task and run
    rows: pd.DataFrame  # of it, labelled: all that certifies
    sample: SampleInputs | None  # the draw that these are of, where it is proved
    runs_of_task: RunsOfTask
    counted: CountedTasks
    labels: LabelPrefix  # that were read
    new_tasks: tuple[str, ...]  # that no earlier recertification has counted
    hashes: Mapping[str, str]
    candidates: int
    alphas: tuple[float, ...]  # that are wanted now
    procedures: tuple[str, ...]  # that are tried in turn
    grid: int | None  # thresholds of the judge as it was deployed; None by a proof, which tests all
    inputs_sha256: str  # of table, draw, hashes, candidates, budgets, procedures and grid

    def known(self, spending: Spending) -> Claim | None:
        """Return the claim of a recertification of these very inputs."""
        claims = (item for item in spending.claims if item.inputs_sha256 == self.inputs_sha256)
        return next(claims, None)


def plan_recertification(judge: JudgedCorpus) -> Plan:
    """Gather the inputs of a recertification."""
    # δ is divided by the number of candidates, so the document must count all of them
    rows, hashes, adapter = judge.calibration
    candidates = paid_candidates(judge, adapter)
    before = _counted_before(judge, hashes["adapter_sha256"])
    corpus = judge.corpus
    deployed = load_deployment(corpus)
    plan = SamplingPlan() if deployed is None else deployed.sampling
    # of the moment in which they are counted: more come before δ is claimed
    labels = labels_head(corpus)
    counted = count_audit_tasks(
        corpus,
        adapter_sha256=hashes["adapter_sha256"],
        plan=plan,
    )
    runs_of_task = RunsOfTask.of(corpus.current.config, plan)
    audit = score_rows(judge, counted.rows)
    # where somebody chose which runs of CAL have a label, nothing is proved
    proved = corpus.current.config.promise == PROVED and not judge.unlabelled_calibration
    if proved:
        table = _table(rows, audit, counted.others)
        drawn, sample = _one_draw(table, runs_of_task)
    else:
        table = _table(_alike(rows, runs_of_task), audit)
        drawn, sample = table, None
    procedures = procedures_of(None if proved else CONFIDENT, drawn=proved)
    grid = None if proved else corpus.config.thresholds(procedures[0])
    about = {
        "judge": judge.name,
        "rows": [
            [str(row.trajectory_id), str(row.task_id), _number(row.score), int(row.outcome)]
            for row in drawn.itertuples()
        ],
        "runs_of_task": asdict(runs_of_task),
        "hashes": hashes,
        "candidates": candidates,
        # what is wanted now
        "alphas": list(corpus.current.config.alphas),
        "sides": list(SIDES),
        "procedures": list(procedures),
        "grid": grid,
    }
    return Plan(
        table=table,
        rows=drawn,
        sample=sample,
        runs_of_task=runs_of_task,
        counted=counted,
        labels=labels,
        new_tasks=tuple(task for task in counted.tasks if task not in before),
        hashes=hashes,
        candidates=candidates,
        alphas=tuple(corpus.current.config.alphas),
        procedures=procedures,
        grid=grid,
        inputs_sha256=sha256_bytes(canonical_json(about)),
    )


def preview_recertification(judge: JudgedCorpus, declared: Schedule | None) -> JsonObject:
    """Return what a recertification would count and spend."""
    spending, plan = read_spending(judge.corpus), plan_recertification(judge)
    mine, counted, known = spending.of(judge.name), plan.counted, plan.known(spending)
    schedule = declared or spending.schedule or Schedule()
    number = known.number if known else len(spending.claims) + 1
    share = mine.next_share() if schedule == spending.schedule else schedule.share(1)
    return {
        "corpus": judge.corpus.name,
        "judge": judge.name,
        "number": number,
        "delta": known.delta if known else share,
        "made_before": known is not None,
        "schedule": asdict(schedule),
        "drawn": counted.drawn,
        "counted": len(counted.tasks),
        "new_tasks": len(plan.new_tasks),
        "needed": schedule.least_new_tasks,
        "left_out": dict(counted.left_out),
        "open_share": counted.open_share,
        "spent": mine.spent,
        "total": mine.total(),
    }


def _one_draw(table: pd.DataFrame, runs_of_task: RunsOfTask) -> tuple[pd.DataFrame, SampleInputs]:
    """Draw from CAL and the audit sample alike; return the drawn rows and what names the draw."""
    names = table["task_id"].tolist(), table["trajectory_id"].tolist()
    draw = runs_of_task.draw(len(table), table_hash(*names, table["score"].to_numpy(np.float64)))
    drawn = rows_of_draw(table, draw)
    assert drawn is not None
    return drawn, draw.inputs


def _alike(rows: pd.DataFrame, runs_of_task: RunsOfTask) -> pd.DataFrame:
    """Return runs of CAL whose tasks count as those of the audit sample do.

    Where every task counts once, those are equally many of each, drawn at random. Where every run
    does, they are all, but no more of a task than it may count.
    """
    sizes = rows.groupby("task_id")["trajectory_id"].transform("size")
    attempts = int(sizes.min()) if runs_of_task.estimand == TASKS else runs_of_task.most
    draw = replace(runs_of_task, attempts=attempts, estimand=TASKS, most=1).draw(len(rows))
    return rows.iloc[np.sort(draw.rows(rows["task_id"].tolist(), rows["trajectory_id"].tolist()))]


def recertify(
    judge: JudgedCorpus,
    *,
    schedule: Schedule | None = None,
    reason: str = "",
    least_new_tasks: int | None = None,
) -> tuple[RecertificationRecord | None, str]:
    """Certify the judge on CAL and the audit sample, once a set of inputs; say what happened."""
    # None where too few tasks are new or labels of CAL were corrected, and nothing was spent
    corpus = judge.corpus
    with corpus.writing():
        if corrected := corrected_labels(judge):
            return None, f"{corrected} Nothing was spent."
        spending = read_spending(corpus)
        if schedule is not None or spending.schedule is None:
            spending = declare(corpus, schedule or Schedule(), reason=reason)
        plan = plan_recertification(judge)
        known = plan.known(spending)
        if known is not None and known.number in spending.made:
            return load_recertification(corpus, known.number), (
                f"recertification {known.number} was made from these labels; nothing was spent."
            )
        if known is None:
            schedule = spending.schedule or Schedule()
            least = schedule.least_new_tasks if least_new_tasks is None else least_new_tasks
            if len(plan.new_tasks) < least:
                return None, (
                    f"{len(plan.new_tasks):,} tasks are new and complete, but {least:,} are "
                    "needed; nothing was spent."
                )
            if fault := _unfit(plan, spending.of(judge.name).next_share()):
                return None, f"{fault} Nothing was spent."
        record = _make(
            judge, plan, claim(corpus, judge.name, "recertification", plan.inputs_sha256)
        )
        certified = sum(side.certified for side in record.sides)
        return record, (
            f"recertification {record.number}: {certified} of {len(record.sides)} combinations of "
            "side and budget are certified."
        )


def recertify_deployed(
    corpus: Corpus, *, deploy: bool = False
) -> tuple[RecertificationRecord | None, str]:
    """Recertify the deployed judge where due, deploy the result where asked; say what happened."""
    now = load_deployment(corpus)
    if now is None:
        return None, NOTHING_DEPLOYED
    record, sentence = recertify(now.judge_on(corpus))
    now = load_deployment(corpus)
    in_use = record and now and now.recertification == record.number
    if record is None or not deploy or in_use:
        return record, sentence
    try:
        number = promote(corpus, record).number
        return record, f"{sentence} Deployment {number} decides now."
    except GateClosedError as error:
        return record, f"{sentence} {error}"


def _unfit(plan: Plan, delta: float) -> str:
    """Say why nothing can be proved: open labels, or too few tasks; empty where it can."""
    if find_procedure(plan.procedures[0]).calibrated:
        return ""
    # whether a run gets a label may depend on its outcome, which no proof allows for
    if waiting := len(plan.counted.unresolved):
        return (
            f"Drawn runs that are open or tied: {waiting:,}. A proof needs the label of each. "
            "Label them, or set the promise of the corpus to confident."
        )
    tasks, level = int(plan.rows["task_id"].nunique()), delta / plan.candidates
    several = tasks < len(plan.rows)
    # the promise on average is for one run of a task, of one judge
    tried = plan.procedures[:1] if several or plan.candidates > 1 else plan.procedures
    least = min(
        fewest_rows(name, alpha, level, several=several)
        for name in tried
        for alpha in plan.alphas
        if name == plan.procedures[0] or CAP * alpha < 1
    )
    if tasks >= least:
        return ""
    return (
        f"{tasks:,} tasks have a labelled drawn run, and {least:,} are needed to certify anything."
    )


def _issue(plan: Plan, claimed: Claim, certifier: Certifier) -> list[Certificate]:
    """Issue certificates of both sides at all budgets, by the strongest promise that certifies."""
    found: list[Certificate] = []
    common = {"delta": claimed.delta, "candidates": plan.candidates, "grid": plan.grid}
    for alpha in plan.alphas:
        asked = {**common, "alpha": alpha}
        # a budget that so few tasks cannot reach has no certificate
        with suppress(UnfitTableError):
            found += climb(certifier, plan.procedures, asked).certificates
    return found


def _make(judge: JudgedCorpus, plan: Plan, claimed: Claim) -> RecertificationRecord:
    corpus, splits = judge.corpus, judge.calibration_splits
    spending = read_spending(corpus).of(judge.name)
    store, counted, labels = corpus.store, plan.counted, plan.labels
    batches = {name: decisions_sha256(corpus, name) for name in batch_names(corpus)}
    schedule = "" if spending.schedule is None else spending.schedule.words()
    scores = recertification_key(corpus.name, claimed.number, SCORES)
    scores_sha256 = store.write_table(scores, plan.table)
    provenance = {
        "corpus": corpus.name,
        "judge": judge.name,
        "split": " and ".join([*splits, "audit_sample"]),
        **plan.hashes,
        "recertification": str(claimed.number),
        "recertification_inputs_sha256": plan.inputs_sha256,
        "audit_tasks": str(len(counted.tasks)),
        "audit_runs": plan.runs_of_task.words(),
        "labels_sha256": labels.sha256,
        "decisions_sha256": sha256_bytes(canonical_json(batches)),
        "delta_schedule": schedule,
        **relabelling_finding(judge),
    }
    certifier = Certifier.of(
        *columns(plan.rows),
        named=True,
        alone=runs_are_tasks(plan.rows),
        sample=plan.sample,
        selection=judge.calibration[2].selection_rule or None,
        provenance=provenance,
        claim=claimed,
    )
    certificates = _issue(plan, claimed, certifier)
    key = recertification_key(corpus.name, claimed.number, CERTIFICATES)
    store.write_json(key, document_of(certificates, None))
    sides = tuple(_side(item, plan) for item in certificates)
    of_split = plan.rows.groupby("provenance")["task_id"].nunique()
    record = RecertificationRecord(
        corpus=corpus.name,
        judge=judge.name,
        adapter_sha256=plan.hashes["adapter_sha256"],
        number=claimed.number,
        time=claimed.time,
        delta=claimed.delta,
        first_delta=DELTA,
        spent=spending.spent,
        schedule=schedule,
        joint=spending.joint(),
        inputs_sha256=plan.inputs_sha256,
        scores_sha256=scores_sha256,
        certificates_key=key,
        certificates=tuple(item.sha256 for item in certificates),
        sides=sides,
        tasks={
            **{split: int(of_split.get(split, 0)) for split in splits},
            "audit_sample": len(counted.tasks),
        },
        labelled=len(plan.rows),
        drawn=counted.drawn,
        new_tasks=plan.new_tasks,
        left_out=dict(counted.left_out),
        open_share=counted.open_share,
        findings=(
            *_overruled(read_labels(corpus, labels.sequence), plan.rows, sides),
            *_findings(counted, sides),
            *_ladder(certifier, certificates),
        ),
        labels=labels,
        batches=batches,
    )
    document = recertification_key(corpus.name, claimed.number, DOCUMENT)
    finish(corpus, claimed.number, store.write_json(document, record.to_dict()))
    return record


def _side(certificate: Certificate, plan: Plan) -> CertifiedSide:
    """Return the figures of a certificate, on the audit sample alone and in the worst case too."""
    from certify_assets.certificates import measure_threshold, observe, settings_of

    made = CertifiedSide(
        side=certificate.side,
        alpha=certificate.alpha,
        certified=certificate.certified,
        threshold=certificate.threshold,
        coverage=certificate.coverage,
        selective_error=certificate.selective_error,
        certificate_sha256=certificate.sha256,
        promise=certificate.promise,
    )
    audit = plan.rows[plan.rows["provenance"] == "audit_sample"]
    if not certificate.certified or audit.empty or certificate.threshold is None:
        return made
    waiting = plan.counted.unresolved["score"].to_numpy(np.float64)
    threshold = certificate.threshold
    inside = int(covers(certificate.side, threshold, waiting).sum())
    covered = certificate.covered_trajectories + inside
    measured = measure_threshold(observe(*columns(audit)), settings_of(certificate), threshold)
    return replace(
        made,
        audit_sample=asdict(measured),
        worst_error=(certificate.errors + inside) / covered if covered else None,
    )


def _overruled(
    labels: Iterable[Label], table: pd.DataFrame, sides: Sequence[CertifiedSide]
) -> list[dict[str, str]]:
    """Say how many labels of the audit sample were replaced by what the judge says."""
    # runs whose reviewers replaced or withdrew what they first said
    rows = table[table["trajectory_id"].isin(overruled(labels))]
    scores, agrees = rows["score"].to_numpy(np.float64), np.zeros(len(rows), dtype=bool)
    for side in sides:
        if side.threshold is not None:
            said = rows["outcome"].to_numpy() != (side.side == "reject")
            agrees |= said & covers(side.side, side.threshold, scores)
    if not agrees.any():
        return []
    text = (
        f"Reviewers changed {number_of(len(rows), 'label')} of the audit sample after the judge "
        f"had decided. Labels that agree with these certificates only now: {int(agrees.sum()):,}."
    )
    return [{"code": OVERRULED, "message": text}]


def _findings(counted: CountedTasks, sides: Sequence[CertifiedSide]) -> list[dict[str, str]]:
    found = []
    above = [
        f"{WORDS[side.side]} at {side.alpha:g}: {side.worst_error:.3f}"
        for side in sides
        if side.worst_error is not None and side.worst_error > side.alpha
    ]
    if counted.open_share > OPEN_SHARE or above:
        worst = (
            " If every open run that the judge decides were wrong, the error would exceed the "
            f"budget ({'; '.join(above)})."
            if above
            else ""
        )
        text = (
            f"{100 * counted.open_share:.0f} % of the drawn tasks that could count are open or "
            f"tied.{worst} The certificates hold only if completion does not depend on outcomes. "
            "Label the rest to be sure."
        )
        found.append({"code": "open_tasks", "message": text})
    found += [
        {"code": name, "message": f"{number:,} drawn tasks are left out: {REASONS[name]}."}
        for name, number in counted.left_out.items()
    ]
    return found


def _ladder(certifier: Certifier, certificates: Sequence[Certificate]) -> list[dict[str, str]]:
    """Say what a weaker promise was tried for, and what the next one costs."""
    from certify_assets.certificates import CertificateSet, settings_of

    found = []
    for alpha in dict.fromkeys(item.alpha for item in certificates):
        items = tuple(item for item in certificates if item.alpha == alpha)
        tried = [
            f"{item.after} certified nothing on these labels, so the promise on average was "
            f"tried. On each side, the promise of {item.after} or the cap at twice the budget is "
            f"broken with probability at most {200 * item.delta:.4g} %."
            for item in items[:1]
            if item.after
        ]
        rung = next_rung(certifier, CertificateSet(items), settings_of(items[0]))
        found += [
            {"code": code, "message": f"At {alpha:g}: {text}"}
            for code, texts in (
                (SECOND_PROMISE, tried),
                (NEXT_PROMISE, [rung.sentence] if rung else []),
            )
            for text in texts
        ]
    return found


def _counted_before(judge: JudgedCorpus, adapter_sha256: str) -> set[str]:
    """Return the tasks that the last recertification of this very judge counted."""
    for record in reversed(recertifications(judge.corpus)):
        if (record.judge, record.adapter_sha256) == (judge.name, adapter_sha256):
            key = recertification_key(judge.corpus.name, record.number, SCORES)
            table = judge.store.read_table(key)
            rows = table[(table["provenance"] == "audit_sample") & table["outcome"].notna()]
            return set(rows["task_id"])
    return set()


def _table(
    certified: pd.DataFrame, drawn: pd.DataFrame, others: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return CAL and the audit sample, perhaps with the runs that the latter was drawn from."""
    import pandas as pd

    # `certify verify` takes the rows of split=cal: all of them are calibration rows now
    own = certified.assign(provenance=certified["split"], batch="")
    parts = [own, drawn.assign(provenance="audit_sample")]
    if others is not None:
        # a label that one of these has was not drawn, and stays out
        parts.append(others.assign(provenance="audit_sample", outcome=None))
    table = pd.concat(
        [
            part.assign(split="cal").reindex(columns=_COLUMNS).astype({"outcome": "Int8"})
            for part in parts
            if len(part)
        ],
        ignore_index=True,
    )
    if table["trajectory_id"].duplicated().any():
        name = table.loc[table["trajectory_id"].duplicated(), "trajectory_id"].iloc[0]
        split = table.loc[table["trajectory_id"] == name, "provenance"].iloc[0]
        raise InputError(
            f"the run {name!r} is in {split.upper()} and in the audit sample, but a run counts "
            "once. Take it out of its batch."
        )
    return table.astype({"score": "float64"}).sort_values(
        ["task_id", "trajectory_id"], kind="stable", ignore_index=True
    )


def score_rows(judge: JudgedCorpus, rows: pd.DataFrame) -> pd.DataFrame:
    """Score the rows of refused batches: a recertification after an alarm needs them."""
    rows = rows.copy()
    for batch in rows.loc[rows["refused"], "batch"].drop_duplicates():
        wanted = rows["refused"] & (rows["batch"] == batch)
        runs = batch_runs(judge.corpus, str(batch)).set_index("trajectory_id", drop=False)
        runs = runs.loc[rows.loc[wanted, "trajectory_id"]].reset_index(drop=True)
        rows.loc[wanted, "score"] = judge.score_runs(runs)[0]["score"].to_numpy(np.float64)
    return rows


def _number(score: Any) -> float | None:
    return None if np.isnan(score) else float(score)


def to_recertify(corpus: Corpus) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the steps of each judge that the weekly run repeats, and why it leaves others."""
    # The whole chain for judges that need seconds or whose scores are stale; for other judges the
    # certificate and what follows it. A judge that not every corpus gets is certified again only
    # where it has a certificate: baselines would spend time and δ that no user asked for.
    parts: dict[str, tuple[str, ...]] = {}
    left_alone: dict[str, str] = {}
    for name, spec in judges(corpus.store.root).items():
        certified = corpus.store.exists(own_key(corpus.name, name))
        if spec.quick and (spec.everywhere or certified):
            parts[name] = _CHAIN
        elif certified:
            stale = _stale(JudgedCorpus.of(corpus, spec))
            if stale and spec.hosted:
                left_alone[name] = f"scoring it costs money, so run it yourself: {stale}"
            elif stale:
                parts[name] = _CHAIN
            else:
                parts[name] = _CERTIFYING
    return parts, left_alone


def _stale(judge: JudgedCorpus) -> str:
    try:
        judge.require_scores()
    except CertifyError as error:
        return str(error)
    return ""
