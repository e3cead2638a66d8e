"""A judge on a corpus, opened for one operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.rendering import render_frame
from certify_assets.errors import IntegrityError, StaleCertificateError, quoted
from certify_assets.files import canonical_json, sha256_bytes, stored_as
from certify_assets.judges.base import score_table
from certify_assets.judges.reading import USUAL, JudgeInput
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import JudgeSpec, families, judge_spec, platform_judges
from certify_assets.judges.timings import timed
from certify_assets.storage.moment import remembered
from certify_assets.work import Report, reported, silent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.judges.base import Bill, Judge
    from certify_assets.judges.canary import CanaryReport
    from certify_assets.judges.family import JudgeFamily
    from certify_assets.storage.store import Snapshot

# what the decisions and the lineage of a judge depend on
_DECIDING: Final = (
    "adapter.json",
    "scores.json",
    "scores.parquet",
    "pool.json",
    "certificates.json",
    "audits.json",
    "test_scores.parquet",
    "harvest.json",
    "harvest.parquet",
    "adapter",
)

_SCORED_SPLITS = ("rl", "cal", "test")
# The score table says split=cal of the rows that certify its judge, of whatever split, so that
# `certify certificate`, `plan` and `verify` take them. Others of those splits are named apart: the
# CAL rows that let a harvest through, and rows without an outcome.
_SPENT, _UNLABELLED = "cal_half_a", "_unlabelled"
# splits that certify a judge before it has scored, and where RL chooses it
_CAL_ALONE = ("cal",)
# of a record: the specification of a judge that is not the platform's
_REGISTERED = "registered"


def judge_file(judge: str, corpus: str, *parts: str) -> str:
    """Return the storage key of a file of a judge on a corpus; of their folder without a name."""
    return "/".join(("judges", judge, corpus, *parts))


@dataclass(frozen=True)
class JudgedCorpus:
    """One judge on one corpus, as one operation sees them."""

    corpus: Corpus
    name: str
    # a specification that no registry holds; by default the one of that name
    given: JudgeSpec | None = field(default=None, compare=False)

    @classmethod
    def of(cls, corpus: Corpus, spec: JudgeSpec) -> JudgedCorpus:
        """Return the judge of a specification on a corpus."""
        return cls(corpus, spec.name, spec)

    def __str__(self) -> str:
        return self.name

    @property
    def store(self) -> Snapshot:
        """Data root, as the corpus sees it."""
        return self.corpus.store

    @property
    def identity(self) -> tuple[str, ...]:
        """Name of the judge on its corpus among the views of a snapshot."""
        return (*self.corpus.identity, self.name)

    @property
    def spec(self) -> JudgeSpec:
        """Specification of the judge; refuse a name that no judge has."""
        if self.given is not None:
            return self.given
        return judge_spec(self.name, self.store.root)

    @property
    def family(self) -> JudgeFamily:
        """Family that makes the judge."""
        return families()[self.spec.family]

    @property
    def maker(self) -> JudgeFamily:
        """Family whose judges its training makes: its own, or that of its recipe."""
        return families()[self.spec.maker]

    def sibling(self, name: str) -> JudgedCorpus:
        """Return another judge on the same corpus, as it is stored now, in the same operation."""
        return JudgedCorpus(self.corpus.current, name)

    def key(self, *parts: str) -> str:
        """Return the storage key of a file of the judge on this corpus."""
        return judge_file(self.name, self.corpus.name, *parts)

    def origin(self, name: str) -> JudgedCorpus:
        """Return the judge that a training began with, as it was where it is pinned."""
        return JudgedCorpus(self.corpus, name)

    def origins(self) -> list[JudgedCorpus]:
        """Return the judges that the training of this one began with."""
        document = self.stored_artifact.details if self.is_trained else {}
        before = self.spec.upstream if "start_sha256" in document else ""
        names = [before, document.get("harvest", {}).get("start", "")]
        return [self.origin(name) for name in dict.fromkeys(filter(None, names))]

    @property
    def areas(self) -> list[str]:
        """Keys and folders of the judge that its decisions and lineage depend on."""
        return [self.key(name) for name in _DECIDING]

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of all that the judge's decisions and lineage depend on, by keys."""
        found, origins = self.store.hashes([*self.corpus.areas, *self.areas]), self.origins()
        while origins:
            found |= self.store.hashes((judge := origins.pop()).areas)
            origins += judge.origins()
        return found

    def pinned(self, files: Mapping[str, str]) -> JudgedCorpus:
        """Return the judge and its corpus as they were when `files` gave these."""
        names = {self.name, *(key.split("/")[1] for key in files if key.startswith("judges/"))}
        areas = [area for name in names for area in self.origin(name).areas]
        store = self.store.pinned(files, [*self.corpus.areas, *areas])
        return replace(self, corpus=Corpus(store, self.corpus.name))

    @property
    def is_trained(self) -> bool:
        """Whether there is a record, current or not."""
        return self.store.exists(self.key("adapter.json"))

    @property
    def stored_artifact(self) -> JudgeRecord:
        """Record of the trained judge as it is stored, not checked."""
        return JudgeRecord.from_dict(self.store.read_json(self.key("adapter.json")))

    @property
    @remembered
    def artifact(self) -> JudgeRecord:
        """Record of the trained judge; refuse one trained on other sources than the stored ones."""
        family = self.family
        if not self.is_trained:
            family.require_present(self)
        record = self.stored_artifact
        for name, trained, now in (
            ("manifest", record.manifest_sha256, self.corpus.manifest.sha256),
            ("renderer", record.renderer_sha256, record.reading.renderer.sha256),
        ):
            if trained != now:
                raise StaleCertificateError(
                    f"the adapter of {self} on {self.corpus} was trained under another {name} than "
                    f"the stored one; materialize judges/{self}/model again."
                )
        if self.store.pins is None:
            self._require_settings(record)
        if self.spec.hosted or self.store.pins is None:
            # a pinned judge is what it is, whatever became of the sources of its training
            family.require_current(self, record)
        return record

    def _require_settings(self, record: JudgeRecord) -> None:
        """Refuse a record of a judge of judges.yaml that was trained with other settings."""
        spec, then = self.spec, record.reading
        # the platform's own was trained as its version did
        if self.name in platform_judges():
            return
        changed = ""
        if replace(then, tokens=spec.reading.tokens and then.tokens) != spec.reading:
            changed = "reading"
        elif not spec.hosted:
            # a server's settings are its family's
            was = record.details[_REGISTERED]
            changed = "seed" if record.seed != spec.seed else spec.changed_since(was)
        if changed:
            raise StaleCertificateError(
                f"{self} on {self.corpus} was trained with another {changed} than judges.yaml has "
                f"now; materialize judges/{self}/model again."
            )

    @property
    def reading(self) -> JudgeInput:
        """What the stored judge reads of a run, or would where none is trained."""
        return self.stored_artifact.reading if self.is_trained else self.spec.reading

    @property
    def renderer(self) -> Renderer:
        """Renderer of the texts that the judge reads."""
        return self.reading.renderer

    @property
    def registration(self) -> object:
        """What is registered before TEST is read: the specification, and what is read of a run."""
        # that which the stored judge was trained by, where its record names it
        known = self.stored_artifact.details.get(_REGISTERED) if self.is_trained else None
        about, reading = known or self.spec.registration(), self.reading
        return about if reading in USUAL else {"judge": about, "reading": reading.to_dict()}

    def record(self, adapter_sha256: str, sft: pd.DataFrame | None = None) -> JudgeRecord:
        """Return the record of a training on what is stored now; counts are of its SFT rows."""
        record = JudgeRecord(
            judge=self.name,
            corpus=self.corpus.name,
            adapter_sha256=adapter_sha256,
            manifest_sha256=self.corpus.manifest.sha256,
            renderer_sha256=self.spec.reading.renderer.sha256,
            reads=self.spec.reading.to_dict(),
            seed=self.spec.seed,
        )
        if sft is None:
            return record
        labelled = _labelled(sft)
        return replace(
            record,
            sft_trajectories=len(labelled),
            sft_unlabelled=len(sft) - len(labelled),
            sft_tasks=int(labelled["task_id"].nunique()),
        )

    def artifact_files(self) -> AbstractContextManager[Path]:
        """Give a copy of the trained judge's files as a folder."""
        return self.store.as_folder(self.key("adapter"))

    def training_run(self, name: str) -> str:
        """Name the folder of a training: checkpoints of other settings do not stand in its way."""
        spec = self.spec
        if spec == platform_judges().get(self.name):
            return name
        about = {"judge": spec.registration(), "reading": spec.reading.to_dict(), "seed": spec.seed}
        return f"{name}_{sha256_bytes(canonical_json(about))[:12]}"

    def train(self, *, report: Report = silent) -> JudgeRecord:
        """Train the judge, choose among its candidates on CAL, store it and return its record."""
        with timed(self, "train") as stage:
            # a folder of checkpoints is what a killed training left, or a finished one
            stage.continued = self.store.keeps_work(self.key("training"))
            spec = self.spec
            # judges.yaml may change while it is trained
            record = self.family.train(replace(self, given=spec), report=report)
            details = dict(record.details)
            if self.name not in platform_judges() and not spec.hosted:
                details[_REGISTERED] = spec.registered
            record = replace(record, details=details)
            self.store.write_json(self.key("adapter.json"), record.to_dict())
            stage.rows = record.training_rows
        return record

    def load(
        self, *, expected_sha256: str = "", resume: bool = False, replay: bool = False
    ) -> Judge:
        """Load the trained judge, by default the current one; see `JudgeFamily.load`."""
        return self.maker.load(
            self,
            expected_sha256=expected_sha256 or self.artifact.adapter_sha256,
            resume=resume,
            replay=replay,
        )

    def score(self, *, report: Report = silent) -> pd.DataFrame:
        """Score RL, CAL and TEST and store the table and the pool; TEST rows carry no outcome."""
        from certify_assets.judges.pooling import write_pool

        # certificates take both: neither is stored without the other
        with self.store.step(self.corpus.name):
            table = self._scored(report)
            write_pool(self)
        return table

    def _scored(self, report: Report) -> pd.DataFrame:
        with timed(self, "score") as stage:
            # shares of scores that an earlier run left cost nothing now
            stage.continued = self.store.keeps_work(self.key("shards"))
            with self.store.workplace(self.key("shards")):
                table = self._score(report)
            stage.rows = len(table)
        return table

    def _score(self, report: Report) -> pd.DataFrame:
        import pandas as pd

        from certify_assets.judges.canary import score_canaries

        record, using, family = self.artifact, self.renderer, self.maker
        calibration_splits = self._splits_to_certify()
        model = self.load(expected_sha256=record.adapter_sha256, resume=True)
        parts, cut = [], 0
        for split in _SCORED_SPLITS:
            frame = self.corpus.split(split)
            progress = reported(report, f"scoring {split}")
            ready = family.prepared(self, model, progress=progress)
            rendered = render_frame(frame, using)
            cut += sum(family.cuts(self, model, rendered))
            part = score_table(ready, frame, using, rendered=rendered)
            part = part.assign(split=split)
            # outcomes of TEST come through the ledger alone
            parts.append(part.assign(outcome=None) if split == "test" else part)
        table = pd.concat([part for part in parts if len(part)], ignore_index=True)
        table["outcome"] = table["outcome"].astype("Int8")
        stored = table.assign(split=self._named(table, calibration_splits))
        sha256 = self.store.write_table(self.key("scores.parquet"), stored)
        bill = family.bill(model)
        certifying = table[table["split"].isin(calibration_splits)]
        canaries = score_canaries(
            self.corpus, self.spec, using, model, certifying, scores_sha256=sha256
        )
        self.store.write_json(self.key("canary.json"), canaries.to_dict())
        self.store.write_json(
            self.key("scores.json"),
            {
                "scores_sha256": sha256,
                "rows": len(table),
                "cut": cut,
                "adapter_sha256": record.adapter_sha256,
                "renderer_sha256": using.sha256,
                "manifest_sha256": self.corpus.manifest.sha256,
                "trajectories_sha256": self.corpus.trajectories_sha256,
                "calibration_splits": calibration_splits,
                **({} if bill is None else {"bill": bill}),
            },
        )
        return table

    def _splits_to_certify(self) -> list[str]:
        """Return the splits that are to certify the judge with the scores of now."""
        known, manifest = self.read("scores.json"), self.corpus.manifest
        if self.corpus.config.rl_labels == "choose":
            return list(_CAL_ALONE)
        # under the same splits certificates keep the rows that they were made of
        if known.get("manifest_sha256") == manifest.sha256:
            return list(self.calibration_splits)
        if self._kept_from_rl(known):
            return list(_CAL_ALONE)
        return [split for split in self.spec.calibration_splits if manifest.tasks[split]]

    def _kept_from_rl(self, known: Mapping[str, Any]) -> bool:
        """Whether RL still holds the tasks whose labels did not certify the judge before."""
        if not known or "rl" in known.get("calibration_splits", ()):
            return False
        # a delivery makes another manifest in which tasks keep their splits: labels that chose a
        # judge, or that a judge's decisions chose when RL was not guarded, would certify
        table = self.store.read_table(self.key("scores.parquet"))
        of_rl = set(table.loc[table["split"] == "rl", "task_id"])
        assigned = self.corpus.manifest.assignment
        return {assigned[task] for task in of_rl & assigned.keys()} == {"rl"}

    def _named(self, table: pd.DataFrame, splits: Sequence[str]) -> NDArray[np.object_]:
        """Return the split of each row as the score table names it."""
        names: NDArray[np.object_] = table["split"].to_numpy(object, copy=True)
        inside, labelled = table["split"].isin(splits), table["outcome"].notna()
        certifying = self.spec.calibration_rows(table[inside & labelled])["trajectory_id"]
        names[inside & labelled] = _SPENT
        names[inside & ~labelled] += _UNLABELLED
        names[table["trajectory_id"].isin(set(certifying))] = "cal"
        return names

    def score_runs(
        self, frame: pd.DataFrame, *, report: Report = silent
    ) -> tuple[pd.DataFrame, Bill | None]:
        """Score new trajectories and store nothing; return the table and the bill of a server."""
        family, progress = self.maker, reported(report, "scoring new runs")
        model = family.prepared(self, self.load(), progress=progress)
        table = score_table(model, frame, self.renderer)
        bill, then = family.bill(model), self.bill
        now, before = (list(one["models"]) if one else [] for one in (bill, then))
        if now and before and now != before:
            raise StaleCertificateError(
                f"the server of {self} answers as {now[0]} now and answered as {before[0]} when "
                f"{self.corpus} was scored; materialize judges/{self}/scores and its certificate "
                "again."
            )
        return table, bill

    @property
    def bill(self) -> Bill | None:
        """Counts, tokens, seconds and cost of the stored scores of a server; None for others."""
        bill: Bill | None = self.read("scores.json").get("bill")
        return bill

    @property
    def unread(self) -> str:
        """Say how many answers of its server could not be read; empty where all could."""
        bill = self.bill
        if bill is None or not bill["unparsed_answers"]:
            return ""
        read = bill["answers"] - bill["unparsed_answers"]
        said = f"{read} of {bill['answers']} answers could be read"
        if read:
            return f"{said} (parse rate {100 * read / bill['answers']:.1f} %)."
        mode = self.stored_artifact.detail("settings").get("asking", {}).get("mode")
        advice = "." if mode == "cot" else "; see asking: cot."
        return f"{said}, the first: {quoted(bill['first_unparsed'])}{advice}"

    def read(self, name: str) -> Any:
        """Return a document of the judge on this corpus; an empty one where none is stored."""
        return self.store.read_json(self.key(name)) if self.store.exists(self.key(name)) else {}

    @property
    def canaries(self) -> CanaryReport | None:
        """How far texts talk the judge into success; None where nothing says so of these scores."""
        from certify_assets.judges.canary import CanaryReport

        if not self.store.exists(self.key("canary.json")):
            return None
        found = stored_as(CanaryReport, self.read("canary.json"))
        current = self.read("scores.json").get("scores_sha256")
        return found if found.scores_sha256 == current else None

    @property
    @remembered
    def scores(self) -> tuple[pd.DataFrame, dict[str, str], JudgeRecord]:
        """Stored scores of RL, CAL and TEST, the hashes they depend on, and the record."""
        # refused where another adapter, renderer or manifest than the stored one made them
        record = self.artifact
        meta = self.store.read_json(self.key("scores.json"))
        now = {
            "adapter_sha256": record.adapter_sha256,
            "renderer_sha256": self.renderer.sha256,
            "manifest_sha256": self.corpus.manifest.sha256,
            "scores_sha256": self.store.sha256(self.key("scores.parquet")),
            "trajectories_sha256": self.corpus.trajectories_sha256,
        }
        stale = next((name for name, value in now.items() if meta.get(name) != value), None)
        if stale is not None:
            raise StaleCertificateError(
                f"the scores of {self} on {self.corpus} belong to another "
                f"{stale.removesuffix('_sha256')} than the stored one; "
                f"materialize judges/{self}/scores again."
            )
        table = self.score_table()
        self._require_labels(table)
        return table, now, record

    def score_table(self) -> pd.DataFrame:
        """Return the stored score table, not checked, each row with the split of its task."""
        table = self.store.read_table(self.key("scores.parquet"))
        table["split"] = table["task_id"].map(self.corpus.manifest.assignment)
        return table

    def require_scores(self) -> None:
        """Refuse a judge whose scores are missing, or not of what is stored now; see `scores`."""
        _ = self.scores

    @property
    def calibration_splits(self) -> tuple[str, ...]:
        """Splits that certify the judge with its stored scores."""
        splits = tuple(self.read("scores.json").get("calibration_splits", ()))
        if not {"cal"} <= set(splits) <= set(self.spec.calibration_splits):
            raise IntegrityError(
                f"{self.store.locate(self.key('scores.json'))} names {' and '.join(splits)} as the "
                f"splits that certify {self}, which may be "
                f"{' and '.join(self.spec.calibration_splits)} alone; materialize "
                f"judges/{self}/scores again."
            )
        return splits

    @property
    def calibration_name(self) -> str:
        """The rows that certify the judge, as its certificates name them."""
        return self.spec.calibration_name(self.calibration_splits)

    @property
    @remembered
    def calibration(self) -> tuple[pd.DataFrame, dict[str, str], JudgeRecord]:
        """Labelled rows that certify this judge, the hashes they depend on, and the record."""
        table, now, record = self.scores
        splits = self.calibration_splits
        if "rl" in splits and self.corpus.config.rl_labels == "choose":
            raise StaleCertificateError(
                f"labels of RL choose the judge of {self.corpus} (rl_labels), and the scores of "
                f"{self} are of a time when they certified; materialize judges/{self}/scores again."
            )
        rows = _labelled(table[table["split"].isin(splits)])
        return self.spec.calibration_rows(rows), now, record

    def labelled_runs(self, splits: Sequence[str]) -> pd.DataFrame:
        """Return the labelled runs of some splits, in the order of the score table."""
        import pandas as pd

        parts = [_labelled(self.corpus.split(split)) for split in splits]
        return pd.concat(parts, ignore_index=True)

    def rescored(self) -> NDArray[np.float64]:
        """Score again the runs that certify this judge, in the order of the stored scores."""
        model = self.load(replay=True)
        rows = self.spec.calibration_rows(self.labelled_runs(self.calibration_splits))
        return np.asarray(score_table(model, rows, self.renderer)["score"], np.float64)

    def _require_labels(self, table: pd.DataFrame) -> None:
        """Refuse scores whose labels or tasks are not those of the splits that certify."""
        names = ["trajectory_id", "task_id", "outcome"]
        # rows are taken of the columns that are compared alone: texts are most of a table
        for split in self.calibration_splits:
            found = _labelled(table[names][table["split"] == split])
            expected = _labelled(self.corpus.split(split)[names])
            if not all(found[name].tolist() == expected[name].tolist() for name in names):
                raise StaleCertificateError(
                    f"the scores of {self} on {self.corpus} do not carry the labels of "
                    f"{split.upper()}; materialize judges/{self}/scores again."
                )


def _labelled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["outcome"].notna()].reset_index(drop=True)
