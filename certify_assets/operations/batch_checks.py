"""What must be true of decisions that were made: the deployment stands, every row stands on a deployed certificate, the drawn tasks are the plan's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.deployment import certificate_key, read_deployments, standing
from certify_assets.operations.layout import batch_key, batch_names, decisions_of
from certify_assets.operations.sampling import SamplingPlan, draw_tasks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Verdict", "decided_by_deployed", "deployment_stands", "drawn_as_planned"]


class Verdict(NamedTuple):
    """PASS, WARN or ERROR, and the sentence."""

    status: str
    sentence: str


def deployment_stands(corpus: Corpus) -> Verdict:
    """PASS; WARN where no judge is deployed or something should be known of the deployment; ERROR where it may not decide."""
    now = standing(corpus)
    if now.refusal is not None:
        return Verdict(
            "WARN" if now.refusal.code == "not_deployed" else "ERROR",
            f"{now.refusal.code}: {now.refusal.sentence}",
        )
    made = now.deployment
    assert made is not None
    sides = ", ".join(f"{side} at {alpha:g}" for side, alpha in made.alpha.items())
    told = [finding["message"] for finding in made.findings if finding["code"] != "two_sides"]
    told += (
        [f"MLflow: {made.mlflow['error']}"]
        if made.mlflow is not None and "error" in made.mlflow
        else []
    )
    return Verdict(
        "WARN" if told else "PASS",
        " ".join([f"{made.judge} decides ({sides}; deployment {made.number}).", *told]),
    )


def decided_by_deployed(corpus: Corpus) -> Verdict:
    """PASS where every decided row stands on certificates that were deployed and are kept; WARN where nothing is decided; ERROR else."""
    deployed = {";".join(item.certificates) for item in read_deployments(corpus)}
    rows = 0
    for batch in batch_names(corpus):
        key = batch_key(corpus.name, batch, "decisions.parquet")
        if corpus.store.sha256(key) != _document(corpus, batch).get("decisions_sha256"):
            return Verdict(
                "ERROR",
                f"{key} is not what was written when the batch was decided; restore it from a backup.",
            )
        frame = decisions_of(corpus, batch)
        automatic = frame[frame["decision"] != "human"]
        if (wrong := _undeployed(corpus, automatic, deployed)) is not None:
            return Verdict("ERROR", f"{key}: {wrong}")
        rows += len(automatic)
    return Verdict(
        "PASS" if rows else "WARN",
        f"{rows} rows were decided without a person, all on deployed certificates."
        if rows
        else "no row was decided.",
    )


def drawn_as_planned(corpus: Corpus) -> Verdict:
    """PASS where the drawn tasks of every batch are those of its deployment's plan; WARN where none could be drawn; ERROR else."""
    plans = {item.number: item.sampling for item in read_deployments(corpus)}
    tasks = undrawn = drawn = 0
    for batch in batch_names(corpus):
        key = batch_key(corpus.name, batch, "draw.json")
        frame, draw = decisions_of(corpus, batch), corpus.store.read_json(key)
        names = sorted(set(frame["task_id"]))
        plan = SamplingPlan(0.0, 0.0) if draw["plan"] is None else SamplingPlan(**draw["plan"])
        if draw["plan"] is not None and plans.get(draw["deployment"]) != plan:
            return Verdict(
                "ERROR", f"{key}: its plan is of no deployment, so the tasks may have been picked."
            )
        places = dict(zip(names, draw_tasks(plan, corpus.name, names).tolist(), strict=True))
        if draw["drawn"] != {task: place for task, place in places.items() if place}:
            return Verdict("ERROR", f"{key}: the drawn tasks are not those of the plan.")
        if (odd := _asked_oddly(frame, places)) is not None:
            return Verdict(
                "ERROR",
                f"{batch_key(corpus.name, batch, 'decisions.parquet')}: the run {odd!r} is asked about against the draw.",
            )
        tasks, drawn, undrawn = (
            tasks + len(names),
            drawn + len(draw["drawn"]),
            undrawn + (draw["plan"] is None),
        )
    if undrawn or not tasks:
        return Verdict(
            "WARN",
            f"{undrawn} batches came while no judge was deployed: nothing is drawn of them."
            if undrawn
            else "there is no batch.",
        )
    return Verdict("PASS", f"{drawn} of {tasks} tasks are drawn, as the plans say.")


def _document(corpus: Corpus, batch: str) -> dict[str, Any]:
    key = batch_key(corpus.name, batch, "batch.json")
    return dict(corpus.store.read_json(key)) if corpus.store.exists(key) else {}


def _undeployed(corpus: Corpus, automatic: pd.DataFrame, deployed: set[str]) -> str | None:
    """Say what is wrong with the certificates of rows that no person decides."""
    for names in sorted(set(automatic["certificate_sha256"])):
        if names not in deployed:
            return f"rows were decided under the certificates {names[:12] or '(none)'}, which were never deployed."
        for sha256 in names.split(";"):
            key = certificate_key(corpus.name, sha256)
            if not corpus.store.exists(key) or corpus.store.sha256(key) != sha256:
                return f"the certificate {sha256[:12]} is not kept as it was; restore {key} from a backup."
    return None


def _asked_oddly(frame: pd.DataFrame, places: dict[str, str]) -> str | None:
    """Return a run that is asked about for another reason than the draw gives."""
    of_task = frame["task_id"].map(places).to_numpy(object)
    human = (frame["decision"] == "human").to_numpy(bool)
    aside = frame["reason"].isin(["seen_task", "changed_run"]).to_numpy(bool)
    expected = np.where(human, "undecided", np.where(of_task == "spot", "spot_check", "")).astype(
        object
    )
    expected[(of_task == "audit") & ~aside] = "audit_sample"
    said = frame["asked"].to_numpy(object)
    # a run that came before with other content is in no draw, also where the batch was refused and its reason is that
    odd = np.flatnonzero(
        (said != expected) & ~((said == "undecided") & human & (of_task == "audit"))
    )
    return str(frame["trajectory_id"].iloc[int(odd[0])]) if odd.size else None
