"""What a transfer judge is trained on.

The SFT splits of the other corpora of the data root, an equal share of each, nothing of the target.

Corpora may share tasks: the same benchmark with other agents, or one page under two names. A
source's row whose task or instruction is in the target's CAL or TEST is left out and counted. Of
the target, ids and instructions of these two splits are read, and no outcome.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import SplitManifest
from certify_assets.errors import CertifyError, InputError, StaleCertificateError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

#: most rows that a transfer judge is trained on (appendix "Leave-one-corpus-out transfer" of the
#: paper)
TRANSFER_ROWS = 2600

_MANIFEST = "corpora/{}/splits/manifest.json"
_NOT_A_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Source:
    """What one corpus gives to a pool.

    Parameters
    ----------
    corpus, domain : str
    manifest_sha256, trajectories_sha256 : str
        Of its splits and its table when it was drawn from.
    rows, tasks, successes : int
        Drawn.
    dropped : dict of str to int
        Rows of its SFT split that were not, by reason: ``no_label``, ``shared_task``,
        ``shared_instruction``, ``above_share``.
    """

    corpus: str
    domain: str
    manifest_sha256: str
    trajectories_sha256: str
    rows: int
    tasks: int
    successes: int
    dropped: dict[str, int]


@dataclass(frozen=True, eq=False)
class TransferPool:
    """The training rows of a transfer judge.

    Parameters
    ----------
    corpus, domain : str
        The target.
    strict : bool
        Whether its whole domain is left out.
    frame : pandas.DataFrame
        Labelled trajectories, by source, task and trajectory.
    sources : tuple of Source
        Sorted by name.
    left_out : dict of str to str
        Corpora that give nothing, with the reason.
    limit, seed : int
        Most rows, and the seed of the draw.
    held_out_sha256 : str
        Of the tasks and instructions that no row may share.
    """

    corpus: str
    domain: str
    strict: bool
    frame: pd.DataFrame
    sources: tuple[Source, ...]
    left_out: dict[str, str]
    limit: int
    seed: int
    held_out_sha256: str

    @property
    def missing(self) -> str:
        """Why nothing can be trained on it; empty where something can."""
        if self.sources and self.frame["outcome"].nunique() == 2:
            return ""
        if self.sources:
            return f"every row that {', '.join(source.corpus for source in self.sources)} can give has one outcome; import more corpora."
        kind = f"of another domain than {self.domain} " if self.strict else ""
        others = (
            "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            or "there is no other corpus"
        )
        return f"no corpus {kind}can train a judge for {self.corpus} ({others.rstrip('.')}); import and split one more."

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the rows as a JSON object."""
        names = ("corpus", "domain", "strict", "limit", "seed", "held_out_sha256", "left_out")
        return {
            **{name: getattr(self, name) for name in names},
            "sources": [asdict(source) for source in self.sources],
        }


def gather_pool(
    corpus: Corpus, *, strict: bool = False, limit: int = TRANSFER_ROWS, seed: int = 42
) -> TransferPool:
    """Gather the training rows of a transfer judge; `TransferPool.missing` says why there are none.

    References
    ----------
    Appendix "Leave-one-corpus-out transfer" of the paper: a balanced sample, equal per source, of
    the pooled SFT splits. It balances sources, not outcomes. Where a source has fewer rows than its
    share, the others share what it leaves.
    """
    if type(limit) is not int or limit < 1:
        raise InputError(
            f"the pool of a transfer judge is limited to {limit!r} rows; give a whole number of "
            "at least 1."
        )
    domain = _target_domain(corpus, strict=strict)
    held_out = _HeldOut.of(corpus.trajectories, corpus.manifest)
    others = [name for name in registered_corpora(corpus.store) if name != corpus.name]
    found = {
        name: _usable(corpus.store, name, held_out, domain if strict else None) for name in others
    }
    left_out = {name: item for name, item in found.items() if isinstance(item, str)}
    usable = {name: item for name, item in found.items() if not isinstance(item, str)}
    shares = share_rows({name: len(item.rows) for name, item in usable.items()}, limit)
    drawn = {name: _draw(item.rows, shares[name], seed) for name, item in usable.items()}
    left_out |= {
        name: f"none of its rows can be used ({_counted(usable[name].dropped)})"
        for name, rows in drawn.items()
        if rows.empty
    }
    sources = tuple(
        _source(corpus.store, name, rows, usable[name]) for name, rows in drawn.items() if len(rows)
    )
    frame = _joined([drawn[source.corpus] for source in sources])
    return TransferPool(
        corpus.name,
        domain,
        strict,
        frame,
        sources,
        dict(sorted(left_out.items())),
        limit,
        seed,
        held_out.sha256,
    )


