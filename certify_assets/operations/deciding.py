"""Batches are decided: auto-fail, auto-pass or review, and the reasons."""

# Where nothing may be decided, every row goes to review with the code of the refusal as its
# reason, and nothing is scored.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates import Certificate, decide
from certify_assets.certificates.scale import scale_fault
from certify_assets.certificates.sides import budget_words
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import (
    CertifyError,
    ChangedInputError,
    IntegrityError,
    StaleCertificateError,
)
from certify_assets.files import write_atomic
from certify_assets.judges.base import JUDGED_COLUMNS, RUN_COLUMNS
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import SIDES
from certify_assets.operations.audit_sample import RunDraw, asked_rows
from certify_assets.operations.batch_audit import close_settled
from certify_assets.operations.batch_drawing import Begun, begin_audit, draw_waiting
from certify_assets.operations.batches import (
    REFUSALS,
    BatchRecord,
    ProvisionalBatch,
    Refusal,
    batch_runs,
    identities_of,
    is_decided,
    received,
    waiting_batches,
)
from certify_assets.operations.coverage import Coverage, compare_batch, cover
from certify_assets.operations.decisions import DECISION_COLUMNS, NOT_COVERED, PROVISIONAL
from certify_assets.operations.deployment import Deployment, open_deployment
from certify_assets.operations.monitoring import monitor_new_labels
from certify_assets.words import WORDS
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# runs that are scored before their scores are stored
_SHARE = 2000
# those under which the judge still scores: a certificate of the batch holds whatever the judge
_BY_BATCH: Final = ("corrected_labels", "failed_audit", "alarm")


def decide_ready(
    corpus: Corpus, *, report: Report = silent, draw: bool = False
) -> list[BatchRecord]:
    """Decide the batches that wait, the oldest first; return their documents.

    With `draw` all runs that wait for a draw are drawn from, however few.
    """
    # a batch whose deciding was killed still waits
    with corpus.writing():
        # an audit that was edited decides nothing of its batch, and is no matter of the next one
        close_settled(corpus)
        draw_waiting(corpus)
    records = list[BatchRecord]()
    for name in waiting_batches(corpus):
        # an alarm or another deployment may have come during the previous batch
        corpus.store.refresh()
        records += filter(None, [decide_batch(corpus, name, report=report)])
    if draw:
        with corpus.writing():
            draw_waiting(corpus, every=True)
    return records


def decide_batch(corpus: Corpus, name: str, *, report: Report = silent) -> BatchRecord | None:
    """Decide an imported batch and store its decisions; None where another process has."""
    # a killed call resumes with the shares of these very runs
    work = f"batches/{corpus.name}/{received(corpus, name).objects['runs']}"
    with corpus.store.workplace(work) as folder:
        # another process may have decided it while this one waited for its turn
        corpus.store.refresh()
        if is_decided(corpus, name):
            return None
        deployment, runs = _deployment(corpus), batch_runs(corpus, name)
        deployment, scored = _score(deployment, runs, folder, report)
        with corpus.writing():
            if is_decided(corpus, name):
                return None
            # labels come while a batch is scored
            deployment = _still(deployment)
            if not _is_scored(deployment.refusal):
                scored = _Scored.nothing(deployment, runs)
            return _store(deployment, name, runs, scored)


def _deployment(corpus: Corpus) -> Deployment:
    """Open the deployment after the labels that are there were put to the monitor."""
    fault = None
    try:
        monitor_new_labels(corpus)
    except ChangedInputError:
        # another process was faster, which says nothing of the labels
        raise
    except CertifyError as error:
        fault = Refusal("alarm", f"New labels cannot be monitored: {error}")
    deployment = open_deployment(corpus)
    return deployment if fault is None else deployment.refused(fault)


def _still(then: Deployment) -> Deployment:
    """Ask again what speaks against a deployment; another one decides nothing of its scores."""
    if then.refusal is not None or then.record is None:
        return then
    now = _deployment(then.corpus)
    if now.record is not None and now.record.number != then.record.number:
        raise ChangedInputError(
            f"another judge was deployed on {then.corpus} while this batch was scored. The batch "
            "is not decided yet; run this again."
        )
    return then if now.refusal is None else then.refused(now.refusal)


def _is_scored(refusal: Refusal | None) -> bool:
    """Whether the judge scores a batch, to decide it or for a certificate of the batch alone."""
    return refusal is None or refusal.code in _BY_BATCH


