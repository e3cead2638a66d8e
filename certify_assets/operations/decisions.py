"""The decisions of one batch: auto-fail, auto-pass or review, and the reasons."""

# Where nothing may be decided, every row goes to review with the code of the refusal as its
# reason, and nothing is scored.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from certify_assets.judges.judged import JudgedCorpus
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
from certify_assets.operations.decision_tables import (
    DECISION_COLUMNS,
    NOT_COVERED,
    PROVISIONAL,
    batch_runs,
)
from certify_assets.operations.deployment import Deployment
from certify_assets.operations.sampling import TaskDraw, asked_rows
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
        batch = _Batch(deployment, name)
        batch.score(folder, report)
        with corpus.writing():
            _require_undecided(corpus, name)
            batch.stand_again(reopened)
            batch.compare()
            return batch.decide()


def _require_undecided(corpus: Corpus, name: str) -> None:
    if is_decided(corpus, name):
        raise DecidedBatchError(
            f"{name} of {corpus} is decided already; `certify ops status {corpus}` says how."
        )


class _Batch:
    """A batch that is being decided, with all that its decisions depend on."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        corpus = self.corpus = deployment.corpus
        self.deployment, self.name = deployment, name
        self.about: ReceivedBatch = received(corpus, name)
        self.draw = TaskDraw.load(corpus, name)
        self.runs = batch_runs(corpus, name)
        identities = identities_of(corpus, name)
        again = set(identities.loc[identities["changed"], "trajectory_id"])
        # runs that came before with other content
        self.changed = self.runs["trajectory_id"].isin(again).to_numpy(bool)
        self.compared = Compared(BatchComparison(batch=""))
        self._unscored()

    @property
    def used(self) -> tuple[Certificate, ...]:
        """The certificates of the corpus that decide; none of a deployment for batches alone."""
        return () if self.deployment.refusal is not None else self.deployment.certificates

    @property
    def is_scored(self) -> bool:
        """Whether the judge scores it, to decide it or for a certificate of the batch alone."""
        refusal, policy = self.deployment.refusal, self.corpus.config.new_agents
        return refusal is None or (refusal.code in _BY_BATCH and policy == "batch_certificate")

    def _unscored(self) -> None:
        made, count = self.deployment.record, len(self.runs)
        self.table = self.runs[list(RUN_COLUMNS)].assign(**dict.fromkeys(JUDGED_COLUMNS, np.nan))
        adapter = "" if made is None else made.fingerprint["adapter_sha256"]
        # by which each run is scored
        self.adapters = np.full(count, adapter, dtype=object)
        self.coverage = Coverage.none(count)
        self.bill: Mapping[str, Any] | None = None

    def score(self, folder: Path, report: Report) -> None:
        """Score the runs; what turns out to be stale in doing so refuses the batch."""
        judge = self.deployment.judge
        if not self.is_scored or judge is None:
            return
        try:
            table, bill = self._in_shares(judge, folder, report)
            policy = self.corpus.config.new_agents
            coverage, table, adapters = cover(judge, self.runs, table, policy, report)
            self._require_scale(table)
        except ChangedInputError:
            raise
        except IntegrityError as error:
            refusal = Refusal("stale_certificate", str(error))
            self.deployment = self.deployment.refused(refusal)
        else:
            self.table, self.adapters, self.coverage, self.bill = table, adapters, coverage, bill

    def _require_scale(self, table: pd.DataFrame) -> None:
        """Refuse scores that cannot be of the certified judge: a hosted model may change."""
        scores, tasks = table["score"].to_numpy(np.float64), table["task_id"].nunique()
        for item in self.deployment.certificates:
            fault = scale_fault(item.inputs["scores"], scores, tasks)
            if fault is not None and fault.sure:
                raise StaleCertificateError(
                    "the scores of the batch are not on the scale on which "
                    f"{self.deployment.judge} was certified: {fault.reason}; score and certify the "
                    "corpus again."
                )

    def _in_shares(
        self, judge: JudgedCorpus, folder: Path, report: Report
    ) -> tuple[pd.DataFrame, Mapping[str, Any] | None]:
        import pandas as pd

        adapter = str(self.adapters[0]) if len(self.adapters) else ""
        if judge.artifact.adapter_sha256 != adapter:
            raise StaleCertificateError(
                f"the adapter of {judge} on {judge.corpus} is not the deployed one; deploy it "
                "again."
            )
        if judge.spec.hosted:
            # it keeps every answer by itself, and its bill covers all of them
            return judge.score_runs(self.runs, report=report)
        parts = []
        for place in range(0, len(self.runs), _SHARE):
            path = folder / f"{adapter[:16]}-{place // _SHARE:05d}.parquet"
            if not path.exists():
                share = self.runs.iloc[place : place + _SHARE].reset_index(drop=True)
                table = judge.score_runs(share, report=report)[0]
                write_atomic(path, table.to_parquet(index=False))
            parts.append(pd.read_parquet(path))
        return pd.concat(parts, ignore_index=True), None

    def stand_again(self, reopened: Callable[[Corpus], Deployment]) -> None:
        """Ask again what speaks against the deployment: labels come while a batch is scored.

        Another deployment decides nothing of runs that this one scored: the batch waits.
        """
        if self.deployment.refusal is not None:
            return
        now, then = reopened(self.corpus), self.deployment.record
        assert then is not None
        if now.record is not None and now.record.number != then.number:
            raise ChangedInputError(
                f"another judge was deployed on {self.corpus} while this batch was scored, which "
                "therefore waits; run this again."
            )
        if now.refusal is not None:
            self.deployment = self.deployment.refused(now.refusal)
            if not self.is_scored:
                self._unscored()

    def compare(self) -> None:
        """Take the runs out of what the certificates cover where they are not like CAL."""
        judge = self.deployment.judge
        if not self.used or judge is None:
            self.compared = Compared(carried(self.corpus, self.name))
            return
        covered = self.table[self.coverage.by_corpus]
        self.compared = compare_batch(judge, self.used, self.name, covered)
        self.coverage = self.coverage.without(self.compared.unlike)

    def decide(self) -> BatchRecord:
        """Store the decisions and return what they are."""
        corpus, store, made = self.corpus, self.corpus.store, self.deployment.record
        frame, promise, waits = self._decisions(), "", ""
        if (frame["decision"] == PROVISIONAL).any():
            assert self.deployment.judge is not None
            assert made is not None
            frame, promise, waits = begin_audit(self.deployment.judge, made, self.name, frame)
        frame = frame.assign(asked=self._asked(frame), corpus=corpus.name, batch=self.name)
        objects = {
            "decisions": store.objects.put_table(frame[list(DECISION_COLUMNS)]),
            "scores": store.objects.put_table(self.table),
            "comparison": store.objects.put_json(self.compared.document.to_dict()),
        }
        names = ("runs", "new", "changed", "known", "dropped", "outcomes_left_out")
        record = BatchRecord(
            batch=self.name,
            decided=self.deployment.refusal is None,
            refusal=self.deployment.refusal,
            deployment=None if made is None else made.number,
            judge=None if made is None else made.judge,
            certificates=() if made is None else made.certificates,
            rows=len(frame),
            tasks=int(frame["task_id"].nunique()),
            decisions=_counts(frame["decision"]),
            reasons=_counts(frame["reason"]),
            asked=_counts(frame["asked"]),
            drawn_tasks=dict(Counter(self.draw.drawn.values())),
            **{field: getattr(self.about, field) for field in names},
            findings=tuple(
                {"code": code, "message": message} for code, message in self._findings(frame, waits)
            ),
            bill=self.bill,
            new_agents=self.coverage.policy,
            promises=tuple(self._promises(promise)),
            ledger=store.ledger(corpus.name),
            objects=objects,
        )
        store.append(corpus.name, record)
        if (waiting := record.decisions.get(PROVISIONAL, 0)) and made is not None:
            left = ProvisionalBatch(batch=self.name, runs=waiting, deployment=made.number)
            store.append(corpus.name, left)
        return record

    def _decisions(self) -> pd.DataFrame:
        scores, coverage, used = self.table["score"].to_numpy(np.float64), self.coverage, self.used
        made, refusal = self.deployment.record, self.deployment.refusal
        if used:
            decisions, reasons = (
                np.asarray(part, dtype=object) for part in decide(list(used), scores)
            )
            left = ~coverage.by_corpus
            decisions[left], reasons[left] = "human", coverage.reasons[left]
            decisions[coverage.provisional & np.isfinite(scores)] = PROVISIONAL
            decisions[self.changed], reasons[self.changed] = "human", "changed_run"
        else:
            code = "no_certificate" if refusal is None else refusal.code
            decisions = np.full(scores.size, "human", dtype=object)
            reasons = np.full(scores.size, code, dtype=object)
            if coverage.policy == "batch_certificate":
                left = coverage.reasons != ""
                reasons[left] = coverage.reasons[left]
                waits = coverage.by_corpus | coverage.provisional
                decisions[waits & np.isfinite(scores) & ~self.changed] = PROVISIONAL
        covered = coverage.by_corpus & bool(used)
        thresholds = {item.side: item.threshold for item in used if item.threshold is not None}
        names = ["trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256"]
        return self.runs[names].assign(
            judge="" if made is None else made.judge,
            score=scores,
            decision=decisions,
            reason=reasons,
            **{
                f"{side}_threshold": np.where(covered, thresholds.get(side, np.nan), np.nan)
                for side in SIDES
            },
            certificate_sha256=np.where(covered, ";".join(item.sha256 for item in used), ""),
            adapter_sha256=self.adapters,
        )

    def _asked(self, frame: pd.DataFrame) -> NDArray[np.object_]:
        places = np.array([self.draw.drawn.get(task, "") for task in frame["task_id"]], object)
        excluded = (self.coverage.splits != "") | self.changed
        return asked_rows(places, frame["decision"].to_numpy(object), excluded)

    def _promises(self, promise: str) -> Iterator[str]:
        """Say which of the two promises is made of the runs."""
        if self.used and self.coverage.by_corpus.any():
            sides = " and ".join(f"{item.alpha:g} ({item.side})" for item in self.used)
            yield (
                f"corpus certificate, of {int(self.coverage.by_corpus.sum())} runs: at most "
                f"{sides} of decided runs are wrong, where runs are like those of CAL, agents "
                "included."
            )
        if promise:
            yield promise

    def _findings(self, frame: pd.DataFrame, waits: str) -> Iterator[tuple[str, str]]:
        """Say by code what the user should look at; the same codes follow each other."""
        coverage, deployment = self.coverage, self.deployment
        for sentence in self.about.sentences:
            yield "changed_runs", sentence
        if self.compared.too_few:
            yield "too_few_to_compare", self.compared.too_few
        if waits:
            yield "waits_for_draw", waits
        if coverage.policy:
            yield from coverage.findings(frame["agent"])
            left = coverage.provisional | (coverage.by_corpus & (not self.used))
            left &= frame["reason"].isin([*NOT_COVERED, *REFUSALS]).to_numpy(bool)
            if left.any() and not (frame["decision"] == PROVISIONAL).any():
                yield (
                    "not_drawn",
                    f"Reviewers get the {int(left.sum())} runs that are not covered: going by CAL, "
                    "a draw of them would save no label.",
                )
        plan = None if deployment.record is None else deployment.record.sampling
        if plan is not None and not plan.audit_rate + plan.spot_rate:
            yield (
                "nothing_sampled",
                "No task is drawn for review, so nothing would show that the error has grown.",
            )
        if count := self.about.outcomes_left_out:
            yield (
                "outcomes_left_out",
                f"{count} runs came with an outcome, which is not kept: who delivers a run does "
                "not label it.",
            )
        if deployment.judge is None or deployment.refusal is not None:
            return
        if not coverage.shifts and not coverage.by_corpus.all():
            # those that no certificate of the corpus decides may be what differs
            for sentence in shifts(deployment.judge, deployment.certificates, frame):
                yield "shifted", sentence
        lengths = run_chars(self.runs)
        yield from unlike_calibration(deployment.judge, self.name, frame.assign(length=lengths))


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
