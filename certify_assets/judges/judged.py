"""A judge on a corpus, opened for one operation: trained, scored, loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict  # pydantic reads those of `typing` from 3.12 on

from certify_assets.documents import Document
from certify_assets.errors import StaleCertificateError
from certify_assets.judges.base import score_table
from certify_assets.judges.canary import CanaryReport, score_canaries
from certify_assets.judges.family import JudgeFamily, maker_of
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.specs import family_of
from certify_assets.judges.stored import ScoresRecord, StoredJudge
from certify_assets.judges.task_folds import write_pool
from certify_assets.work import Report, reported, silent

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.judges.base import Bill, Judge

_SCORED_SPLITS = ("rl", "cal", "test")
# The score table says split=cal of the rows that certify its judge, of whatever split, so that
# `certify certificate`, `plan` and `verify` take them. Others of those splits are named apart: the
# CAL rows that let a harvest through, and rows without an outcome.
_SPENT, _UNLABELLED = "cal_half_a", "_unlabelled"
# splits that certify a judge before it has scored, and where RL chooses it
_CAL_ALONE = ("cal",)


class StageFigures(TypedDict):
    """CPU time and rows of training or scoring."""

    # of all threads of the process
    cpu_seconds: float
    rows: int
    # whether it took up what an earlier run left, so that its seconds are not all of it
    continued: bool


class Timings(Document):
    """CPU time and rows of training and scoring, by stage."""

    TITLE = "timings of a judge"
    SCHEMA = "certify_assets/timings/1"

    stages: dict[str, StageFigures]


@dataclass(frozen=True)
class JudgedCorpus(StoredJudge):
    """One judge on one corpus, as one operation reads and changes them."""

    @property
    def family(self) -> JudgeFamily:
        """Family that makes the judge."""
        return cast("JudgeFamily", family_of(self.spec.family))

    @property
    def maker(self) -> JudgeFamily:
        """Family of the trained judge: its own, or that of its recipe."""
        return maker_of(self)

    def train(self, *, report: Report = silent) -> JudgeRecord:
        """Train the judge, choose among its candidates on CAL, store it and return its record."""
        # a folder of checkpoints is what a killed training left, or a finished one
        with self._timed("train", "training") as counted:
            # judges.yaml may change while it is trained
            record = self.family.train(replace(self, given=self.spec), report=report)
            self.store.write_json(self.key("adapter.json"), record.to_dict())
            counted(record.training_rows)
        return self.stored_artifact

    def load(
        self, *, expected_sha256: str = "", resume: bool = False, replay: bool = False
    ) -> Judge:
        """Load the trained judge, by default the current one; see `JudgeFamily.load`."""
        expected = expected_sha256 or self.artifact.adapter_sha256
        return self.maker.load(self, expected_sha256=expected, resume=resume, replay=replay)

    def score(self, *, report: Report = silent) -> pd.DataFrame:
        """Score RL, CAL and TEST and store the table and the pool; TEST rows carry no outcome."""
        # certificates take both: neither is stored without the other
        with self.store.step():
            table = self._scored(report)
            write_pool(self)
        return table

    def _scored(self, report: Report) -> pd.DataFrame:
        # shares of scores that an earlier run left cost nothing now
        with self._timed("score", "shards") as counted:
            with self.store.workplace(self.key("shards")):
                table = self._score(report)
            counted(len(table))
        return table

    def _score(self, report: Report) -> pd.DataFrame:
        import pandas as pd

        record, using, family = self.artifact, self.renderer, self.maker
        certifying = self._splits_to_certify()
        model = self.load(expected_sha256=record.adapter_sha256, resume=True)
        parts = []
        for split in _SCORED_SPLITS:
            frame = self.corpus.split(split)
            progress = reported(report, f"scoring {split}")
            ready = family.prepared(self, model, progress=progress)
            features = family.features(self, model, frame)
            part = score_table(ready, frame, using, features=features)
            part["split"] = split
            # outcomes of TEST come through the ledger alone
            parts.append(part.assign(outcome=None) if split == "test" else part)
        table = pd.concat([part for part in parts if len(part)], ignore_index=True)
        table["outcome"] = table["outcome"].astype("Int8")
        named = table.assign(split=self._named(table, certifying))
        sha256 = self.store.write_table(self.key("scores.parquet"), named)
        # before the canaries are scored as well
        bill = family.bill(model)
        mine = table[table["split"].isin(certifying)]
        canaries = score_canaries(self, model, mine, scores_sha256=sha256)
        self.store.write_json(self.key("canary.json"), canaries.to_dict())
        document = ScoresRecord(
            adapter_sha256=record.adapter_sha256,
            renderer_sha256=using.sha256,
            manifest_sha256=self.corpus.manifest.sha256,
            scores_sha256=sha256,
            trajectories_sha256=self.corpus.trajectories_sha256,
            rows=len(table),
            calibration_splits=certifying,
            bill=bill,
        )
        self.store.write_json(self.key("scores.json"), document.to_dict())
        return table

    def _splits_to_certify(self) -> tuple[str, ...]:
        """Return the splits that will certify the judge with its new scores."""
        known, manifest = self.scored, self.corpus.manifest
        if self.corpus.config.rl_labels == "choose":
            return _CAL_ALONE
        # under the same splits certificates keep the rows that they were made of
        if known and known.manifest_sha256 == manifest.sha256:
            return self.calibration_splits
        # Another manifest of a delivery leaves tasks in their splits: labels that chose a judge, or
        # that a judge's decisions chose when RL was not guarded, would certify.
        if known and "rl" not in known.calibration_splits:
            table = self.store.read_table(self.key("scores.parquet"))
            of_rl = set(table.loc[table["split"] == "rl", "task_id"])
            if {manifest.assignment[task] for task in of_rl & manifest.assignment.keys()} == {"rl"}:
                return _CAL_ALONE
        return tuple(split for split in self.spec.calibration_splits if manifest.tasks[split])

    def _named(self, table: pd.DataFrame, splits: Sequence[str]) -> NDArray[np.object_]:
        """Return the split of each row, as named in the score table."""
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
        """Score new trajectories without storing them; return the table and a server's bill."""
        family, progress = self.maker, reported(report, "scoring new runs")
        model = family.prepared(self, self.load(), progress=progress)
        table = score_table(model, frame, self.renderer)
        bill, then = family.bill(model), self.bill
        now, before = (list(one["models"]) if one else [] for one in (bill, then))
        if now and before and now != before:
            raise StaleCertificateError(
                f"the server of {self} now answers as {now[0]}, but answered as {before[0]} when "
                f"{self.corpus} was scored; materialize judges/{self}/scores and its certificate "
                "again."
            )
        return table, bill

    def rescored(self) -> NDArray[np.float64]:
        """Score again the runs that certify this judge, in the order of the stored scores."""
        model = self.load(replay=True)
        rows = self.spec.calibration_rows(self.labelled_runs(self.calibration_splits))
        features = self.maker.features(self, model, rows)
        table = score_table(model, rows, self.renderer, features=features)
        return np.asarray(table["score"], np.float64)

    @property
    def canaries(self) -> CanaryReport | None:
        """The lift of persuasive texts for the stored scores; None if it was not measured."""
        if not self.store.exists(self.key("canary.json")):
            return None
        found = CanaryReport.from_dict(self.read("canary.json"))
        current = self.scored
        return found if current and found.scores_sha256 == current.scores_sha256 else None

    @contextmanager
    def _timed(self, stage: str, work: str) -> Iterator[Callable[[int], None]]:
        """Measure a stage, which reports its number of rows; a failed one stores no figures."""
        # work: folder of what a killed run leaves
        rows: list[int] = []
        continued = self.store.keeps_work(self.key(work))
        cpu = time.process_time()
        yield rows.append
        figures: StageFigures = {
            "cpu_seconds": round(time.process_time() - cpu, 3),
            "rows": sum(rows),
            "continued": continued,
        }
        found = Timings(stages={**self.timings, stage: figures})
        self.store.write_json(self.key("timings.json"), found.to_dict())

    @property
    def timings(self) -> dict[str, StageFigures]:
        """Figures of the last training and scoring, by stage."""
        found = self.read("timings.json")
        return Timings.from_dict(found).stages if found else {}
