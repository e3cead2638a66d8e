"""The decisions of one batch: auto-reject, auto-accept or human review, and the reasons."""

# Where nothing may be decided, every row goes to human review with the code of the refusal as its
# reason, and nothing is scored.

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import JUDGED_COLUMNS, RUN_COLUMNS
from certify_assets.judges.specs import SIDES
from certify_assets.operations.batch_findings import unlike_calibration
from certify_assets.operations.layout import DECISION_COLUMNS, batch_key, batch_names, batch_runs
from certify_assets.operations.sampling import Draw, asked_rows
from certify_assets.storage.progress import Report

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import Certificate
    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.operations.deployment_record import DeploymentRecord
    from certify_assets.storage.snapshot import Snapshot

SCHEMA: Final = "certify_assets/batch/1"
# runs that are scored before their scores are stored
_SHARE = 2000

#: codes of a refusal, in the order in which they are checked
REFUSALS: Final = ("not_deployed", "stale_certificate", "no_certificate", "failed_audit", "alarm")


class DecidingDeployment(Protocol):
    """What deciding needs of a deployment; `operations.deployment.Deployment` has it."""

    @property
    def corpus(self) -> Corpus: ...  # noqa: D102

    @property
    def store(self) -> Snapshot: ...  # noqa: D102

    @property
    def judge(self) -> JudgedCorpus | None: ...  # noqa: D102

    @property
    def record(self) -> DeploymentRecord | None: ...  # noqa: D102

    @property
    def certificates(self) -> tuple[Certificate, ...]: ...  # noqa: D102

    @property
    def refusal(self) -> Refusal | None: ...  # noqa: D102

    def refused(self, refusal: Refusal) -> DecidingDeployment: ...  # noqa: D102


