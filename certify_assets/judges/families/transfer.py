"""Transfer judges: trained on SFT rows of the other corpora, an equal share of each."""

# Corpora may share tasks: the same benchmark with other agents, or one page under two names. A
# source's row whose task or instruction is in the target's CAL or TEST is left out and counted. Of
# the target, ids and instructions of these two splits are read, and no outcome.

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from certify_assets.corpora.config import corpus_file, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import SplitManifest
from certify_assets.documents import CLOSED, Count, Document
from certify_assets.errors import CertifyError, InputError, IntegrityError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.configured import TunedEntry
from certify_assets.judges.family import JudgeFamily, maker_of
from certify_assets.judges.lm.models import known_model
from certify_assets.judges.lm.recipe import Recipe, draw_in_turn, place_of
from certify_assets.judges.reading import COMPACT, LEXICAL, JudgeInput
from certify_assets.judges.record import JudgeRecord
from certify_assets.judges.spec import DerivedSpec
from certify_assets.judges.specs import judge_family
from certify_assets.judges.stored import StoredJudge
from certify_assets.storage.store import Store
from certify_assets.work import Report

if TYPE_CHECKING:
    import pandas as pd

#: most rows that a transfer judge is trained on (appendix "Leave-one-corpus-out transfer" of the
#: paper)
TRANSFER_ROWS = 2600

_NOT_A_WORD = re.compile(r"[\W_]+")


class Source(BaseModel):
    """The rows that one corpus gives to a pool."""

    model_config = ConfigDict(**CLOSED, frozen=True)

    corpus: str
    domain: str
    # of its splits and its table when it was drawn from
    manifest_sha256: str
    trajectories_sha256: str
    rows: Count
    tasks: Count
    successes: Count
    # rows of its SFT split that were not drawn, by reason: no_label, shared_task,
    # shared_instruction, above_share
    dropped: dict[str, int]


class PoolRecord(Document):
    """The origin of a pool's rows, as a transfer judge's record holds it."""

    TITLE = "pool of a transfer judge"
    SCHEMA = "certify_assets/transfer_pool/1"
    REFUSAL = IntegrityError

    # the target
    corpus: str
    domain: str
    # whether its whole domain is left out
    strict: bool
    limit: int
    seed: int
    # of the tasks and instructions that no row may share
    held_out_sha256: str
    # corpora that give nothing, with the reason
    left_out: dict[str, str]
    sources: tuple[Source, ...]

    def describe(self) -> str:
        """Name the sources in one line: rows, tasks and manifest of each."""
        return "; ".join(
            f"{item.corpus} ({item.domain or 'domain not stated'}): {item.rows} rows of "
            f"{item.tasks} tasks, manifest {item.manifest_sha256[:12]}"
            for item in self.sources
        )

    @classmethod
    def of(cls, record: JudgeRecord) -> PoolRecord:
        """Return the pool record of a trained judge."""
        return cls.from_dict(record.detail("transfer"))


@dataclass(frozen=True, eq=False)
class TransferPool:
    """The training rows of a transfer judge: labelled, by source, task and trajectory."""

    frame: pd.DataFrame
    record: PoolRecord

    @property
    def missing(self) -> str:
        """Why no judge can be trained on it, or empty."""
        about = self.record
        if about.sources and self.frame["outcome"].nunique() == 2:
            return ""
        if about.sources:
            names = ", ".join(source.corpus for source in about.sources)
            return f"every row that {names} can give has one outcome; import more corpora."
        kind = f"of another domain than {about.domain} " if about.strict else ""
        others = (
            "; ".join(f"{name}: {reason}" for name, reason in about.left_out.items())
            or "there is no other corpus"
        )
        return (
            f"no corpus {kind}can train a judge for {about.corpus} ({others.rstrip('.')}); import "
            "and split one more."
        )


