"""Harvest judges: rounds of CertHarvest, trained on pseudo-labels behind a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from certify_assets.certificates import Settings
from certify_assets.corpora import HALF_B
from certify_assets.errors import GateClosedError, LeakError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.family import JudgeFamily, maker_of
from certify_assets.judges.harvest.gate import (
    HALVES_SEED,
    contamination,
    halves,
    open_gate,
    refuse_held_out,
    rendered_lengths,
    skew,
    training_set,
    withhold,
)
from certify_assets.judges.harvest.rows import ContaminationRow, GateDocument
from certify_assets.judges.reading import COMPACT, LEXICAL
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.spec import DerivedSpec
from certify_assets.judges.specs import DELTA, PROCEDURES, judge_family
from certify_assets.judges.stored import StoredJudge, judge_file
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.corpus import Corpus


class HarvestSpec(DerivedSpec):
    """A round of CertHarvest; `start` is the judge whose certificate gates it."""

    # SFT with its labels, RL with pseudo-labels
    training_splits = ("sft", "rl")
    gated = True

    family: Literal["harvest"] = "harvest"
    # budget of wrong pseudo-labels: the larger one, because halves of CAL are small
    alpha: float = 0.2
    # procedure that certifies half A
    gate: str = PROCEDURES[0]

    def calibration_name(self, splits: Sequence[str]) -> str:
        """Return the name of half B of CAL."""
        return HALF_B

    def calibration_rows(self, labelled: pd.DataFrame) -> pd.DataFrame:
        """Return half B of CAL: half A chose what it learned from."""
        return halves(labelled, HALVES_SEED)[1]

    def require_present(self, corpus: Corpus) -> None:
        """Refuse scores left over from a harvest whose gate has since closed."""
        key = judge_file(self.name, corpus.name, "harvest.json")
        if corpus.store.exists(key):
            raise StaleCertificateError(
                f"the gate of {self.name} on {corpus} is closed now, so there is no such judge: "
                f"{corpus.store.read_json(key)['reason']}"
            )


def _rounds(name: str, start: str, model: str, words: str) -> tuple[HarvestSpec, HarvestSpec]:
    """Two rounds, the second gated by the judge of the first."""
    text = (
        "{}, trained from its base on SFT and the runs that {} certifies as failures on half A of "
        "CAL; certified on half B."
    )
    first, second = (
        HarvestSpec(
            name=f"{name}_{number}",
            summary=text.format(words, gate),
            model=model,
            reading=COMPACT if model else LEXICAL,
            start=gate,
        )
        for number, gate in ((1, start), (2, f"{name}_1"))
    )
    return first, second


@judge_family("harvest")
class HarvestFamily(JudgeFamily):
    """Harvest with the start's certificate on half A, train from the base on source and harvest."""

    position = 30
    judges = (
        *_rounds("lexical_harvest", "lexical", "", "The lexical judge"),
        *_rounds("harvest", "sft", "compact", "The compact language model"),
    )

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Harvest, train and store the adapter; a closed gate is an error, its reason is stored."""
        spec, store = judge.spec, judge.store
        harvested, document, wrong = _harvested(judge)
        sft, manifest = judge.corpus.split("sft"), judge.corpus.manifest
        store.write_json(judge.key("harvest.json"), document)
        store.write_json(judge.key("contamination.json"), wrong)
        if not len(harvested):
            # a judge of an earlier opening depends on a gate that is closed now
            store.delete(judge.key("adapter.json"))
            raise GateClosedError(
                f"{judge} harvests nothing from {judge.corpus}: {document['reason']}"
            )
        label = document["pseudo_label"]
        taken = harvested[["trajectory_id", "task_id", "agent", "corpus"]].assign(
            pseudo_label=label
        )
        harvest_sha256 = store.write_table(judge.key("harvest.parquet"), taken)
        labelled = sft[sft["outcome"].notna()].reset_index(drop=True)
        training = training_set(labelled, harvested, label=label, manifest=manifest)
        model, made = maker_of(judge).made(judge, training, run="adapter", report=report)
        details: dict[str, Any] = {"training": made} if made else {}
        details["harvest"] = {
            "sha256": harvest_sha256,
            "size": len(taken),
            "gate_sha256": sha256_bytes(canonical_json(document)),
            "start": document["start"],
            "start_scores_sha256": document["start_scores_sha256"],
        }
        return judge.record(
            model.provenance().adapter_sha256,
            sft,
            starts={document["start"]: document["start_adapter_sha256"]},
            success_weight=None if spec.model else 1.0,
            **details,
        )

    def describe(self, record: JudgeRecord) -> str:
        """Return the labelled rows and the pseudo-labelled ones."""
        size = record.detail("harvest")["size"]
        return f"{super().describe(record)}, and {size} runs of RL with pseudo-labels"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return whose certificate gave labels that no reviewer gave."""
        harvest = record.detail("harvest")
        return {
            "pseudo_labels": f"{harvest['size']} runs of RL were taken as failures on the word of "
            f"{harvest['start']}, whose threshold half A of CAL certified"
        }


