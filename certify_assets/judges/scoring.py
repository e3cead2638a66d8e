"""Scoring a corpus with the stored adapter, and the calibration rows that are still what they were made from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from certify_assets.errors import StaleCertificateError
from certify_assets.judges.endpoint.judging import BilledJudge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.judging import current_adapter, load_adapter, renderer
from certify_assets.judges.specs import HARVEST_JUDGES
from certify_assets.judges.spread_scoring import Judged, spread_scoring
from certify_assets.judges.timings import timed
from certify_assets.storage.progress import Report, counted, silent
from certify_assets.storage.snapshot import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.lexical import LexicalJudge
    from certify_assets.judges.lm.judge import CausalJudge

    _Loaded = LexicalJudge | CausalJudge | BilledJudge

__all__ = [
    "calibrating",
    "calibration_scores",
    "fresh_scores",
    "rescored",
    "score_corpus",
    "score_runs_with_bill",
    "stored_bill",
]

_SCORED_SPLITS = ("rl", "cal", "test")
# split, in the score table of a harvest judge, of the CAL rows that let its harvest through: `certify verify` and `plan` take split=cal
_SPENT = "cal_half_a"


def score_corpus(judge: JudgedCorpus, *, report: Report = silent, engine: str = "") -> pd.DataFrame:
    """Score RL, CAL and TEST with the stored adapter. TEST rows carry no outcome: those come only through the ledger.

    A language model is spread over processes or Ray tasks where `engine` or ``CERTIFY_SHARDS`` says so, with the same bytes.
    """
    with timed(judge, "score") as stage:
        # shares of scores that an earlier run left cost nothing now
        stage.continued = bool(judge.store.names(judge.key("shards")))
        table = _score_corpus(judge, report, engine)
        stage.rows = len(table)
    return table


def _score_corpus(judge: JudgedCorpus, report: Report, engine: str) -> pd.DataFrame:
    import pandas as pd

    from certify_assets.judges.base import score_table

    adapter = current_adapter(judge)
    using = renderer()
    model = load_adapter(judge, expected_sha256=adapter["adapter_sha256"], resume=True)
    model = spread_scoring(
        model,
        Judged(judge.store.root, judge.corpus.name, judge.name, adapter["adapter_sha256"]),
        engine,
    )
    parts = []
    for split in _SCORED_SPLITS:
        frame, manifest = judge.corpus.split(split), judge.corpus.manifest
        part = score_table(_reporting(model, report, split), frame, using).assign(
            split=_named(split, frame, judge.name)
        )
        parts.append(part.assign(outcome=None) if split == "test" else part)
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    table["outcome"] = table["outcome"].astype("Int8")
    sha256 = judge.store.write_table(judge.key("scores.parquet"), table)
    judge.store.write_json(
        judge.key("scores.json"),
        {
            "scores_sha256": sha256,
            "rows": len(table),
            "adapter_sha256": adapter["adapter_sha256"],
            "renderer_sha256": using.sha256,
            "manifest_sha256": manifest.sha256,
            "trajectories_sha256": judge.corpus.trajectories_sha256,
            **_bill(model),
        },
    )
    return table


def _named(split: str, frame: pd.DataFrame, judge: str) -> Any:
    """Return the split of each row as the score table names it."""
    if split != "cal" or judge not in HARVEST_JUDGES:
        return split
    labelled = frame[frame["outcome"].notna()].reset_index(drop=True)
    certifying = set(calibrating(labelled, judge)["task_id"])
    return np.where(frame["task_id"].isin(set(labelled["task_id"]) - certifying), _SPENT, split)


def _reporting(model: _Loaded, report: Report, split: str) -> _Loaded:
    from certify_assets.judges.lexical import LexicalJudge

    # the lexical judge is done before it could say anything
    return (
        model
        if isinstance(model, LexicalJudge)
        else replace(model, progress=counted(report, f"scoring {split}"))
    )


def score_runs_with_bill(
    judge: JudgedCorpus, frame: pd.DataFrame, *, report: Report = silent
) -> tuple[pd.DataFrame, dict[str, Any] | None]:
    """Score new trajectories; return what an endpoint judge cost beside the table, None for other judges.

    Raises
    ------
    StaleCertificateError
        Also if the server now answers as another model than the one whose scores are stored.
    """
    from certify_assets.judges.base import score_table

    adapter = current_adapter(judge)
    model = load_adapter(judge, expected_sha256=adapter["adapter_sha256"])
    model = spread_scoring(
        model,
        Judged(judge.store.root, judge.corpus.name, judge.name, adapter["adapter_sha256"]),
        "",
    )
    table = score_table(_reporting(model, report, "new runs"), frame, renderer())
    bill = _bill(model).get("bill")
    then = stored_bill(judge)
    if (
        bill is not None
        and then is not None
        and bill["models"]
        and then["models"]
        and bill["models"] != then["models"]
    ):
        raise StaleCertificateError(
            f"the server of {judge} answers as {bill['models'][0]} now and answered as {then['models'][0]} when {judge.corpus} was scored; "
            f"materialize judges/{judge}/scores again and certify anew."
        )
    return table, bill


def stored_bill(judge: JudgedCorpus) -> dict[str, Any] | None:
    """Return what the stored scores of an endpoint judge cost: counts, tokens, seconds, cost; None for other judges."""
    key = judge.key("scores.json")
    bill: dict[str, Any] | None = (
        judge.store.read_json(key).get("bill") if judge.store.exists(key) else None
    )
    return bill


def _bill(model: Any) -> dict[str, Any]:
    return {"bill": model.bill()} if isinstance(model, BilledJudge) else {}


@remembered
def calibration_scores(judge: JudgedCorpus) -> tuple[pd.DataFrame, dict[str, str], dict[str, Any]]:
    """Return the labelled CAL rows that a judge is certified on, the hashes they stand on, and the adapter document.

    These are all of CAL, and half B alone for a judge that learned from what half A let through.

    Raises
    ------
    StaleCertificateError
        As `fresh_scores`.
    """
    table, now, adapter = fresh_scores(judge)
    cal = table[(table["split"] == "cal") & table["outcome"].notna()].reset_index(drop=True)
    return calibrating(cal, judge.name), now, adapter


def calibrating(cal: pd.DataFrame, judge: str) -> pd.DataFrame:
    """Return the rows of CAL that certify a judge."""
    if judge not in HARVEST_JUDGES:
        return cal
    from certify_assets.judges.harvest.withholding import HALVES_SEED, halves

    return halves(cal, HALVES_SEED)[1]


def fresh_scores(judge: JudgedCorpus) -> tuple[pd.DataFrame, dict[str, str], dict[str, Any]]:
    """Return a judge's scores of RL, CAL and TEST, the hashes they stand on, and the adapter document.

    Raises
    ------
    StaleCertificateError
        If the scores were made by another adapter, renderer or manifest than those stored now.
    """
    adapter = current_adapter(judge)
    meta = judge.store.read_json(judge.key("scores.json"))
    now = {
        "adapter_sha256": adapter["adapter_sha256"],
        "renderer_sha256": renderer().sha256,
        "manifest_sha256": judge.corpus.manifest.sha256,
        "scores_sha256": judge.store.sha256(judge.key("scores.parquet")),
        "trajectories_sha256": judge.corpus.trajectories_sha256,
    }
    stale = next((name for name, value in now.items() if meta.get(name) != value), None)
    if stale is not None:
        raise StaleCertificateError(
            f"the scores of {judge} on {judge.corpus} belong to another {stale.removesuffix('_sha256')} than the stored one; materialize judges/{judge}/scores again."
        )
    table = judge.store.read_table(judge.key("scores.parquet"))
    table["split"] = table["split"].replace(_SPENT, "cal")
    _require_labels_of_cal(
        judge, table[(table["split"] == "cal") & table["outcome"].notna()].reset_index(drop=True)
    )
    return table, now, adapter


def rescored(judge: JudgedCorpus) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Score again, with the stored adapter, the CAL trajectories that a judge is certified on, in the order of the stored scores."""
    from certify_assets.judges.base import score_table

    adapter = current_adapter(judge)
    model = load_adapter(judge, expected_sha256=adapter["adapter_sha256"], replay=True)
    cal = judge.corpus.split("cal")
    table = score_table(
        model,
        calibrating(cal[cal["outcome"].notna()].reset_index(drop=True), judge.name),
        renderer(),
    )
    scores: np.ndarray[Any, np.dtype[np.float64]] = table["score"].to_numpy(np.float64)
    return scores


def _require_labels_of_cal(judge: JudgedCorpus, cal: pd.DataFrame) -> None:
    """Refuse scores whose labels or tasks are not those of the stored CAL split."""
    split = judge.corpus.split("cal")
    names = ["trajectory_id", "task_id", "outcome"]
    expected = (
        split.loc[split["outcome"].notna(), names]
        .reset_index(drop=True)
        .astype({"outcome": "int8"})
    )
    if not cal[names].astype({"outcome": "int8"}).equals(expected):
        raise StaleCertificateError(
            f"the scores of {judge} on {judge.corpus} do not carry the labels of CAL; materialize judges/{judge}/scores again."
        )