@dataclass(frozen=True, eq=False)
class _Scored:
    """A batch with its scores, by which judges, and what the corpus certificate covers."""

    table: pd.DataFrame
    adapters: NDArray[np.object_]
    coverage: Coverage
    bill: Mapping[str, Any] | None = None

    @classmethod
    def nothing(cls, deployment: Deployment, runs: pd.DataFrame) -> _Scored:
        """Return a batch that no judge scores."""
        made = deployment.record
        adapter = "" if made is None else made.adapter_sha256
        table = runs[list(RUN_COLUMNS)].assign(**dict.fromkeys(JUDGED_COLUMNS, np.nan))
        return cls(table, np.full(len(runs), adapter, dtype=object), Coverage.none(len(runs)))


def _score(
    deployment: Deployment, runs: pd.DataFrame, folder: Path, report: Report
) -> tuple[Deployment, _Scored]:
    """Score the runs; what turns out to be stale in doing so refuses the batch."""
    judge, nothing = deployment.judge, _Scored.nothing(deployment, runs)
    if judge is None or not _is_scored(deployment.refusal):
        return deployment, nothing
    try:
        table, bill = _in_shares(judge, deployment, runs, folder, report)
        coverage, table, adapters = cover(judge, runs, table, report)
        _require_scale(deployment, table)
    except ChangedInputError:
        raise
    except IntegrityError as error:
        # also where another refusal would still have it scored
        return replace(deployment, refusal=Refusal("stale_certificate", str(error))), nothing
    return deployment, _Scored(table, adapters, coverage, bill)


def _in_shares(
    judge: JudgedCorpus, deployment: Deployment, runs: pd.DataFrame, folder: Path, report: Report
) -> tuple[pd.DataFrame, Mapping[str, Any] | None]:
    import pandas as pd

    assert deployment.record is not None
    adapter = deployment.record.adapter_sha256
    if judge.artifact.adapter_sha256 != adapter:
        raise StaleCertificateError(
            f"the adapter of {judge} on {judge.corpus} is not the deployed one. Deploy it again."
        )
    if judge.spec.hosted:
        # it keeps every answer by itself, and its bill covers all of them
        return judge.score_runs(runs, report=report)
    parts = []
    for place in range(0, len(runs), _SHARE):
        path = folder / f"{adapter[:16]}-{place // _SHARE:05d}.parquet"
        if not path.exists():
            share = runs.iloc[place : place + _SHARE].reset_index(drop=True)
            table = judge.score_runs(share, report=report)[0]
            write_atomic(path, table.to_parquet(index=False))
        parts.append(pd.read_parquet(path))
    return pd.concat(parts, ignore_index=True), None


def _require_scale(deployment: Deployment, table: pd.DataFrame) -> None:
    """Refuse scores that cannot be of the certified judge: a hosted model may change."""
    scores, tasks = table["score"].to_numpy(np.float64), table["task_id"].nunique()
    for item in deployment.certificates:
        fault = scale_fault(item.inputs["scores"], scores, tasks)
        if fault is not None and fault.sure:
            raise StaleCertificateError(
                "the scores of the batch are not on the scale on which "
                f"{deployment.judge} was certified: {fault.reason}. Score and certify the corpus "
                "again."
            )


def _store(deployment: Deployment, name: str, runs: pd.DataFrame, scored: _Scored) -> BatchRecord:
    """Store the decisions of a batch and return what they are."""
    corpus, made, judge = deployment.corpus, deployment.record, deployment.judge
    objects, about, coverage = corpus.store.objects, received(corpus, name), scored.coverage
    used = () if deployment.refusal is not None else deployment.certificates
    compared = compare_batch(corpus, judge, used, name, scored.table[coverage.by_corpus])
    coverage = coverage.without(compared.unlike)
    scored = replace(scored, coverage=coverage)
    identities = identities_of(corpus, name)
    again = identities.loc[identities["changed"], "trajectory_id"]
    changed = runs["trajectory_id"].isin(again).to_numpy(bool)
    begun = Begun(_decisions(deployment, used, runs, scored, changed), "")
    if made is not None and (begun.frame["decision"] == PROVISIONAL).any():
        begun = begin_audit(corpus, made, name, begun.frame)
    frame = begun.frame
    drawn = frame["trajectory_id"].isin(RunDraw.load(corpus, name).drawn).to_numpy(bool)
    asked = asked_rows(drawn, frame["decision"].to_numpy(object), (coverage.splits != "") | changed)
    frame = frame.assign(asked=asked, corpus=corpus.name, batch=name)
    findings = [
        *(("changed_runs", sentence) for sentence in about.sentences),
        *([("too_few_to_compare", compared.too_few)] if compared.too_few else []),
        *([("waits_for_draw", begun.waits)] if begun.waits else []),
        *_findings(deployment, frame, coverage, begun.expected, outcomes=about.outcomes_left_out),
    ]
    delivered = ("runs", "new", "changed", "known", "dropped", "outcomes_left_out")
    record = BatchRecord(
        batch=name,
        decided=deployment.refusal is None,
        refusal=deployment.refusal,
        deployment=None if made is None else made.number,
        judge=None if made is None else made.judge,
        certificates=() if made is None else made.certificates,
        rows=len(frame),
        tasks=int(frame["task_id"].nunique()),
        decisions=_counts(frame["decision"]),
        reasons=_counts(frame["reason"]),
        asked=_counts(frame["asked"]),
        drawn_tasks=int(frame.loc[drawn, "task_id"].nunique()),
        **{field: getattr(about, field) for field in delivered},
        findings=tuple({"code": code, "message": message} for code, message in findings),
        bill=scored.bill,
        promises=tuple(filter(None, [_promise(used, coverage), begun.promise])),
        ledger=corpus.store.ledger(corpus.name),
        objects={
            "decisions": objects.put_table(frame[list(DECISION_COLUMNS)]),
            "scores": objects.put_table(scored.table),
            "comparison": objects.put_json(compared.document.to_dict()),
        },
    )
    corpus.append(record)
    if (waiting := record.decisions.get(PROVISIONAL, 0)) and made is not None:
        left = ProvisionalBatch(batch=name, runs=waiting, deployment=made.number)
        corpus.append(left)
    return record


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(name): int(number) for name, number in column.value_counts().sort_index().items()}


