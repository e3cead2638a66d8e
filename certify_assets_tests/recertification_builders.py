"""A corpus in operation, made by hand: a deployment, batches of decisions, and what people said of them."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from certify_assets.certificates import Certificate
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.audit_sample import RunDraw, RunsOfTask, SamplingPlan
from certify_assets.operations.batches import known_tasks, ready_batches
from certify_assets.operations.certifier import own_key
from certify_assets.operations.deployment import Deployed, judge_fingerprint, strictest_certificates
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.recertification_record import CERTIFICATES, recertification_key
from certify_assets.storage.store import Store
from certify_assets_tests.batch_builders import store_batch

__all__ = [
    "JUDGE",
    "deploy_by_hand",
    "draw_tasks",
    "drawn_run",
    "drawn_tasks",
    "label_rows",
    "strictest_certificate",
    "write_batch",
    "write_decisions",
]

JUDGE = "lexical"


def draw_tasks(plan: SamplingPlan, corpus: str, tasks: Iterable[str]) -> np.ndarray:
    """Return which of `tasks` are drawn."""
    return np.array([plan.draws(corpus, task) for task in tasks], dtype=bool)


def deploy_by_hand(
    store: Store, corpus: str, plan: SamplingPlan, *, recertification: int = 0, number: int = 1
) -> None:
    """Deploy the lexical judge with the certificates that decide, past every check."""
    key = own_key(corpus, JUDGE)
    if recertification:
        key = recertification_key(corpus, recertification, CERTIFICATES)
    judge, chosen = JudgedCorpus(Corpus(store, corpus), JUDGE), _deciding(store, key)
    certificates = [store.objects.put(item.to_json()) for item in chosen]
    made = Deployed(
        number=number,
        corpus=corpus,
        judge=JUDGE,
        alpha={item.side: item.alpha for item in chosen},
        recertification=recertification,
        certificates=tuple(certificates),
        fingerprint=judge_fingerprint(judge),
        sampling=plan,
        objects=judge.files() | {f"certificates/{sha256}": sha256 for sha256 in certificates},
    )
    store.append(corpus, made)


def _deciding(store: Store, key: str) -> list[Certificate]:
    """Return the certificates that decide, as they are stored: recomputing them is what the tests are of."""
    return strictest_certificates(
        [Certificate.from_dict(item) for item in store.read_json(key)["certificates"]]
    )


def write_batch(
    store: Store,
    corpus: str,
    batch: str,
    plan: SamplingPlan,
    *,
    tasks: Iterable[str],
    attempts: int = 4,
    first: int = 0,
    error: float = 0.02,
    seed: int = 0,
    closed: bool = False,
    deployment: int = 1,
) -> pd.DataFrame:
    """Write decisions of new runs and return them with the truth as a column ``truth``: of two runs one is decided, wrong with a probability of `error`."""
    rng = np.random.default_rng(seed)
    certificates = _deciding(store, own_key(corpus, JUDGE))
    limits = {item.side: item.threshold for item in certificates}
    reject, release = limits.get("reject"), limits.get("release")
    assert reject is not None
    names = [task for task in tasks for _ in range(attempts)]
    inside = np.arange(len(names)) % 2 == 0
    score = np.where(
        inside, reject - rng.random(len(names)), reject + 0.05 + 0.01 * rng.random(len(names))
    )
    frame = pd.DataFrame({"task_id": names, "score": score})
    frame["trajectory_id"] = [
        f"{task}/{first + place % attempts}" for place, task in enumerate(names)
    ]
    frame["truth"] = np.where(
        inside, rng.random(len(names)) < error, rng.random(len(names)) < 0.6
    ).astype(int)
    adapter = certificates[0].provenance["adapter_sha256"]
    frame = frame.assign(
        corpus=corpus, batch=batch, agent="agent-0", attempt=0, judge=JUDGE, adapter_sha256=adapter
    )
    frame["decision"] = np.where(inside & (not closed), "reject", "human")
    frame["reason"] = np.where(
        inside, "alarm" if closed else "below_threshold", "alarm" if closed else "middle"
    )
    if not closed:
        frame.loc[
            frame["task_id"].isin(set(Corpus(store, corpus).manifest.assignment)),
            ["decision", "reason"],
        ] = ["human", "known_task"]
    draw = _draw(store, corpus, batch, plan, deployment, frame)
    drawn = frame["trajectory_id"].isin(draw.drawn)
    frame["asked"] = np.where(frame["decision"] == "human", "undecided", "")
    frame.loc[drawn & (frame["reason"] != "known_task"), "asked"] = "audit_sample"
    frame = frame.assign(
        reject_threshold=reject, release_threshold=np.nan if release is None else release
    )
    frame = frame.assign(
        certificate_sha256=";".join(item.sha256 for item in certificates),
        source_file="runs.jsonl",
        source_sha256="0" * 64,
    )
    write_decisions(store, corpus, batch, frame, plan=plan, deployment=deployment)
    return frame


def write_decisions(
    store: Store,
    corpus: str,
    batch: str,
    frame: pd.DataFrame,
    *,
    plan: SamplingPlan | None = None,
    deployment: int = 1,
    changed: bool = False,
) -> None:
    """Store a table of decisions as the one of a batch; the draw only where a plan is given."""
    draw = None if plan is None else _draw(store, corpus, batch, plan, deployment, frame)
    store_batch(store, corpus, batch, frame, draw=draw, changed=changed)


def _draw(
    store: Store, corpus: str, batch: str, plan: SamplingPlan, deployment: int, frame: pd.DataFrame
) -> RunDraw:
    """Draw runs of a batch as its import does; return the draw of one that is there."""
    opened = Corpus(store, corpus)
    if batch in ready_batches(opened):
        return RunDraw.load(opened, batch)
    runs = RunsOfTask.of(opened.config, plan)
    before = known_tasks(opened, set(frame["task_id"]))
    names = zip(frame["task_id"], frame["trajectory_id"], strict=True)
    return RunDraw.of(deployment, plan, runs, names, corpus=corpus, before=before)


def drawn_tasks(
    plan: SamplingPlan, corpus: str, number: int, *, drawn: bool = True, prefix: str = "new"
) -> list[str]:
    """Return the first tasks that are drawn, or not, among those named after a prefix."""
    names = [f"{prefix}-{place:05d}" for place in range(200 * number)]
    return [name for name in names if plan.draws(corpus, name) == drawn][:number]


def drawn_run(rows: pd.DataFrame, task: str) -> str:
    """Return the run of a task of the audit sample that reviewers are asked about."""
    asked = rows[(rows["task_id"] == task) & (rows["asked"] == "audit_sample")]
    (run,) = asked["trajectory_id"]
    return str(run)


def label_rows(
    store: Store,
    corpus: str,
    frame: pd.DataFrame,
    *,
    reviewer: str = "ann",
    flip: Callable[[str], bool] = lambda _: False,
) -> None:
    """Write what a reviewer says of every row that somebody is asked about: the truth, or its contrary."""
    asked = frame[frame["asked"] != ""]
    said = [
        Label(
            trajectory_id=str(row.trajectory_id),
            outcome=int(row.truth) ^ int(flip(str(row.trajectory_id))),
            reviewer=reviewer,
            via="file",
            token=f"{reviewer}:{row.trajectory_id}",
        )
        for row in asked.itertuples()
    ]
    append_labels(Corpus(store, corpus), said)


def strictest_certificate(store: Store) -> Certificate:
    """The strictest certificate that the judge of `deploy_by_hand` was issued."""
    return _deciding(store, own_key("one", JUDGE))[0]
