"""The stored documents of a judge on a corpus: its record, scores, and certifying rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from certify_assets.corpora.corpus import Corpus
from certify_assets.documents import Count, Document, JsonObject
from certify_assets.errors import InputError, IntegrityError, StaleCertificateError, quoted
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.reading import USUAL, JudgeInput
from certify_assets.judges.record import JudgeRecord, labelled
from certify_assets.judges.spec import JudgeSpec
from certify_assets.judges.specs import judge_spec, platform_judges
from certify_assets.storage.moment import remembered

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Renderer
    from certify_assets.judges.base import Bill
    from certify_assets.storage.store import Store

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


def judge_file(judge: str, corpus: str, *parts: str) -> str:
    """Return the storage key of a file of a judge on a corpus; of their folder without a name."""
    return "/".join(("judges", judge, corpus, *parts))


class ScoresRecord(Document):
    """The record of stored scores: the judge, its inputs, and the cost."""

    TITLE = "record of scores"
    SCHEMA = "certify_assets/scores/1"
    REFUSAL = IntegrityError

    # what certificates depend on; another one of now makes the scores stale
    adapter_sha256: str
    renderer_sha256: str
    manifest_sha256: str
    scores_sha256: str
    trajectories_sha256: str
    rows: Count
    calibration_splits: tuple[str, ...]
    # counts, tokens, seconds and cost of the scores of a server
    bill: JsonObject | None = None


@dataclass(frozen=True)
class StoredJudge:
    """One judge on one corpus, as stored, seen by one operation."""

    corpus: Corpus
    name: str
    # a specification that no registry holds; by default the one of that name
    given: JudgeSpec | None = field(default=None, compare=False)

    @classmethod
    def of(cls, corpus: Corpus, spec: JudgeSpec) -> Self:
        """Return the judge of a specification on a corpus."""
        return cls(corpus, spec.name, spec)

    def __str__(self) -> str:
        return self.name

    @property
    def store(self) -> Store:
        """Data root, as the corpus sees it."""
        return self.corpus.store

    @property
    def identity(self) -> tuple[str, ...]:
        """Name of the judge on its corpus among the views of a snapshot."""
        return (*self.corpus.identity, self.name)

    @property
    def spec(self) -> JudgeSpec:
        """Specification of the judge; refuse a name that no judge has."""
        return self.given or judge_spec(self.name, self.store.root)

    def sibling(self, name: str) -> Self:
        """Return another judge on the same corpus, as stored now, in the same operation."""
        return type(self)(self.corpus.current, name)

    def origin(self, name: str) -> Self:
        """Return the judge that a training began with; in a pinned view, as it was pinned."""
        return type(self)(self.corpus, name)

    def key(self, *parts: str) -> str:
        """Return the storage key of a file of the judge on this corpus."""
        return judge_file(self.name, self.corpus.name, *parts)

    def read(self, name: str) -> Any:
        """Return a document of the judge on this corpus; empty if it is not stored."""
        return self.store.read_json(self.key(name)) if self.store.exists(self.key(name)) else {}

    def artifact_files(self) -> AbstractContextManager[Path]:
        """Give a copy of the trained judge's files as a folder."""
        return self.store.as_folder(self.key("adapter"))

    @property
    def areas(self) -> list[str]:
        """Keys and folders of the judge that its decisions and lineage depend on."""
        return [self.key(name) for name in _DECIDING]

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of all files that the judge's decisions and lineage need, by key."""
        found, waiting = self.store.hashes([*self.corpus.areas, *self.areas]), [self]
        while waiting:
            judge = waiting.pop()
            starts = judge.stored_artifact.starts if judge.is_trained else {}
            waiting += map(self.origin, starts)
            found |= self.store.hashes(judge.areas)
        return found

    def pinned(self, files: Mapping[str, str]) -> Self:
        """Return the judge and its corpus in the state in which `files` returned these."""
        names = {self.name, *(key.split("/")[1] for key in files if key.startswith("judges/"))}
        areas = [area for name in names for area in self.origin(name).areas]
        store = self.store.pinned(files, [*self.corpus.areas, *areas])
        return replace(self, corpus=Corpus(store, self.corpus.name))

    # the record

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
        """Record of the trained judge; refuse one whose sources are not the stored ones."""
        spec = self.spec
        if not self.is_trained:
            spec.require_present(self.corpus)
            raise InputError(
                f"{self} is not trained on {self.corpus}; run `certify judge train {self.corpus} "
                f"--judge {self}` first."
            )
        record = self.stored_artifact
        for name, trained, now in (
            ("manifest", record.manifest_sha256, self.corpus.manifest.sha256),
            ("renderer", record.renderer_sha256, record.reads.renderer.sha256),
        ):
            if trained != now:
                raise self._stale(f"the adapter of {self} on {self.corpus} was trained under", name)
        # a pinned judge is what it is, whatever became of the sources of its training
        pinned = bool(self.store.pins.areas)
        if spec.hosted or not pinned:
            self._require_settings(record)
        if not pinned:
            spec.require_current(self.corpus, record)
            before = record.starts.get(spec.start, "")
            if before and self.sibling(spec.start).artifact.adapter_sha256 != before:
                raise self._stale(
                    f"the training of {self} on {self.corpus} began with", f"{spec.start} judge"
                )
        return record

    def require_trained(self) -> None:
        """Refuse a judge that is not trained, or whose sources are not the stored ones."""
        _ = self.artifact

    def _require_settings(self, record: JudgeRecord) -> None:
        """Refuse a record of a judge of judges.yaml that was trained with other settings."""
        spec, then = self.spec, record.reads
        # the platform's own was trained as its version did
        if self.name in platform_judges():
            return
        # a training notes the tokens that the model had room for
        then = then.replace(tokens=spec.reading.tokens and then.tokens)
        if not self.store.pins.areas and then != spec.reading:
            changed = "reading"
        elif record.seed != spec.seed:
            changed = "seed"
        else:
            changed = spec.changed_since(record.registered or {})
        if changed:
            made = "registered" if spec.hosted else "trained"
            raise StaleCertificateError(
                f"{self} on {self.corpus} was {made} with another {changed} than judges.yaml has "
                f"now; materialize judges/{self}/model again."
            )

    def _stale(self, about: str, name: str, again: str = "model") -> StaleCertificateError:
        return StaleCertificateError(
            f"{about} another {name} than the stored one; materialize judges/{self}/{again} again."
        )

    @property
    def reading(self) -> JudgeInput:
        """How much the stored judge reads of a run, or would read if it were trained."""
        return self.stored_artifact.reads if self.is_trained else self.spec.reading

    @property
    def renderer(self) -> Renderer:
        """Renderer of the texts that the judge reads."""
        return self.reading.renderer

    @property
    def registration(self) -> object:
        """The facts to register before TEST is read: the specification, and how much of a run is
        read.
        """
        # that which the stored judge was trained by, where its record names it
        known = self.stored_artifact.registered if self.is_trained else None
        about, reading = known or self.spec.registration(), self.reading
        return about if reading in USUAL else {"judge": about, "reading": reading.model_dump()}

    def record(
        self, adapter_sha256: str, sft: pd.DataFrame | None = None, **family: Any
    ) -> JudgeRecord:
        """Return the record of a training on the present files; its counts are of SFT rows."""
        spec, counts = self.spec, dict[str, int]()
        if sft is not None:
            known = labelled(sft)
            counts = {
                "sft_trajectories": len(known),
                "sft_unlabelled": len(sft) - len(known),
                "sft_tasks": int(known["task_id"].nunique()),
            }
        about = {"reads": spec.reading, "seed": spec.seed, **counts, **family}
        return JudgeRecord(
            judge=self.name,
            corpus=self.corpus.name,
            adapter_sha256=adapter_sha256,
            manifest_sha256=self.corpus.manifest.sha256,
            renderer_sha256=spec.reading.renderer.sha256,
            registered=None if self.name in platform_judges() else spec.registration(),
            **about,
        )

    def training_run(self, name: str) -> str:
        """Name the folder of a training, so that checkpoints of other settings do not interfere."""
        spec = self.spec
        if spec == platform_judges().get(self.name):
            return name
        about = {
            "judge": spec.registration(),
            "reading": spec.reading.model_dump(),
            "seed": spec.seed,
        }
        return f"{name}_{sha256_bytes(canonical_json(about))[:12]}"

    # the scores

    @property
    def scored(self) -> ScoresRecord | None:
        """Record of the stored scores, not checked; None without scores."""
        found = self.read("scores.json")
        return ScoresRecord.from_dict(found) if found else None

    @property
    def bill(self) -> Bill | None:
        """Counts, tokens, seconds and cost of the stored scores of a server; otherwise None."""
        scored = self.scored
        return scored.bill if scored else None

    @property
    def unread(self) -> str:
        """Say how many answers of its server could not be read; empty if all could."""
        bill = self.bill
        if bill is None or not bill["unparsed_answers"]:
            return ""
        read = bill["answers"] - bill["unparsed_answers"]
        said = f"{read} of {bill['answers']} answers could be read"
        if read:
            return f"{said} (parse rate {100 * read / bill['answers']:.1f} %)."
        asking = (self.stored_artifact.registered or {}).get("asking", {})
        advice = "." if asking.get("mode") == "cot" else "; see asking: cot."
        return f"{said}, the first: {quoted(bill['first_unparsed'])}{advice}"

    @property
    @remembered
    def scores(self) -> tuple[pd.DataFrame, dict[str, str], JudgeRecord]:
        """Stored scores of RL, CAL and TEST, the hashes they depend on, and the record."""
        # refused where another adapter, renderer or manifest than the stored one made them
        record = self.artifact
        then = ScoresRecord.from_dict(self.store.read_json(self.key("scores.json")))
        now = {
            "adapter_sha256": record.adapter_sha256,
            "renderer_sha256": self.renderer.sha256,
            "manifest_sha256": self.corpus.manifest.sha256,
            "scores_sha256": self.store.sha256(self.key("scores.parquet")),
            "trajectories_sha256": self.corpus.trajectories_sha256,
        }
        if stale := next((name for name, one in now.items() if getattr(then, name) != one), None):
            about = f"the scores of {self} on {self.corpus} belong to"
            raise self._stale(about, stale.removesuffix("_sha256"), "scores")
        table = self.score_table()
        self._require_labels(table)
        return table, now, record

    def score_table(self) -> pd.DataFrame:
        """Return the stored score table, not checked, each row with the split of its task."""
        table = self.store.read_table(self.key("scores.parquet"))
        table["split"] = table["task_id"].map(self.corpus.manifest.assignment)
        return table

    def require_scores(self) -> None:
        """Refuse a judge whose scores are missing or outdated; see `scores`."""
        _ = self.scores

    def _require_labels(self, table: pd.DataFrame) -> None:
        """Refuse scores whose labels or tasks are not those of the splits that certify."""
        names = ["trajectory_id", "task_id", "outcome"]
        # rows are taken of the columns that are compared alone: texts are most of a table
        for split in self.calibration_splits:
            found = labelled(table[names][table["split"] == split])
            expected = labelled(self.corpus.split(split)[names])
            if not all(found[name].tolist() == expected[name].tolist() for name in names):
                raise StaleCertificateError(
                    f"the scores of {self} on {self.corpus} do not carry the labels of "
                    f"{split.upper()}; materialize judges/{self}/scores again."
                )

    # the rows that certify it

    @property
    def calibration_splits(self) -> tuple[str, ...]:
        """Splits that certify the judge with its stored scores."""
        scored = self.scored
        splits = scored.calibration_splits if scored else ()
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
                f"labels of RL choose the judge of {self.corpus} (rl_labels), but the scores of "
                f"{self} are from a time when they certified; materialize judges/{self}/scores "
                "again."
            )
        rows = labelled(table[table["split"].isin(splits)])
        return self.spec.calibration_rows(rows), now, record

    @property
    def unlabelled_calibration(self) -> int:
        """Number of runs that could certify but have no label; people chose which have one."""
        table, dropped = self.scores[0], self.corpus.import_summary.dropped
        lacking = table["split"].isin(self.calibration_splits) & table["outcome"].isna()
        return int(lacking.sum()) + dropped.get("no_label", 0)

    def labelled_runs(self, splits: Sequence[str]) -> pd.DataFrame:
        """Return the labelled runs of some splits, in the order of the score table."""
        import pandas as pd

        return pd.concat([labelled(self.corpus.split(split)) for split in splits]).reset_index(
            drop=True
        )
