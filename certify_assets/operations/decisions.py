"""The decisions of one batch: auto-reject, auto-accept or human review, and the reasons."""

# Where nothing may be decided, every row goes to human review with the code of the refusal as its
# reason, and nothing is scored.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.certificates import Certificate, decide
from certify_assets.certificates.scale import scale_fault
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import run_chars
from certify_assets.errors import (
    ChangedInputError,
    InputError,
    IntegrityError,
    StaleCertificateError,
)
from certify_assets.files import canonical_json, sha256_bytes, write_atomic
from certify_assets.judges.base import JUDGED_COLUMNS, RUN_COLUMNS
from certify_assets.judges.specs import SIDES
from certify_assets.operations.batch_audit import closings_sha256
from certify_assets.operations.batch_comparison import (
    BatchComparison,
    Compared,
    carried,
    compare_batch,
    shifts,
    unlike_calibration,
)
from certify_assets.operations.batch_drawing import begin_audit
from certify_assets.operations.batch_record import (
    REFUSALS,
    BatchRecord,
    ProvisionalBatch,
    ReceivedBatch,
    Refusal,
    UndoneBatch,
    identities_of,
    is_decided,
    received,
)
from certify_assets.operations.coverage import Coverage, cover
from certify_assets.operations.deployment import Deployment
from certify_assets.operations.layout import DECISION_COLUMNS, NOT_COVERED, PROVISIONAL, batch_runs
from certify_assets.operations.sampling import Draw, asked_rows
from certify_assets.work import Report, silent

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


# runs that are scored before their scores are stored
_SHARE = 2000

# those under which the judge still scores: a certificate of the batch holds whatever the judge
_BY_BATCH: Final = ("no_certificate", "corrected_labels", "failed_audit", "alarm")


class DecidedBatchError(InputError):
    """A batch that is decided already, perhaps by another process a moment ago."""


@dataclass(frozen=True, eq=False)
class _Batch:
    """A batch with all that its decisions depend on."""

    runs: pd.DataFrame
    about: ReceivedBatch
    draw: Draw
    changed: NDArray[np.bool_]  # runs that came before with other content


@dataclass(frozen=True, eq=False)
class _Scored:
    """The scores of a batch, by which adapter, and what the corpus certificate covers of it."""

    table: pd.DataFrame
    adapters: NDArray[np.object_]
    coverage: Coverage
    bill: Mapping[str, Any] | None = None
    # with CAL, once it was
    compared: Compared = field(default_factory=lambda: Compared(BatchComparison(batch="")))


def decide_batch(
    deployment: Deployment,
    name: str,
    *,
    report: Report = silent,
    reopened: Callable[[Corpus], Deployment] = Deployment.of,
) -> BatchRecord:
    """Decide an imported batch and store its decisions.

    `reopened` gives the deployment as it is once the batch is scored.
    """
    corpus = deployment.corpus
    # a killed call resumes with the shares of these very runs
    work = f"batches/{corpus.name}/{received(corpus, name).objects['runs']}"
    with corpus.store.workplace(work) as folder:
        # another process may have decided it while this one waited for its turn
        corpus.store.unpinned.refresh()
        _require_undecided(corpus, name)
        batch = _opened(corpus, name)
        deployment, scored = _scored(deployment, folder, batch.runs, report)
        with corpus.writing():
            _require_undecided(corpus, name)
            deployment, scored = _standing(deployment, scored, batch.runs, reopened)
            return _decided(deployment, _like_calibration(deployment, scored, name), name, batch)


def _require_undecided(corpus: Corpus, name: str) -> None:
    if is_decided(corpus, name):
        raise DecidedBatchError(
            f"{name} of {corpus} is decided already; `certify ops status {corpus}` says how."
        )