def gather_pool(
    corpus: Corpus,
    *,
    strict: bool = False,
    limit: int = TRANSFER_ROWS,
    runs: int | None = None,
    seed: int = 42,
) -> TransferPool:
    """Gather the training rows of a transfer judge; `missing` says why there are none."""
    # runs: a smaller limit, under which a run of every task is drawn before a second of any: whole
    # tasks would leave the few runs that a small training reads with fewer tasks yet
    # appendix "Leave-one-corpus-out transfer" of the paper: a balanced sample, equal per source, of
    # the pooled SFT splits. It balances sources, not outcomes. Where a source has fewer rows than
    # its share, the others share what it leaves.
    import pandas as pd

    draw, limit = (_draw, limit) if runs is None or runs >= limit else (draw_in_turn, runs)
    domain, held_out = _target_domain(corpus, strict=strict), _HeldOut.of(corpus)
    left_out, usable = dict[str, str](), dict[str, tuple[pd.DataFrame, dict[str, int]]]()
    for name in registered_corpora(corpus.store):
        if name == corpus.name:
            continue
        if reason := _excluded(corpus.store, name, domain if strict else None):
            left_out[name] = reason
            continue
        try:
            usable[name] = held_out.without(Corpus(corpus.store, name).split("sft"))
        except CertifyError as error:
            left_out[name] = str(error)
    shares = share_rows({name: len(rows) for name, (rows, _) in usable.items()}, limit)
    parts, sources = [], []
    for name, (rows, dropped) in usable.items():
        drawn, source = draw(rows, shares[name], seed), Corpus(corpus.store, name)
        if drawn.empty:
            counted = ", ".join(f"{reason}: {number}" for reason, number in dropped.items())
            left_out[name] = f"none of its rows can be used ({counted or 'it has none'})"
            continue
        above = len(rows) - len(drawn)
        parts.append(drawn)
        sources.append(
            Source(
                corpus=name,
                domain=source.domain.name,
                manifest_sha256=source.manifest.sha256,
                trajectories_sha256=source.trajectories_sha256,
                rows=len(drawn),
                tasks=int(drawn["task_id"].nunique()),
                successes=int(drawn["outcome"].sum()),
                dropped={**dropped, **({"above_share": above} if above else {})},
            )
        )
    record = PoolRecord(
        corpus=corpus.name,
        domain=domain,
        strict=strict,
        limit=limit,
        seed=seed,
        held_out_sha256=held_out.sha256,
        left_out=dict(sorted(left_out.items())),
        sources=tuple(sources),
    )
    return TransferPool(pd.concat(parts, ignore_index=True) if parts else to_frame([]), record)