@dataclass(frozen=True)
class Refusal:
    """Why every run goes to human review: a code of `REFUSALS`, and the fault with its remedy."""

    code: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """The document of a decided batch; fields as stored, without `bill` where there is none."""

    schema: str
    corpus: str
    batch: str
    time: str
    decided: bool  # False where the batch was refused and every row went to human review
    refusal: Refusal | None
    deployment: int | None
    judge: str | None
    certificates: tuple[str, ...]
    rows: int
    tasks: int
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]
    asked: Mapping[str, int]  # rows by the reason for which reviewers are asked
    drawn_tasks: Mapping[str, int]
    runs: int  # of the import, as are the next five
    new: int
    changed: int
    known: int
    dropped: Mapping[str, int]
    outcomes_left_out: int
    findings: tuple[Mapping[str, str], ...]
    bill: Mapping[str, Any] | None  # cost of an endpoint judge
    import_sha256: str
    runs_sha256: str
    identities_sha256: str
    draw_sha256: str
    scores_sha256: str
    decisions_sha256: str

    @classmethod
    def load(cls, corpus: Corpus, batch: str) -> BatchRecord:
        """Read the document of a decided batch."""
        key = batch_key(corpus.name, batch, "batch.json")
        try:
            values = {"bill": None, **corpus.store.read_json(key)}
            refusal = values.pop("refusal")
            values |= {name: tuple(values[name]) for name in ("certificates", "findings")}
            return cls(**values, refusal=None if refusal is None else Refusal(**refusal))
        except (KeyError, TypeError) as error:
            raise IntegrityError(
                f"{corpus.store.locate(key)} is not the document of a batch ({error}); restore it "
                "from a backup."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the document as a JSON object."""
        document = asdict(self)
        if self.bill is None:
            del document["bill"]
        return document


@dataclass(frozen=True, eq=False)
class _Batch:
    """A batch with all that its decisions depend on."""

    runs: pd.DataFrame
    about: Mapping[str, Any]
    draw: Draw
    changed: NDArray[np.bool_]  # runs that came before with other content
    splits: NDArray[np.str_]  # split of each run's task; empty for a new one
    new_agents: tuple[str, ...]  # agents without a run in CAL


def decide_batch(deployment: DecidingDeployment, name: str, report: Report) -> BatchRecord:
    """Decide a batch and store scores, document and decisions."""
    corpus, store = deployment.corpus, deployment.store
    deployment, batch = _opened(deployment, name)
    deployment, scored, bill = _scored(deployment, name, batch.runs, report)
    if deployment.refusal is not None:
        batch = replace(batch, splits=np.zeros(len(scored), dtype="<U4"), new_agents=())
    frame = _decisions(deployment, batch, scored["score"].to_numpy(np.float64)).assign(
        corpus=corpus.name, batch=name
    )
    buffer = io.BytesIO()
    frame[list(DECISION_COLUMNS)].to_parquet(buffer, index=False, compression="zstd")
    made, about = deployment.record, batch.about
    names = ("runs", "new", "changed", "known", "dropped", "outcomes_left_out")
    hashes = ("runs_sha256", "identities_sha256", "draw_sha256")
    record = BatchRecord(
        schema=SCHEMA,
        corpus=corpus.name,
        batch=name,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
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
        **{field: about[field] for field in (*names, *hashes)},
        findings=tuple(_findings(deployment, batch, frame)),
        bill=bill,
        import_sha256=store.sha256(batch_key(corpus.name, name, "import.json")),
        scores_sha256=store.write_table(batch_key(corpus.name, name, "scores.parquet"), scored),
        decisions_sha256=sha256_bytes(buffer.getvalue()),
    )
    store.write_json(batch_key(corpus.name, name, "batch.json"), record.to_dict())
    # last: the batch is decided once this table is there
    store.write_bytes(batch_key(corpus.name, name, "decisions.parquet"), buffer.getvalue())
    shares = batch_key(corpus.name, name, "shares")
    for share in store.names(shares):
        store.delete(f"{shares}/{share}")
    store.remove_folder(shares)
    return record


def _opened(deployment: DecidingDeployment, name: str) -> tuple[DecidingDeployment, _Batch]:
    corpus, store = deployment.corpus, deployment.store
    about = store.read_json(batch_key(corpus.name, name, "import.json"))
    for file in ("runs.parquet", "identities.parquet", "draw.json"):
        key = batch_key(corpus.name, name, file)
        if store.sha256(key) != about[f"{file.partition('.')[0]}_sha256"]:
            raise IntegrityError(
                f"{store.locate(key)} is not what was imported; take the folder of the batch away "
                "and import its files again."
            )
    runs = batch_runs(corpus, name)
    identities = store.read_table(batch_key(corpus.name, name, "identities.parquet"))
    again = set(identities.loc[identities["changed"], "trajectory_id"])
    splits, agents = np.zeros(len(runs), dtype="<U4"), set(runs["agent"])
    if deployment.refusal is None:
        try:
            splits, known = _seen(deployment, runs)
            agents -= known
        except IntegrityError as error:
            deployment = deployment.refused(Refusal("stale_certificate", str(error)))
    batch = _Batch(
        runs=runs,
        about=about,
        draw=Draw.load(corpus, name),
        changed=runs["trajectory_id"].isin(again).to_numpy(bool),
        splits=splits,
        new_agents=() if deployment.refusal else tuple(sorted(agents)),
    )
    return deployment, batch


def _seen(deployment: DecidingDeployment, runs: pd.DataFrame) -> tuple[NDArray[np.str_], set[str]]:
    """Return the split of each run's task, empty for new ones, and the agents that CAL has."""
    corpus, record = deployment.corpus, deployment.record
    assert record is not None
    manifest, frame = corpus.manifest, corpus.trajectories
    # with another corpus than the certificates', known tasks would pass for new ones
    found = {
        "manifest_sha256": manifest.sha256,
        "trajectories_sha256": corpus.trajectories_sha256,
    }
    for name, value in found.items():
        if record.fingerprint[name] != value:
            raise StaleCertificateError(
                f"{corpus} has another {name.removesuffix('_sha256')} than the deployment of "
                f"{record.judge}; certify and audit it, then deploy it again."
            )
    splits = np.array([manifest.assignment.get(task, "") for task in runs["task_id"]], dtype="<U4")
    return splits, set(frame.loc[frame["task_id"].isin(manifest.tasks["cal"]), "agent"])


def _scored(
    deployment: DecidingDeployment, name: str, runs: pd.DataFrame, report: Report
) -> tuple[DecidingDeployment, pd.DataFrame, Mapping[str, Any] | None]:
    """Score the runs; what turns out to be stale in doing so refuses the batch."""
    if deployment.refusal is None:
        try:
            table, bill = _in_shares(deployment, name, runs, report)
            _require_unchanged(deployment)
            return deployment, table, bill
        except IntegrityError as error:
            deployment = deployment.refused(Refusal("stale_certificate", str(error)))
    empty = runs[list(RUN_COLUMNS)].assign(**dict.fromkeys(JUDGED_COLUMNS, np.nan))
    return deployment, empty, None


def _in_shares(
    deployment: DecidingDeployment, name: str, runs: pd.DataFrame, report: Report
) -> tuple[pd.DataFrame, Mapping[str, Any] | None]:
    import pandas as pd

    judge, record, store = deployment.judge, deployment.record, deployment.store
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
        # a killed run resumes with the shares that are there
        key = batch_key(
            judge.corpus.name, name, f"shares/{adapter[:16]}-{place // _SHARE:05d}.parquet"
        )
        if not store.exists(key):
            share = runs.iloc[place : place + _SHARE].reset_index(drop=True)
            store.write_table(key, judge.score_runs(share, report=report)[0])
        parts.append(store.read_table(key))
    return pd.concat(parts, ignore_index=True), None


def _require_unchanged(deployment: DecidingDeployment) -> None:
    judge = deployment.judge
    assert judge is not None
    deployment.store.require_unchanged(judge.key(), judge.corpus.key())


def _decisions(
    deployment: DecidingDeployment, batch: _Batch, scores: NDArray[np.float64]
) -> pd.DataFrame:
    from certify_assets.certificates import decide

    used = () if deployment.refusal is not None else deployment.certificates
    if deployment.refusal is not None:
        decisions = np.full(scores.size, "human", dtype=object)
        reasons = np.full(scores.size, deployment.refusal.code, dtype=object)
    else:
        decisions, reasons = (np.asarray(part, dtype=object) for part in decide(list(used), scores))
        # the promise covers new tasks: judge, threshold or audit have seen those of the splits
        for where, reason in ((batch.splits != "", "seen_task"), (batch.changed, "changed_run")):
            decisions[where], reasons[where] = "human", reason
    thresholds = {item.side: item.threshold for item in used}
    places = np.array([batch.draw.drawn.get(task, "") for task in batch.runs["task_id"]], object)
    made = deployment.record
    names = ["trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256"]
    return batch.runs[names].assign(
        judge="" if made is None else made.judge,
        score=scores,
        decision=decisions,
        reason=reasons,
        asked=asked_rows(places, decisions, (batch.splits != "") | batch.changed),
        **{
            f"{side}_threshold": np.float64(
                "nan" if thresholds.get(side) is None else thresholds[side]
            )
            for side in SIDES
        },
        certificate_sha256=";".join(item.sha256 for item in used),
        adapter_sha256="" if made is None else made.fingerprint["adapter_sha256"],
    )


def _findings(
    deployment: DecidingDeployment, batch: _Batch, frame: pd.DataFrame
) -> list[Mapping[str, str]]:
    found = {"changed_runs": list(batch.about["sentences"])}
    if seen := Counter(name for name in batch.splits.tolist() if name):
        text = ", ".join(f"{number} of {split.upper()}" for split, number in sorted(seen.items()))
        found["seen_tasks"] = [
            f"{sum(seen.values())} runs are of tasks of the splits ({text}): the promise is on new "
            "tasks, so reviewers decide them."
        ]
    if batch.new_agents:
        rows = int(frame["agent"].isin(batch.new_agents).sum())
        shown = ", ".join(batch.new_agents[:5]) + (", …" if len(batch.new_agents) > 5 else "")
        found["new_agents"] = [
            f"{rows} runs are of {len(batch.new_agents)} agents without a run in CAL ({shown}); "
            "the promise is on runs like those of CAL."
        ]
    plan = None if deployment.record is None else deployment.record.sampling
    if plan is not None and not plan.audit_rate + plan.spot_rate:
        found["nothing_sampled"] = [
            "No task is drawn for review, so nothing would show that the error has grown."
        ]
    if batch.about["outcomes_left_out"]:
        found["outcomes_left_out"] = [
            f"{batch.about['outcomes_left_out']} runs came with an outcome, which is not kept: who "
            "delivers a run does not label it."
        ]
    if deployment.judge is not None and deployment.refusal is None:
        name, used = str(frame["batch"].iloc[0]), deployment.certificates
        for code, message in unlike_calibration(deployment.judge, used, name, frame):
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
    return sha256_bytes(canonical_json(batch_names(corpus)))


def decided_version(corpus: Corpus) -> str:
    """Return the version of the decisions on a corpus."""
    decided = [BatchRecord.load(corpus, name) for name in batch_names(corpus)]
    return sha256_bytes(canonical_json([item.to_dict() for item in decided]))


def summarize(records: Sequence[BatchRecord]) -> tuple[dict[str, int], str]:
    """Return decisions by kind over batches, and a sentence about them."""
    counts = {
        name: sum(item.decisions.get(name, 0) for item in records)
        for name in ("reject", "release", "human")
    }
    refused = [item.refusal for item in records if item.refusal is not None]
    if refused:
        return counts, (
            f"every run of {_batches(len(refused))} goes to review, {refused[0].code}: "
            f"{refused[0].sentence}"
        )
    if not records:
        return counts, "no batch waits."
    rows = sum(item.rows for item in records)
    findings = dict.fromkeys(finding["message"] for item in records for finding in item.findings)
    return counts, " ".join([f"{rows} runs of {_batches(len(records))} are decided.", *findings])


def _batches(number: int) -> str:
    return "one batch" if number == 1 else f"{number} batches"