def _decided(deployment: Deployment, scored: _Scored, name: str, batch: _Batch) -> BatchRecord:
    corpus, store = deployment.corpus, deployment.store
    frame, promise, waits = _decisions(deployment, batch, scored), "", ""
    made, about = deployment.record, batch.about
    if (frame["decision"] == PROVISIONAL).any():
        assert deployment.judge is not None
        assert made is not None
        frame, promise, waits = begin_audit(deployment.judge, made, name, frame)
    frame = frame.assign(
        asked=_asked(batch, scored.coverage, frame), corpus=corpus.name, batch=name
    )
    objects = {
        "decisions": store.objects.put_table(frame[list(DECISION_COLUMNS)]),
        "scores": store.objects.put_table(scored.table),
        "comparison": store.objects.put_json(scored.compared.document.to_dict()),
    }
    names = ("runs", "new", "changed", "known", "dropped", "outcomes_left_out")
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
        drawn_tasks=dict(Counter(batch.draw.drawn.values())),
        **{field: getattr(about, field) for field in names},
        findings=tuple(_findings(deployment, batch, scored, frame, waits)),
        bill=scored.bill,
        new_agents=scored.coverage.policy,
        promises=tuple(_promises(deployment, scored.coverage, promise)),
        ledger=store.ledger(corpus.name),
        objects=objects,
    )
    store.append(corpus.name, record)
    if (waiting := record.decisions.get(PROVISIONAL, 0)) and made is not None:
        left = ProvisionalBatch(batch=name, runs=waiting, deployment=made.number)
        store.append(corpus.name, left)
    return record


def _opened(corpus: Corpus, name: str) -> _Batch:
    runs, identities = batch_runs(corpus, name), identities_of(corpus, name)
    again = set(identities.loc[identities["changed"], "trajectory_id"])
    changed = runs["trajectory_id"].isin(again).to_numpy(bool)
    return _Batch(runs, received(corpus, name), Draw.load(corpus, name), changed)


def _deciding(deployment: Deployment) -> tuple[Certificate, ...]:
    """Return the certificates of the corpus that decide; none of a deployment for batches alone."""
    return () if deployment.refusal is not None else deployment.certificates


def _scores(deployment: Deployment) -> bool:
    """Whether the judge scores a batch, to decide it or for a certificate of the batch alone."""
    refusal, policy = deployment.refusal, deployment.corpus.config.new_agents
    return refusal is None or (refusal.code in _BY_BATCH and policy == "batch_certificate")


def _scored(
    deployment: Deployment, folder: Path, runs: pd.DataFrame, report: Report
) -> tuple[Deployment, _Scored]:
    """Score the runs; what turns out to be stale in doing so refuses the batch."""
    if _scores(deployment):
        assert deployment.judge is not None
        assert deployment.record is not None
        try:
            table, bill = _in_shares(deployment, folder, runs, report)
            policy = deployment.corpus.config.new_agents
            coverage, table, adapters = cover(deployment.judge, runs, table, policy, report)
            _require_scale(deployment, table)
            return deployment, _Scored(table, adapters, coverage, bill)
        except ChangedInputError:
            raise
        except IntegrityError as error:
            deployment = deployment.refused(Refusal("stale_certificate", str(error)))
    return deployment, _unscored(deployment, runs)


def _require_scale(deployment: Deployment, table: pd.DataFrame) -> None:
    """Refuse scores that cannot be of the judge that was certified: a hosted model may change."""
    scores, tasks = table["score"].to_numpy(np.float64), table["task_id"].nunique()
    for item in deployment.certificates:
        fault = scale_fault(item.inputs["scores"], scores, tasks)
        if fault is not None and fault.sure:
            raise StaleCertificateError(
                f"the scores of the batch are not on the scale on which {deployment.judge} was "
                f"certified: {fault.reason}; score and certify the corpus again."
            )


def _standing(
    deployment: Deployment,
    scored: _Scored,
    runs: pd.DataFrame,
    reopened: Callable[[Corpus], Deployment],
) -> tuple[Deployment, _Scored]:
    """Ask again what speaks against the deployment: scoring takes long, and labels come meanwhile.

    Another deployment decides nothing of runs that this one scored: the batch waits.
    """
    if deployment.refusal is not None:
        return deployment, scored
    now, then = reopened(deployment.corpus), deployment.record
    assert then is not None
    if now.record is not None and now.record.number != then.number:
        raise ChangedInputError(
            f"another judge was deployed on {deployment.corpus} while this batch was scored, which "
            "therefore waits; run this again."
        )
    if now.refusal is None:
        return deployment, scored
    deployment = deployment.refused(now.refusal)
    return deployment, scored if _scores(deployment) else _unscored(deployment, runs)