def share_rows(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a number of rows equally; the others share the rest of a source with fewer rows."""
    shares, left = {}, limit
    for place, name in enumerate(sorted(available, key=lambda name: (available[name], name))):
        shares[name] = min(available[name], left // (len(available) - place))
        left -= shares[name]
    return shares


@dataclass(frozen=True)
class _HeldOut:
    """Tasks and instructions of the target's CAL and TEST."""

    tasks: frozenset[str]
    instructions: frozenset[str]

    @classmethod
    def of(cls, corpus: Corpus) -> _HeldOut:
        frame = corpus.trajectories
        kept = frame[frame["task_id"].map(corpus.manifest.assignment).isin(("cal", "test"))]
        # an instruction that is empty says nothing of the task
        instructions = frozenset(map(_plain, kept["instruction"])) - {""}
        return cls(frozenset(map(_plain, kept["task_id"])), instructions)

    @property
    def sha256(self) -> str:
        return sha256_bytes(
            canonical_json({"tasks": sorted(self.tasks), "instructions": sorted(self.instructions)})
        )

    def without(self, sft: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
        """Return labelled rows that share no task and no instruction; count the others."""
        reasons = [
            "no_label"
            if unlabelled
            else "shared_task"
            if _plain(task) in self.tasks
            else "shared_instruction"
            if _plain(instruction) in self.instructions
            else ""
            for unlabelled, task, instruction in zip(
                sft["outcome"].isna(), sft["task_id"], sft["instruction"], strict=True
            )
        ]
        dropped = Counter(reason for reason in reasons if reason)
        return sft[[not reason for reason in reasons]], dict(sorted(dropped.items()))


def _plain(text: str) -> str:
    """Reduce a text to its words, without case, spaces and punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_A_WORD.sub(" ", folded).strip() or folded.strip()


def _target_domain(corpus: Corpus, *, strict: bool) -> str:
    domain = corpus.domain
    if strict and not domain.name:
        raise InputError(
            f"the domain of {corpus} is not stated, so corpora of another domain are not known; "
            "state it with `certify corpus import --set domain=NAME`."
        )
    return domain.name


def _excluded(store: Store, name: str, domain: str | None) -> str:
    """Say why a corpus is not a source, or empty. A strict pool leaves the target's domain out."""
    if domain is not None:
        own = Corpus(store, name).domain
        if own.name in ("", domain):
            return f"its domain is {own}"
    return "" if store.exists(_manifest_key(name)) else "it is not split yet"


def _manifest_key(corpus: str) -> str:
    return corpus_file(corpus, "splits", "manifest.json")


def _draw(rows: pd.DataFrame, number: int, seed: int) -> pd.DataFrame:
    """Draw whole tasks in the order of SHA-256(seed, corpus, task); the last may be cut."""
    identities = zip(rows["corpus"], rows["task_id"], rows["trajectory_id"], strict=True)
    keys = [
        (place_of(seed, corpus, task), task, place_of(seed, corpus, task, run), run)
        for corpus, task, run in identities
    ]
    chosen = sorted(range(len(keys)), key=keys.__getitem__)[:number]
    return rows.iloc[sorted(chosen)]


class TransferSpec(DerivedSpec):
    """A judge trained on the SFT splits of other corpora."""

    training_splits = ()
    needs_other_corpora = True

    family: Literal["transfer"] = "transfer"
    reading: JudgeInput = LEXICAL
    # whether every corpus of the same domain is left out
    strict: bool = False

    @property
    def kind(self) -> str:
        """Family of the recipe."""
        return self.maker

    @property
    def summary(self) -> str:
        """One sentence for lists and asset pages."""
        others = "corpora of other domains" if self.strict else "other corpora"
        return f"A judge trained on the SFT splits of {others}."

    @property
    def training(self) -> Recipe:
        """How a language model is trained: by default it reads a pool once."""
        return self.recipe or known_model(self.model).recipe.pooled

    @property
    def calibration_splits(self) -> tuple[str, ...]:
        """Only CAL: its pool excludes tasks of CAL and TEST, but not those of RL."""
        return ("cal",)

    def require_current(self, corpus: Corpus, record: JudgeRecord) -> None:
        """Refuse a record whose sources now give other rows."""
        # a source that was removed does not make it stale, nor does a new corpus: the judge is
        # still what its record says
        pool, again = PoolRecord.of(record), f"materialize judges/{self.name}/model again."
        if _HeldOut.of(corpus).sha256 != pool.held_out_sha256:
            raise StaleCertificateError(
                f"CAL or TEST of {corpus} has other tasks or instructions than those that "
                f"{self.name} was kept apart from; {again}"
            )
        known = set(registered_corpora(corpus.store))
        for source in pool.sources:
            name, key = source.corpus, _manifest_key(source.corpus)
            if name not in known or not corpus.store.exists(key):
                continue
            manifest = SplitManifest.from_dict(corpus.store.read_json(key))
            if manifest.sha256 != source.manifest_sha256:
                raise StaleCertificateError(
                    f"the splits of {name}, on which {self.name} for {corpus} was trained, are "
                    f"others now; {again}"
                )
            domain = _target_domain(corpus, strict=True) if pool.strict else None
            if reason := _excluded(corpus.store, name, domain):
                raise StaleCertificateError(
                    f"{self.name} for {corpus} was trained on {name}, and now {reason}; {again}"
                )


class TransferEntry(TunedEntry):
    """A language model fine-tuned on other corpora, as users write it."""

    family: Literal["transfer"]
    strict: bool = Field(default=False, description="without corpora of the same domain")

    def usual(self) -> Recipe:
        """The default settings of training on a pool."""
        return super().usual().pooled

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        return {**super().specification(), "strict": self.strict}


@judge_family("transfer")
class TransferFamily(JudgeFamily):
    """The recipe of the lexical judge, or of the fine-tuned one, on a pool of other corpora."""

    position = 20
    entry = TransferEntry
    spec = TransferSpec
    judges = (
        TransferSpec(name="lexical_transfer"),
        TransferSpec(name="lexical_transfer_strict", strict=True),
        TransferSpec(name="transfer", model="compact", reading=COMPACT),
        TransferSpec(name="transfer_strict", model="compact", reading=COMPACT, strict=True),
    )

    def train(self, judge: StoredJudge, *, report: Report) -> JudgeRecord:
        """Train on the pool; refuse an empty one, and say why each corpus gives no rows."""
        pool = _pool_of(judge)
        if pool.missing:
            raise InputError(pool.missing)
        spec, record = judge.spec, pool.record
        # other sources are another run: its checkpoints must not stand in the way of this one
        run = judge.training_run(record.sha256[:12])
        model, training = maker_of(judge).made(judge, pool.frame, run=run, report=report)
        made = model.provenance()
        return judge.record(
            made.adapter_sha256,
            sft_trajectories=len(pool.frame),
            sft_unlabelled=sum(item.dropped.get("no_label", 0) for item in record.sources),
            sft_tasks=sum(item.tasks for item in record.sources),
            success_weight=None if spec.model else 1.0,
            provenance=asdict(made),
            training=training,
            transfer=record.to_dict(),
        )

    def no_sources(self, judge: StoredJudge) -> str:
        """Return why a transfer judge of a corpus cannot be trained, or empty."""
        try:
            return _pool_of(judge).missing
        except InputError as error:
            return str(error)

    def describe(self, record: JudgeRecord) -> str:
        """Describe the rows, their corpora, and how many remain after the cap."""
        pool = PoolRecord.of(record)
        above = sum(source.dropped.get("above_share", 0) for source in pool.sources)
        read, tasks = record.sft_trajectories, f"{record.sft_tasks} SFT tasks of other corpora"
        runs = f"{read + above} runs, of which a cap left {read}" if above else f"{read} runs"
        return f"{runs} of {tasks}: {pool.describe()}"

    def provenance(self, record: JudgeRecord) -> dict[str, str]:
        """Return the sources."""
        return {"training_sources": PoolRecord.of(record).describe()}


def _pool_of(judge: StoredJudge) -> TransferPool:
    """Gather the training pool of a transfer judge for a corpus."""
    spec = judge.spec
    assert isinstance(spec, TransferSpec)
    return gather_pool(judge.corpus, strict=spec.strict, runs=spec.training.runs, seed=spec.seed)