def _decisions(
    deployment: Deployment,
    used: Sequence[Certificate],
    runs: pd.DataFrame,
    scored: _Scored,
    changed: NDArray[np.bool_],
) -> pd.DataFrame:
    """Return what is decided of each run, and by what."""
    scores, coverage = scored.table["score"].to_numpy(np.float64), scored.coverage
    made, refusal = deployment.record, deployment.refusal
    by_corpus, waits = coverage.by_corpus, coverage.provisional
    if used:
        decisions, reasons = (np.asarray(part, object) for part in decide(list(used), scores))
        decided = by_corpus
    else:
        assert refusal is not None
        decisions = np.full(scores.size, "human", object)
        reasons = np.full(scores.size, refusal.code, object)
        # a certificate of the batch may decide these runs too, where they were scored
        waits, decided = waits | by_corpus, coverage.reasons == ""
    decisions[~decided], reasons[~decided] = "human", coverage.reasons[~decided]
    decisions[waits & np.isfinite(scores)] = PROVISIONAL
    decisions[changed] = "human"
    if used:
        reasons[changed] = "changed_run"
    covered = by_corpus & bool(used)
    thresholds = {item.side: item.threshold for item in used if item.threshold is not None}
    names = ["trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256"]
    return runs[names].assign(
        judge="" if made is None else made.judge,
        score=scores,
        decision=decisions,
        reason=reasons,
        **{
            f"{side}_threshold": np.where(covered, thresholds.get(side, np.nan), np.nan)
            for side in SIDES
        },
        certificate_sha256=np.where(covered, ";".join(item.sha256 for item in used), ""),
        adapter_sha256=scored.adapters,
    )


def _promise(used: Sequence[Certificate], coverage: Coverage) -> str:
    """Return what the corpus certificate promises; empty where it covers no run."""
    covered = int(coverage.by_corpus.sum())
    if not used or not covered:
        return ""
    sides = " and ".join(f"{budget_words(item)} ({WORDS[item.side]})" for item in used)
    return (
        f"corpus certificate, of {covered:,} runs: {sides}, if the runs and their agents are like "
        "those of CAL."
    )


def _findings(
    deployment: Deployment,
    frame: pd.DataFrame,
    coverage: Coverage,
    expected: str,
    *,
    outcomes: int,
) -> Iterator[tuple[str, str]]:
    """Say by code what the user should look at; the same codes follow each other."""
    if _is_scored(deployment.refusal):
        yield from coverage.findings(frame["agent"], expected)
        used = deployment.refusal is None and deployment.certificates
        left = coverage.provisional | (coverage.by_corpus & (not used))
        left &= frame["reason"].isin([*NOT_COVERED, *REFUSALS]).to_numpy(bool)
        if left.any() and not (frame["decision"] == PROVISIONAL).any():
            yield "not_drawn", f"Reviewers get the {int(left.sum()):,} runs that are not covered."
    plan = None if deployment.record is None else deployment.record.sampling
    if plan is not None and not plan.audit_rate:
        yield (
            "nothing_sampled",
            "No task is drawn for review, so nothing would show that the error has grown.",
        )
    if outcomes:
        yield (
            "outcomes_left_out",
            f"{outcomes:,} runs came with an outcome, which is not kept: labels come from "
            "reviewers, not with the delivery.",
        )