def _like_calibration(deployment: Deployment, scored: _Scored, name: str) -> _Scored:
    """Take the runs of a batch out of what the certificates cover where they are not like CAL."""
    used = _deciding(deployment)
    if not used or deployment.judge is None:
        return replace(scored, compared=Compared(carried(deployment.corpus, name)))
    covered = scored.table[scored.coverage.by_corpus]
    compared = compare_batch(deployment.judge, used, name, covered)
    coverage = scored.coverage.without(compared.unlike)
    return replace(scored, coverage=coverage, compared=compared)


def _unscored(deployment: Deployment, runs: pd.DataFrame) -> _Scored:
    empty = runs[list(RUN_COLUMNS)].assign(**dict.fromkeys(JUDGED_COLUMNS, np.nan))
    made = deployment.record
    adapter = "" if made is None else made.fingerprint["adapter_sha256"]
    adapters = np.full(len(runs), adapter, dtype=object)
    return _Scored(empty, adapters, Coverage.none(len(runs)))


def _in_shares(
    deployment: Deployment, folder: Path, runs: pd.DataFrame, report: Report
) -> tuple[pd.DataFrame, Mapping[str, Any] | None]:
    import pandas as pd

    judge, record = deployment.judge, deployment.record
    assert judge is not None
    assert record is not None
    adapter = record.fingerprint["adapter_sha256"]
    if judge.artifact.adapter_sha256 != adapter:
        raise StaleCertificateError(
            f"the adapter of {judge} on {judge.corpus} is not the deployed one; deploy it again."
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


def _decisions(deployment: Deployment, batch: _Batch, scored: _Scored) -> pd.DataFrame:
    scores, coverage = scored.table["score"].to_numpy(np.float64), scored.coverage
    used = _deciding(deployment)
    if not used:
        refusal = deployment.refusal
        code = "no_certificate" if refusal is None else refusal.code
        decisions = np.full(scores.size, "human", dtype=object)
        reasons = np.full(scores.size, code, dtype=object)
        if coverage.policy == "batch_certificate":
            left = coverage.reasons != ""
            reasons[left] = coverage.reasons[left]
            waits = coverage.by_corpus | coverage.provisional
            decisions[waits & np.isfinite(scores) & ~batch.changed] = PROVISIONAL
    else:
        decisions, reasons = (np.asarray(part, dtype=object) for part in decide(list(used), scores))
        left = ~coverage.by_corpus
        decisions[left], reasons[left] = "human", coverage.reasons[left]
        decisions[coverage.provisional & np.isfinite(scores)] = PROVISIONAL
        decisions[batch.changed], reasons[batch.changed] = "human", "changed_run"
    covered = coverage.by_corpus & bool(used)
    thresholds = {item.side: item.threshold for item in used}
    made = deployment.record
    names = ["trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256"]
    return batch.runs[names].assign(
        judge="" if made is None else made.judge,
        score=scores,
        decision=decisions,
        reason=reasons,
        **{
            f"{side}_threshold": np.where(
                covered,
                np.float64("nan" if thresholds.get(side) is None else thresholds[side]),
                np.nan,
            )
            for side in SIDES
        },
        certificate_sha256=np.where(covered, ";".join(item.sha256 for item in used), ""),
        adapter_sha256=scored.adapters,
    )


def _asked(batch: _Batch, coverage: Coverage, frame: pd.DataFrame) -> NDArray[np.object_]:
    places = np.array([batch.draw.drawn.get(task, "") for task in frame["task_id"]], object)
    excluded = (coverage.splits != "") | batch.changed
    return asked_rows(places, frame["decision"].to_numpy(object), excluded)


def _promises(deployment: Deployment, coverage: Coverage, promise: str) -> Iterator[str]:
    """Say which of the two promises is made of the runs of a batch."""
    used = _deciding(deployment)
    if used and coverage.by_corpus.any():
        sides = " and ".join(f"{item.alpha:g} ({item.side})" for item in used)
        yield (
            f"corpus certificate, of {int(coverage.by_corpus.sum())} runs: at most {sides} of "
            "decided runs are wrong, where runs are like those of CAL, agents included."
        )
    if promise:
        yield promise


def _findings(
    deployment: Deployment,
    batch: _Batch,
    scored: _Scored,
    frame: pd.DataFrame,
    waits: str,
) -> list[Mapping[str, str]]:
    coverage, too_few = scored.coverage, scored.compared.too_few
    found = {"changed_runs": list(batch.about.sentences)}
    found |= {"too_few_to_compare": [too_few]} if too_few else {}
    found |= {"waits_for_draw": [waits]} if waits else {}
    if coverage.policy:
        for code, text in coverage.findings(frame["agent"]):
            found.setdefault(code, []).append(text)
        left = coverage.provisional | (coverage.by_corpus & (not _deciding(deployment)))
        left &= frame["reason"].isin([*NOT_COVERED, *REFUSALS]).to_numpy(bool)
        if left.any() and not (frame["decision"] == PROVISIONAL).any():
            found["not_drawn"] = [
                f"Reviewers get the {int(left.sum())} runs that are not covered: going by CAL, a "
                "draw of them would save no label."
            ]
    plan = None if deployment.record is None else deployment.record.sampling
    if plan is not None and not plan.audit_rate + plan.spot_rate:
        found["nothing_sampled"] = [
            "No task is drawn for review, so nothing would show that the error has grown."
        ]
    if batch.about.outcomes_left_out:
        found["outcomes_left_out"] = [
            f"{batch.about.outcomes_left_out} runs came with an outcome, which is not kept: who "
            "delivers a run does not label it."
        ]
    if deployment.judge is not None and deployment.refusal is None:
        judge, name = deployment.judge, str(frame["batch"].iloc[0])
        others = not coverage.shifts and not coverage.by_corpus.all()
        if others and (said := [*shifts(judge, deployment.certificates, frame)]):
            # those that no certificate of the corpus decides may be what differs
            found["shifted"] = said
        lengths = run_chars(batch.runs)
        for code, message in unlike_calibration(judge, name, frame.assign(length=lengths)):
            found.setdefault(code, []).append(message)
    return [
        {"code": code, "message": message}
        for code, messages in found.items()
        for message in messages
    ]


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(name): int(number) for name, number in sorted(Counter(column.tolist()).items())}