def harvest_violations(judge: StoredJudge) -> list[str]:
    """Return pseudo-labels of CAL and TEST, and a harvest that the adapter was not trained on."""
    import pandas as pd

    key = judge.key("harvest.parquet")
    if not judge.store.exists(key):
        return []
    harvested = judge.store.read_table(key)
    found = []
    for split in ("cal", "test"):
        frame = judge.corpus.split(split)
        shared = set(frame["trajectory_id"]) & set(harvested["trajectory_id"])
        found += [f"{len(shared)} harvested runs are rows of {split.upper()}."] if shared else []
    try:
        refuse_held_out(pd.DataFrame(harvested), judge.corpus.manifest, what="pseudo-labelled")
    except LeakError as error:
        found.append(str(error))
    trained_on = judge.stored_artifact.detail("harvest").get("sha256") if judge.is_trained else None
    if trained_on != judge.store.sha256(key):
        found.append(
            f"the harvest of {judge} on {judge.corpus} is not the one that its adapter was trained "
            f"on; materialize judges/{judge}/model again."
        )
    return found


def _harvested(judge: StoredJudge) -> tuple[pd.DataFrame, GateDocument, ContaminationRow]:
    """Take what the certificate of half A lets through; return it, the gate and its errors."""
    spec = judge.spec
    assert isinstance(spec, HarvestSpec)
    table, hashes, _ = judge.sibling(spec.start).scores
    pool = withhold(judge.corpus.split("rl"))
    cal = table[(table["split"] == "cal") & table["outcome"].notna()].reset_index(drop=True)
    half_a, _ = halves(cal, HALVES_SEED)
    settings = Settings(alpha=spec.alpha, delta=DELTA, procedure=spec.gate)
    gate = open_gate(half_a, settings)
    scored = pool.frame[["trajectory_id", "task_id"]].merge(
        table[["trajectory_id", "score"]], on="trajectory_id", how="left", validate="one_to_one"
    )
    taken = gate.taken(scored["score"].to_numpy(np.float64))
    reason = (
        gate.reason
        if taken.any() or not gate.open
        else "the certified region holds no run of the pool."
    )
    document: GateDocument = {
        **gate.to_dict(),
        "open": bool(taken.any()),
        "reason": reason,
        "settings": {
            "alpha": spec.alpha,
            "delta": DELTA,
            "grid": settings.applied_grid,
            "procedure": spec.gate,
            "side": "reject",
            "halves_seed": HALVES_SEED,
        },
        "certificate": gate.certificate.to_dict(),
        "pseudo_label": 0,
        "size": int(taken.sum()),
        "pool": len(pool.frame),
        "skew": skew(pool.frame, taken, rendered_lengths(pool.frame)),
        "start": spec.start,
        "start_adapter_sha256": hashes["adapter_sha256"],
        "start_scores_sha256": hashes["scores_sha256"],
        "manifest_sha256": judge.corpus.manifest.sha256,
    }
    rows = pool.frame[taken].reset_index(drop=True)
    return rows, document, contamination(gate, scored, pool)