def share_rows(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a number of rows equally.

    A source with fewer gives all it has, and the others share the rest.

    Examples
    --------
    >>> share_rows({"a": 100, "b": 10, "c": 100}, 90)
    {'a': 40, 'b': 10, 'c': 40}
    """
    shares, left = {}, limit
    for place, name in enumerate(sorted(available, key=lambda name: (available[name], name))):
        shares[name] = min(available[name], left // (len(available) - place))
        left -= shares[name]
    return {name: shares[name] for name in available}


def require_sources(judge: JudgedCorpus, document: Mapping[str, Any]) -> None:
    """Refuse a transfer judge that would be trained on other rows now.

    A source that was removed does not make it stale, nor does a new corpus: the judge is still what
    its document says.
    """
    again = f"materialize judges/{judge}/model again."
    if (
        _HeldOut.of(judge.corpus.trajectories, judge.corpus.manifest).sha256
        != document["held_out_sha256"]
    ):
        raise StaleCertificateError(
            f"CAL or TEST of {judge.corpus} has other tasks or instructions than those that "
            f"{judge} was kept apart from; {again}"
        )
    known = set(registered_corpora(judge.store))
    for source in document["sources"]:
        name = source["corpus"]
        if name not in known or not judge.store.exists(_MANIFEST.format(name)):
            continue
        if (
            SplitManifest.from_dict(judge.store.read_json(_MANIFEST.format(name))).content_sha256()
            != source["manifest_sha256"]
        ):
            raise StaleCertificateError(
                f"the splits of {name}, on which {judge} for {judge.corpus} was trained, are "
                f"others now; {again}"
            )
        if document["strict"] and (
            reason := _excluded(judge.store, name, _target_domain(judge.corpus, strict=True))
        ):
            raise StaleCertificateError(
                f"{judge} for {judge.corpus} was trained on {name}, and now {reason}; {again}"
            )


def describe_sources(document: Mapping[str, Any]) -> str:
    """Name the sources of a transfer judge in one line: rows, tasks and manifest of each."""
    parts = [
        f"{item['corpus']} ({item['domain'] or 'domain not stated'}): {item['rows']} rows of "
        f"{item['tasks']} tasks, manifest {item['manifest_sha256'][:12]}"
        for item in document["sources"]
    ]
    return "; ".join(parts)


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
        """Return the labelled rows that share neither task nor instruction, and why the others are left out."""
        reasons = [
            "no_label"
            if unlabelled
            else "shared_task"
            if _plain(task) in self.tasks
            else self._by_instruction(instruction)
            for unlabelled, task, instruction in zip(
                sft["outcome"].isna(), sft["task_id"], sft["instruction"], strict=True
            )
        ]
        return sft[[not reason for reason in reasons]], dict(
            sorted(Counter(filter(None, reasons)).items())
        )

    def _by_instruction(self, instruction: str) -> str:
        return "shared_instruction" if _plain(instruction) in self.instructions else ""


def _plain(text: str) -> str:
    """Reduce a text to its words, so that case, spaces and punctuation do not hide that two are the same."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_A_WORD.sub(" ", folded).strip() or folded.strip()


def _target_domain(corpus: Corpus, *, strict: bool) -> str:
    domain = corpus.domain
    if strict and not domain.name:
        raise InputError(
            f"the domain of {corpus} is not stated, so nothing tells which corpora are of "
            "another; state it with `certify corpus import --domain`."
        )
    return domain.name


def _usable(store: Store, name: str, held_out: _HeldOut, domain: str | None) -> _Usable | str:
    """Return the rows that a corpus can give, what it drops and its manifest, or why it gives nothing."""
    if reason := _excluded(store, name, domain):
        return reason
    try:
        source = Corpus(store, name)
        sft, manifest = source.split("sft"), source.manifest
    except CertifyError as error:
        return str(error)
    return _Usable(*held_out.without(sft), manifest)


def _excluded(store: Store, name: str, domain: str | None) -> str:
    """Say why a corpus is no source; empty where it is one. `domain` is the one that a strict pool leaves out."""
    if domain is not None:
        own = Corpus(store, name).domain
        if own.name in ("", domain):
            return f"its domain is {own}"
    return "" if store.exists(_MANIFEST.format(name)) else "it is not split yet"


def _draw(rows: pd.DataFrame, number: int, seed: int) -> pd.DataFrame:
    """Draw whole tasks in the order of SHA-256(seed, corpus, task).

    The last one gives as many runs as the share has left.
    """

    def order(*parts: str) -> bytes:
        return hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()

    identities = list(zip(rows["corpus"], rows["task_id"], rows["trajectory_id"], strict=True))
    keys = [
        (order(corpus, task), task, order(corpus, task, run), run)
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

    from certify_assets.corpora.schema import to_frame

    return pd.concat(parts, ignore_index=True) if parts else to_frame([])


def _counted(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {number}" for reason, number in dropped.items()) or "it has none"
