"""What a transfer judge is trained on: SFT rows of the other corpora, an equal share of each."""

# Corpora may share tasks: the same benchmark with other agents, or one page under two names. A
# source's row whose task or instruction is in the target's CAL or TEST is left out and counted. Of
# the target, ids and instructions of these two splits are read, and no outcome.

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from certify_assets.corpora.config import corpus_file, registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import SplitManifest
from certify_assets.errors import CertifyError, InputError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes, stored_as
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.lm.recipe import draw_in_turn, place_of
from certify_assets.judges.record import JudgeRecord
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

#: most rows that a transfer judge is trained on (appendix "Leave-one-corpus-out transfer" of the
#: paper)
TRANSFER_ROWS = 2600

_NOT_A_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Source:
    """What one corpus gives to a pool."""

    corpus: str
    domain: str
    # of its splits and its table when it was drawn from
    manifest_sha256: str
    trajectories_sha256: str
    rows: int
    tasks: int
    successes: int
    # rows of its SFT split that were not drawn, by reason: no_label, shared_task,
    # shared_instruction, above_share
    dropped: dict[str, int]


@dataclass(frozen=True)
class PoolRecord:
    """Where the rows of a pool come from, as the record of a transfer judge holds it."""

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
    sources: list[Source]
    # what limits the claim of transfer
    limits: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Name the sources in one line: rows, tasks and manifest of each."""
        return "; ".join(
            f"{item.corpus} ({item.domain or 'domain not stated'}): {item.rows} rows of "
            f"{item.tasks} tasks, manifest {item.manifest_sha256[:12]}"
            for item in self.sources
        )

    @classmethod
    def of(cls, record: JudgeRecord) -> PoolRecord:
        """Return that of a trained judge."""
        return stored_as(cls, record.detail("transfer"))


@dataclass(frozen=True, eq=False)
class TransferPool:
    """The training rows of a transfer judge: labelled, by source, task and trajectory."""

    frame: pd.DataFrame
    record: PoolRecord

    @property
    def sha256(self) -> str:
        """Hash of where the rows come from."""
        return sha256_bytes(canonical_json(asdict(self.record)))

    @property
    def missing(self) -> str:
        """Why nothing can be trained on it; empty where something can."""
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
    draw, limit = (_draw, limit) if runs is None or runs >= limit else (draw_in_turn, runs)
    domain = _target_domain(corpus, strict=strict)
    held_out = _HeldOut.of(corpus.trajectories, corpus.manifest)
    others = [name for name in registered_corpora(corpus.store) if name != corpus.name]
    found = {
        name: _usable(corpus.store, name, held_out, domain if strict else None) for name in others
    }
    left_out = {name: item for name, item in found.items() if isinstance(item, str)}
    usable = {name: item for name, item in found.items() if not isinstance(item, str)}
    shares = share_rows({name: len(item.rows) for name, item in usable.items()}, limit)
    drawn = {name: draw(item.rows, shares[name], seed) for name, item in usable.items()}
    left_out |= {
        name: f"none of its rows can be used ({_counted(usable[name].dropped)})"
        for name, rows in drawn.items()
        if rows.empty
    }
    sources = [
        _source(corpus.store, name, rows, usable[name]) for name, rows in drawn.items() if len(rows)
    ]
    record = PoolRecord(
        corpus.name,
        domain,
        strict,
        limit,
        seed,
        held_out.sha256,
        dict(sorted(left_out.items())),
        sources,
    )
    return TransferPool(_joined([drawn[source.corpus] for source in sources]), record)


def share_rows(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a number of rows equally; what a source with fewer leaves, the others share."""
    shares, left = {}, limit
    for place, name in enumerate(sorted(available, key=lambda name: (available[name], name))):
        shares[name] = min(available[name], left // (len(available) - place))
        left -= shares[name]
    return {name: shares[name] for name in available}


def require_sources(judge: JudgedCorpus, record: PoolRecord) -> None:
    """Refuse a transfer judge that would be trained on other rows now."""
    # a source that was removed does not make it stale, nor does a new corpus: the judge is still
    # what its record says
    again = f"materialize judges/{judge}/model again."
    held_out = _HeldOut.of(judge.corpus.trajectories, judge.corpus.manifest)
    if held_out.sha256 != record.held_out_sha256:
        raise StaleCertificateError(
            f"CAL or TEST of {judge.corpus} has other tasks or instructions than those that "
            f"{judge} was kept apart from; {again}"
        )
    known = set(registered_corpora(judge.store))
    for source in record.sources:
        name, key = source.corpus, _manifest_key(source.corpus)
        if name not in known or not judge.store.exists(key):
            continue
        manifest = SplitManifest.from_dict(judge.store.read_json(key))
        if manifest.sha256 != source.manifest_sha256:
            raise StaleCertificateError(
                f"the splits of {name}, on which {judge} for {judge.corpus} was trained, are "
                f"others now; {again}"
            )
        if record.strict and (
            reason := _excluded(judge.store, name, _target_domain(judge.corpus, strict=True))
        ):
            raise StaleCertificateError(
                f"{judge} for {judge.corpus} was trained on {name}, and now {reason}; {again}"
            )


@dataclass(frozen=True, eq=False)
class _Usable:
    """The rows of a corpus that a pool may draw from, and why the others may not be."""

    rows: pd.DataFrame
    dropped: dict[str, int]
    manifest: SplitManifest


@dataclass(frozen=True)
class _HeldOut:
    """Tasks and instructions of the target's CAL and TEST."""

    tasks: frozenset[str]
    instructions: frozenset[str]

    @classmethod
    def of(cls, frame: pd.DataFrame, manifest: SplitManifest) -> _HeldOut:
        kept = frame.loc[
            frame["task_id"].map(manifest.assignment).isin(("cal", "test")),
            ["task_id", "instruction"],
        ]
        # an instruction that is empty says nothing of the task
        return cls(
            frozenset(map(_plain, kept["task_id"])),
            frozenset(map(_plain, kept["instruction"])) - {""},
        )

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
        return sft[[not reason for reason in reasons]], dict(
            sorted(Counter(filter(None, reasons)).items())
        )


def _plain(text: str) -> str:
    """Reduce a text to its words: case, spaces and punctuation do not make two texts differ."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_A_WORD.sub(" ", folded).strip() or folded.strip()


def _target_domain(corpus: Corpus, *, strict: bool) -> str:
    domain = corpus.domain
    if strict and not domain.name:
        raise InputError(
            f"the domain of {corpus} is not stated, so nothing says which corpora are of "
            "another; state it with `certify corpus import --set domain=NAME`."
        )
    return domain.name


def _usable(store: Store, name: str, held_out: _HeldOut, domain: str | None) -> _Usable | str:
    """Return what a corpus can give, or why it gives nothing."""
    if reason := _excluded(store, name, domain):
        return reason
    try:
        source = Corpus(store, name)
        sft, manifest = source.split("sft"), source.manifest
    except CertifyError as error:
        return str(error)
    return _Usable(*held_out.without(sft), manifest)


def _excluded(store: Store, name: str, domain: str | None) -> str:
    """Say why a corpus is no source; empty where it is one. A strict pool leaves a domain out."""
    if domain is not None:
        own = Corpus(store, name).domain
        if own.name in ("", domain):
            return f"its domain is {own}"
    return "" if store.exists(_manifest_key(name)) else "it is not split yet"


def _manifest_key(corpus: str) -> str:
    return corpus_file(corpus, "splits", "manifest.json")


def _draw(rows: pd.DataFrame, number: int, seed: int) -> pd.DataFrame:
    """Draw whole tasks in the order of SHA-256(seed, corpus, task); the last may be cut."""
    identities = list(zip(rows["corpus"], rows["task_id"], rows["trajectory_id"], strict=True))
    keys = [
        (place_of(seed, corpus, task), task, place_of(seed, corpus, task, run), run)
        for corpus, task, run in identities
    ]
    chosen = sorted(range(len(keys)), key=keys.__getitem__)[:number]
    return rows.iloc[sorted(chosen)]


def _source(store: Store, name: str, drawn: pd.DataFrame, usable: _Usable) -> Source:
    above = len(usable.rows) - len(drawn)
    return Source(
        corpus=name,
        domain=Corpus(store, name).domain.name,
        manifest_sha256=usable.manifest.sha256,
        trajectories_sha256=Corpus(store, name).trajectories_sha256,
        rows=len(drawn),
        tasks=int(drawn["task_id"].nunique()),
        successes=int(drawn["outcome"].sum()),
        dropped=usable.dropped | ({"above_share": above} if above else {}),
    )


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(parts, ignore_index=True) if parts else to_frame([])


def _counted(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {number}" for reason, number in dropped.items()) or "it has none"
