"""A batch is decided: scores by the deployed judge, reject, release or a person on every row with the reason, and who is asked.

What has to be true before anything is decided is asked anew for every batch (`deployment.standing`). Where it is not, every row goes to people
with the code of the refusal as its reason, and nothing is scored.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.files import sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import SIDES, judge_spec
from certify_assets.operations.batches import corpus_lock, ready_batches
from certify_assets.operations.deployment import Standing, standing
from certify_assets.operations.layout import DECISION_COLUMNS, batch_key, batch_runs
from certify_assets.operations.standing import Refusal
from certify_assets.storage.progress import Report, silent
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "batch_document", "decide_ready", "is_decided", "summarize"]

SCHEMA: Final = "certify_assets/batch/1"
#: runs that are scored before their scores are written down
_SHARE = 2000


@dataclass(frozen=True)
class _Ground:
    """What the rows of a batch are decided on.

    Parameters
    ----------
    now : Standing
    changed, splits : ndarray of bool and of str, shape (rows,)
        Whether a run came before with other content; the split of its task, empty for a new task.
    new_agents : tuple of str
        Agents of the batch that CAL has no run of.
    """

    now: Standing
    changed: np.ndarray[Any, np.dtype[np.bool_]]
    splits: np.ndarray[Any, np.dtype[np.str_]]
    new_agents: tuple[str, ...]


def decide_ready(corpus: Corpus, *, report: Report = silent) -> list[dict[str, Any]]:
    """Decide the batches that wait, the oldest first; return their documents.

    A batch whose deciding was killed waits still. Scores that were written down are taken up.
    """
    from certify_assets.operations.label_alarm import watch

    with corpus_lock(corpus, "decide"):
        fault = None
        # what is refused already stays so
        if standing(corpus).refusal is None:
            try:
                watch(corpus)
            except CertifyError as error:
                fault = Refusal(
                    "alarm",
                    f"the labels that are there cannot be put to the monitor, so an alarm may be missed: {error}",
                )
        documents: list[dict[str, Any]] = []
        for name in ready_batches(corpus):
            if not is_decided(corpus, name):
                if documents:
                    # an alarm or another deployment may have come during the batch before
                    corpus.store.refresh()
                documents.append(_decided(corpus, name, report, fault))
        return documents


def is_decided(corpus: Corpus, batch: str) -> bool:
    """Whether a batch has its decisions."""
    return corpus.store.exists(batch_key(corpus.name, batch, "decisions.parquet"))


def batch_document(corpus: Corpus, batch: str) -> dict[str, Any]:
    """Return what is written down of a decided batch."""
    document: dict[str, Any] = corpus.store.read_json(batch_key(corpus.name, batch, "batch.json"))
    return document


def summarize(documents: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], str]:
    """Return counts over batches, and what happened in a sentence."""
    counts = {
        name: sum(item["decisions"].get(name, 0) for item in documents)
        for name in ("reject", "release", "human")
    }
    refused = [item["refusal"] for item in documents if item["refusal"] is not None]
    if refused:
        return (
            counts,
            f"every run of {_batches(len(refused))} goes to people, {refused[0]['code']}: {refused[0]['sentence']}",
        )
    if not documents:
        return counts, "no batch waits."
    findings = dict.fromkeys(
        finding["message"] for item in documents for finding in item["findings"]
    )
    return counts, " ".join(
        [
            f"{sum(item['rows'] for item in documents)} runs of {_batches(len(documents))} are decided.",
            *findings,
        ]
    )


def _batches(number: int) -> str:
    return "one batch" if number == 1 else f"{number} batches"


def _decided(corpus: Corpus, batch: str, report: Report, fault: Refusal | None) -> dict[str, Any]:
    about, draw = (
        corpus.store.read_json(batch_key(corpus.name, batch, "import.json")),
        corpus.store.read_json(batch_key(corpus.name, batch, "draw.json")),
    )
    _require_as_imported(corpus, batch, about)
    runs = batch_runs(corpus, batch)
    now = standing(corpus)
    now = now if fault is None or now.refusal is not None else now._replace(refusal=fault)
    scored, bill, now = _scored(
        corpus.store, batch_key(corpus.name, batch, "shares"), runs, now, report
    )
    ground = _ground(corpus, batch, runs, now)
    frame = _decisions(runs, scored["score"].to_numpy(np.float64), ground, draw["drawn"]).assign(
        corpus=corpus.name, batch=batch
    )
    data = _parquet(frame[list(DECISION_COLUMNS)])
    deployment = now.deployment
    document = {
        "schema": SCHEMA,
        "corpus": corpus.name,
        "batch": batch,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "decided": now.refusal is None,
        "refusal": None if now.refusal is None else now.refusal.to_dict(),
        "deployment": None if deployment is None else deployment.number,
        "judge": None if deployment is None else deployment.judge,
        "certificates": [] if deployment is None else list(deployment.certificates),
        "rows": len(frame),
        "tasks": int(frame["task_id"].nunique()),
        **{
            name: _counts(frame[column])
            for name, column in (
                ("decisions", "decision"),
                ("reasons", "reason"),
                ("asked", "asked"),
            )
        },
        "drawn_tasks": dict(Counter(draw["drawn"].values())),
        **{
            name: about[name]
            for name in ("runs", "new", "changed", "known", "dropped", "outcomes_left_out")
        },
        "findings": _findings(frame, ground, about),
        **({} if bill is None else {"bill": bill}),
        "import_sha256": corpus.store.sha256(batch_key(corpus.name, batch, "import.json")),
        **{name: about[name] for name in ("runs_sha256", "identities_sha256", "draw_sha256")},
        "scores_sha256": corpus.store.write_table(
            batch_key(corpus.name, batch, "scores.parquet"), scored
        ),
        "decisions_sha256": sha256_bytes(data),
    }
    corpus.store.write_json(batch_key(corpus.name, batch, "batch.json"), document)
    # last: where this table is, the batch is decided
    corpus.store.write_bytes(batch_key(corpus.name, batch, "decisions.parquet"), data)
    _forget_shares(corpus, batch)
    return document


def _require_as_imported(corpus: Corpus, batch: str, about: Mapping[str, Any]) -> None:
    for name, file in (
        ("runs_sha256", "runs.parquet"),
        ("identities_sha256", "identities.parquet"),
        ("draw_sha256", "draw.json"),
    ):
        if corpus.store.sha256(batch_key(corpus.name, batch, file)) != about[name]:
            raise IntegrityError(
                f"{corpus.store.locate(batch_key(corpus.name, batch, file))} is not what was imported; take the folder of the batch away and import its files again."
            )


def _scored(
    store: Store, folder: str, runs: pd.DataFrame, now: Standing, report: Report
) -> tuple[pd.DataFrame, dict[str, Any] | None, Standing]:
    """Score the runs, without their outcomes; what turns out to be stale in doing so refuses the batch."""
    if now.deployment is not None and now.refusal is None:
        try:
            table, bill = _in_shares(store, folder, runs, now, report)
            return table, bill, now
        except IntegrityError as error:
            now = now._replace(refusal=Refusal("stale_certificate", str(error)))
    names = ["corpus", "task_id", "trajectory_id", "agent", "attempt"]
    return runs[names].assign(score=np.nan, log_p_success=np.nan, log_p_fail=np.nan), None, now


def _in_shares(
    store: Store, folder: str, runs: pd.DataFrame, now: Standing, report: Report
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    import pandas as pd

    assert now.deployment is not None
    corpus, judge, adapter = (
        now.deployment.corpus,
        now.deployment.judge,
        now.deployment.fingerprint["adapter_sha256"],
    )
    if judge_spec(judge, store.root).hosted:
        # it keeps every answer by itself, and its bill is of all of them
        return JudgedCorpus(Corpus(store, corpus), judge).score_runs(runs, report=report)
    parts = []
    for place in range(0, len(runs), _SHARE):
        key = f"{folder}/{adapter[:16]}-{place // _SHARE:05d}.parquet"
        if not store.exists(key):
            part = JudgedCorpus(Corpus(store, corpus), judge).score_runs(
                runs.iloc[place : place + _SHARE].reset_index(drop=True),
                report=report,
            )[0]
            store.write_table(key, part)
        parts.append(store.read_table(key))
    return pd.concat(parts, ignore_index=True), None


def _forget_shares(corpus: Corpus, batch: str) -> None:
    folder = batch_key(corpus.name, batch, "shares")
    for name in corpus.store.names(folder):
        corpus.store.delete(f"{folder}/{name}")
    corpus.store.remove_folder(folder)


def _ground(corpus: Corpus, batch: str, runs: pd.DataFrame, now: Standing) -> _Ground:
    identities = corpus.store.read_table(batch_key(corpus.name, batch, "identities.parquet"))
    changed = (
        runs["trajectory_id"]
        .isin(set(identities.loc[identities["changed"], "trajectory_id"]))
        .to_numpy(bool)
    )
    nowhere = np.zeros(len(runs), dtype="<U4")
    if now.refusal is not None:
        return _Ground(now, changed, nowhere, ())
    frame, manifest = corpus.trajectories, corpus.manifest
    splits = np.array([manifest.assignment.get(task, "") for task in runs["task_id"]], dtype="<U4")
    known = set(frame.loc[frame["task_id"].isin(manifest.tasks["cal"]), "agent"])
    return _Ground(now, changed, splits, tuple(sorted(set(runs["agent"]) - known)))


def _decisions(
    runs: pd.DataFrame,
    scores: np.ndarray[Any, np.dtype[np.float64]],
    ground: _Ground,
    drawn: Mapping[str, str],
) -> pd.DataFrame:
    decisions, reasons = _by_certificate(scores, ground)
    now = ground.now
    used = () if now.refusal is not None else now.certificates
    thresholds = {item.side: item.threshold for item in used}
    judge, adapter = (
        ("", "")
        if now.deployment is None
        else (now.deployment.judge, now.deployment.fingerprint["adapter_sha256"])
    )
    names = ["trajectory_id", "task_id", "agent", "attempt", "source_file", "source_sha256"]
    return runs[names].assign(
        judge=judge,
        score=scores,
        decision=decisions,
        reason=reasons,
        asked=_asked(runs["task_id"].tolist(), decisions, ground, drawn),
        **{
            f"{side}_threshold": np.float64(
                "nan" if thresholds.get(side) is None else thresholds[side]
            )
            for side in SIDES
        },
        certificate_sha256=";".join(item.sha256 for item in used),
        adapter_sha256=adapter,
    )


def _by_certificate(
    scores: np.ndarray[Any, np.dtype[np.float64]], ground: _Ground
) -> tuple[Any, Any]:
    """Decide every row by the thresholds, but leave to people what the promise does not speak of."""
    from certify_assets.certificates import decide

    if ground.now.refusal is not None:
        people = np.full(scores.size, "human", dtype=object)
        return people, np.full(scores.size, ground.now.refusal.code, dtype=object)
    decisions, reasons = (
        np.asarray(part, dtype=object) for part in decide(list(ground.now.certificates), scores)
    )
    # the promise is on runs of new tasks: judge, threshold or audit have seen those of the splits
    for where, reason in ((ground.splits != "", "seen_task"), (ground.changed, "changed_run")):
        decisions[where], reasons[where] = "human", reason
    return decisions, reasons


def _asked(tasks: Sequence[str], decisions: Any, ground: _Ground, drawn: Mapping[str, str]) -> Any:
    """Say why a person is asked about each row."""
    places = np.array([drawn.get(task, "") for task in tasks], dtype=object)
    asked = np.where(
        decisions == "human", "undecided", np.where(places == "spot", "spot_check", "")
    ).astype(object)
    # a task that was seen, or a run that was there before, is no draw from the new ones
    asked[(places == "audit") & (ground.splits == "") & ~ground.changed] = "audit_sample"
    return asked


def _findings(
    frame: pd.DataFrame, ground: _Ground, about: Mapping[str, Any]
) -> list[dict[str, str]]:
    found = [{"code": "changed_runs", "message": sentence} for sentence in about["sentences"]]
    seen = Counter(name for name in ground.splits.tolist() if name)
    if seen:
        text = ", ".join(f"{number} of {split.upper()}" for split, number in sorted(seen.items()))
        message = f"{sum(seen.values())} runs are of tasks of the splits ({text}): the promise is on new tasks, so people decide them."
        found.append({"code": "seen_tasks", "message": message})
    if ground.new_agents:
        rows = int(frame["agent"].isin(ground.new_agents).sum())
        shown = ", ".join(ground.new_agents[:5]) + (", …" if len(ground.new_agents) > 5 else "")
        text = f"{rows} runs are of {len(ground.new_agents)} agents without a run in CAL ({shown}); the promise is on runs like those of CAL."
        found.append({"code": "new_agents", "message": text})
    deployment = ground.now.deployment
    if (
        deployment is not None
        and not deployment.sampling.audit_rate + deployment.sampling.spot_rate
    ):
        found.append(
            {
                "code": "nothing_sampled",
                "message": "No task is drawn for people, so nothing would show that the error has grown.",
            }
        )
    if about["outcomes_left_out"]:
        text = f"{about['outcomes_left_out']} runs came with an outcome, which is not kept: who delivers a run does not label it."
        found.append({"code": "outcomes_left_out", "message": text})
    return found


def _counts(column: pd.Series[Any]) -> dict[str, int]:
    return {str(name): int(number) for name, number in sorted(Counter(column.tolist()).items())}


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()
