"""Harvest judges: rounds of CertHarvest, trained on pseudo-labels from a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from certify_assets.certificates import Settings
from certify_assets.corpora import HALF_B
from certify_assets.errors import GateClosedError, LeakError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.certharvest import (
    HALVES_SEED,
    certharvest,
    contamination,
    halves,
    refuse_held_out,
    withhold,
)
from certify_assets.judges.family import JudgeFamily, maker_of
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

    @property
    def summary(self) -> str:
        """Two sentences for lists and asset pages."""
        return (
            f"Trained from its base on SFT and the runs that {self.start} certifies as failures on "
            "half A of CAL. It is certified on half B."
        )

    def calibration_name(self, splits: Sequence[str]) -> str:
        """Return the name of half B of CAL."""
        return HALF_B

    def calibration_rows(self, labelled: pd.DataFrame) -> pd.DataFrame:
        """Return half B of CAL: half A chose what it learned from."""
        return halves(labelled)[1]

    def require_present(self, corpus: Corpus) -> None:
        """Refuse scores left over from a harvest whose gate has since closed."""
        key = judge_file(self.name, corpus.name, "harvest.json")
        if corpus.store.exists(key):
            raise StaleCertificateError(
                f"the gate of {self.name} on {corpus} is closed now, so there is no such judge: "
                f"{corpus.store.read_json(key)['reason']}"
            )


@judge_family("harvest")
class HarvestFamily(JudgeFamily):
    """Harvest with the start's certificate on half A, train from the base on source and harvest."""

    position = 30
    # two rounds of each, the second gated by the judge of the first
    judges = (
        HarvestSpec(name="lexical_harvest_1", start="lexical", reading=LEXICAL),
        HarvestSpec(name="lexical_harvest_2", start="lexical_harvest_1", reading=LEXICAL),
        HarvestSpec(name="harvest_1", start="sft", model="compact", reading=COMPACT),
        HarvestSpec(name="harvest_2", start="harvest_1", model="compact", reading=COMPACT),
    )

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Harvest, train and store the adapter; a closed gate is an error, its reason is stored."""
        spec, store = judge.spec, judge.store
        assert isinstance(spec, HarvestSpec)
        sft, manifest = judge.corpus.split("sft"), judge.corpus.manifest
        scores, hashes, _ = judge.sibling(spec.start).scores
        cal = scores[(scores["split"] == "cal") & scores["outcome"].notna()]
        rl, withheld = withhold(judge.corpus.split("rl"))
        pool = rl.merge(scores[["trajectory_id", "score"]], "left", "trajectory_id")
        settings = Settings(alpha=spec.alpha, delta=DELTA, procedure=spec.gate)
        harvest = certharvest(
            halves(cal)[0],
            pool,
            sft[sft["outcome"].notna()],
            lambda rows: maker_of(judge).made(judge, rows, run="adapter", report=report),
            settings=settings,
            manifest=manifest,
        )
        started = {
            "start": spec.start,
            "start_adapter_sha256": hashes["adapter_sha256"],
            "start_scores_sha256": hashes["scores_sha256"],
        }
        size = int(harvest.taken.sum())
        document = {
            **harvest.gate.to_dict(),
            "open": harvest.judge is not None,
            "reason": harvest.reason,
            "settings": {
                "alpha": spec.alpha,
                "delta": DELTA,
                "grid": settings.applied_grid,
                "procedure": spec.gate,
                "side": settings.side,
                "halves_seed": HALVES_SEED,
            },
            "certificate": harvest.gate.certificate.to_dict(),
            "pseudo_label": harvest.label,
            "size": size,
            "pool": len(pool),
            "manifest_sha256": manifest.sha256,
            **started,
        }
        store.write_json(judge.key("harvest.json"), document)
        wrong = contamination(harvest, pool, withheld)
        store.write_json(judge.key("contamination.json"), wrong)
        if harvest.judge is None:
            # a judge of an earlier opening depends on a gate that is closed now
            store.delete(judge.key("adapter.json"))
            raise GateClosedError(f"{judge} harvests nothing from {judge.corpus}: {harvest.reason}")
        names = ["trajectory_id", "task_id", "agent", "corpus"]
        taken = pool.loc[harvest.taken, names].assign(pseudo_label=harvest.label)
        kept = {
            "sha256": store.write_table(judge.key("harvest.parquet"), taken.reset_index(drop=True)),
            "size": size,
            "gate_sha256": sha256_bytes(canonical_json(document)),
            **started,
        }
        model, made = harvest.judge
        return judge.record(
            model.provenance().adapter_sha256,
            sft,
            starts={spec.start: hashes["adapter_sha256"]},
            success_weight=None if spec.model else 1.0,
            harvest=kept,
            **({"training": made} if made else {}),
        )

    def describe(self, record: JudgeRecord) -> str:
        """Describe the labelled rows and the pseudo-labelled ones."""
        size = record.detail("harvest")["size"]
        return f"{super().describe(record)}, and {size} runs of RL with pseudo-labels"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return the judge whose certificate gave the pseudo-labels."""
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