def received_version(corpus: Corpus) -> str:
    """Return the version of the batches of a corpus."""
    last = corpus.store.last(corpus.name, ReceivedBatch)
    undone = corpus.store.last(corpus.name, UndoneBatch)
    return sha256_bytes(canonical_json([item and item.content.batch for item in (last, undone)]))


def decided_version(corpus: Corpus) -> str:
    """Return the version of the decisions on a corpus."""
    last = corpus.store.last(corpus.name, BatchRecord)
    undone = corpus.store.last(corpus.name, UndoneBatch)
    return sha256_bytes(
        canonical_json(
            [
                last and [last.content.batch, last.content.objects],
                undone and undone.content.batch,
                *closings_sha256(corpus),
            ]
        )
    )


def summarize(records: Sequence[BatchRecord]) -> tuple[dict[str, int], str]:
    """Return decisions by kind over batches, and a sentence about them."""
    counts = {
        name: sum(item.decisions.get(name, 0) for item in records)
        for name in ("reject", "release", "human", PROVISIONAL)
    }
    waits = counts[PROVISIONAL]
    refused = [item for item in records if item.refusal is not None]
    if refused:
        assert refused[0].refusal is not None
        fate = (
            f"{waits} runs of {_batches(len(records))} are provisional and reviewers get the others"
            if waits
            else f"every run of {_batches(len(refused))} goes to review"
        )
        return counts, f"{fate}, {refused[0].refusal.code}: {refused[0].refusal.sentence}"
    if not records:
        return counts, "no batch waits."
    rows = sum(item.rows for item in records)
    said = f"{rows - waits} runs of {_batches(len(records))} are decided"
    said += f", {waits} are provisional." if waits else "."
    findings = dict.fromkeys(finding["message"] for item in records for finding in item.findings)
    return counts, " ".join([said, *findings])


def _batches(number: int) -> str:
    return "one batch" if number == 1 else f"{number} batches"
