"""Eq. 4 of the paper: log-probabilities of the two verdicts where the prompt ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.base import Scores
from certify_assets.judges.lm.contract import Encoded, Hardware, LanguageModel
from certify_assets.judges.lm.reading import VerdictReader
from certify_assets.processes import own_cores

_SCHEMA = "certify_assets/score_shard/1"


@dataclass(frozen=True, eq=False)
class Shard:
    """Scores of the prompts of a few batches."""

    # log-probabilities of success and failure, in the order of the batches; NaN = unscored
    log_probs: NDArray[np.float64]
    batches: tuple[int, ...]  # rows of each batch as it was really run, after any halving
    out_of_memory: int


@dataclass(frozen=True, slots=True)
class Shards:
    """A folder of shards, or none."""

    folder: Path | None

    def read(self, key: str, rows: int) -> Shard | None:
        """Return a finished shard; None where it is absent, cut short or of another key."""
        if self.folder is None or not self._path(key).is_file():
            return None
        try:
            return _shard(read_json(self._path(key)), key, rows)
        except (InputError, KeyError, TypeError, ValueError):
            return None

    def write(self, key: str, shard: Shard) -> None:
        """Keep a shard; a reader sees all of it or nothing."""
        if self.folder is None:
            return
        rows = [
            [float(value) if np.isfinite(value) else None for value in row]
            for row in shard.log_probs
        ]
        body = {
            "key": key,
            "log_probs": rows,
            "batches": list(shard.batches),
            "out_of_memory": shard.out_of_memory,
        }
        sha256 = sha256_bytes(canonical_json(body))
        write_atomic(self._path(key), canonical_json({"schema": _SCHEMA, **body, "sha256": sha256}))

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.json"


def shard_key(fingerprint: EngineFingerprint, group: Group) -> str:
    """Name a shard by everything its numbers depend on."""
    batches = [
        [sha256_bytes(np.asarray(prompt.ids, dtype="<i8").tobytes()) for prompt in batch]
        for batch in group
    ]
    return sha256_bytes(canonical_json({"fingerprint": asdict(fingerprint), "batches": batches}))


def _shard(document: Mapping[str, Any], key: str, rows: int) -> Shard | None:
    body = {name: document[name] for name in ("key", "log_probs", "batches", "out_of_memory")}
    if (
        document["schema"] != _SCHEMA
        or document["sha256"] != sha256_bytes(canonical_json(body))
        or document["key"] != key
    ):
        return None
    values = np.array(
        [[np.nan if value is None else value for value in row] for row in document["log_probs"]],
        dtype=np.float64,
    )
    if values.shape != (rows, 2) or sum(document["batches"]) != rows:
        return None
    return Shard(values, tuple(document["batches"]), int(document["out_of_memory"]))


#: batches of prompts that are scored, and kept, together
Group = Sequence[Sequence[Encoded]]


@dataclass(frozen=True, slots=True)
class ScoringConfig:
    """How prompts are put into batches."""

    # most tokens in a batch, padding included; a longer prompt has a batch for itself
    token_budget: int = 16_384
    rows: int = 0  # most prompts in a batch; 0 = as many as the budget holds
    # "left": mask and positions given, the last column is read. "right": no mask, which the causal
    # attention of fast kernels does not need, and each row is read at its own end
    padding: str = "left"
    # batches at once on a CPU, each on one thread; 0 = one for each core of this process. The
    # numbers do not depend on it
    workers: int = 0
    shard_rows: int = 64  # least prompts in a share of the work that is kept
    # let torch compile the layers; off by default, as the first batches then take minutes
    compiled: bool = False

    @classmethod
    def suited(cls, judge: LanguageModel) -> ScoringConfig:
        """Return what suits a model and its device."""
        # on a CPU a prompt fills a core, so each has a batch for itself: no padding, and a score
        # that depends on no other prompt, which is the reference of all engines
        if not Hardware.of(judge.model).accelerated:
            return cls(rows=1)
        return cls(token_budget=65_536, padding="right")

    @property
    def is_reference(self) -> bool:
        """Whether each prompt is read by itself through the model's own attention."""
        return self.rows == 1 and self.padding == "left" and not self.compiled

    def numbers(self) -> dict[str, int | str]:
        """Return the settings that the numbers depend on."""
        found: dict[str, int | str] = {
            "token_budget": self.token_budget,
            "rows": self.rows,
            "padding": self.padding,
        }
        return {**found, "compiled": True} if self.compiled else found

    def tokens(self, lengths: Sequence[int]) -> int:
        """Return the size of a batch, its padding included."""
        return len(lengths) * max(lengths, default=0)


@dataclass(frozen=True, slots=True)
class EngineFingerprint:
    """What the numbers of a run depend on, besides the prompts; equal for comparable runs."""

    model: str
    revision: str
    adapter_sha256: str
    engine: str
    attention: str
    dtype: str
    verdicts: list[list[int]]
    batching: dict[str, int | str]


@dataclass(frozen=True, eq=False)
class ScoringRun:
    """Scores and how they came about."""

    scores: Scores  # NaN where a logit was not finite
    fingerprint: EngineFingerprint
    # of the prompts; of the batches as planned, padding included
    tokens: int
    padded_tokens: int
    # times that memory ran out; prompts whose scores an earlier run left
    out_of_memory: int
    kept_rows: int


def compose(prompts: Sequence[Encoded], config: ScoringConfig) -> list[tuple[int, ...]]:
    """Put prompts into batches, the longest first: memory runs out at the start or never."""
    batches: list[list[int]] = []
    lengths: list[int] = []
    for row in sorted(
        range(len(prompts)), key=lambda row: (-len(prompts[row].ids), prompts[row].ids)
    ):
        lengths.append(len(prompts[row].ids))
        full = (
            not batches
            or (config.rows and len(batches[-1]) >= config.rows)
            or config.tokens(lengths) > config.token_budget
        )
        if full:
            batches.append([])
            lengths = lengths[-1:]
        batches[-1].append(row)
    return [tuple(batch) for batch in batches]


def engine_fingerprint(
    judge: LanguageModel, adapter_sha256: str, config: ScoringConfig
) -> EngineFingerprint:
    """Return what the numbers of a run depend on, besides the prompts."""
    import torch
    import transformers

    hardware = Hardware.of(judge.model)
    own = str(getattr(judge.model.config, "_attn_implementation", ""))
    return EngineFingerprint(
        model=judge.source,
        revision=judge.revision,
        adapter_sha256=adapter_sha256,
        engine=f"transformers {transformers.__version__}, torch {torch.__version__}, "
        f"{hardware.device}",
        attention=own,
        dtype=hardware.dtype,
        verdicts=[list(judge.verdicts.success), list(judge.verdicts.fail)],
        batching=config.numbers(),
    )


def score_prompts(
    judge: LanguageModel,
    prompts: Sequence[Encoded],
    *,
    config: ScoringConfig | None = None,
    adapter_sha256: str = "",
    shards: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ScoringRun:
    """Score prompts."""
    config = config or ScoringConfig.suited(judge)
    fingerprint = engine_fingerprint(judge, adapter_sha256, config)
    batches, store = compose(prompts, config), Shards(shards)
    groups = [
        [[prompts[row] for row in batch] for batch in group]
        for group in _groups(batches, config.shard_rows)
    ]
    keys = [shard_key(fingerprint, group) for group in groups]
    found = {
        place: shard
        for place, key in enumerate(keys)
        if (shard := store.read(key, _size(groups[place]))) is not None
    }
    missing = [place for place in range(len(groups)) if place not in found]
    done = kept = sum(_size(groups[place]) for place in found)

    def report(further: int) -> None:
        if progress is not None and done + further:
            progress(done + further, len(prompts))

    report(0)
    left = [groups[place] for place in missing]
    for number, shard in _scored(judge, config, report, left):
        place = missing[number]
        store.write(keys[place], shard)
        found[place] = shard
        done += _size(groups[place])
        report(0)
    padded = sum(config.tokens([len(prompts[row].ids) for row in batch]) for batch in batches)
    order = [row for batch in batches for row in batch]
    shares = [found[place] for place in range(len(groups))]
    values = np.full((len(prompts), 2), np.nan)
    if order:
        values[order] = np.concatenate([shard.log_probs for shard in shares])
    return ScoringRun(
        scores=Scores(values[:, 0].copy(), values[:, 1].copy()),
        fingerprint=fingerprint,
        tokens=sum(len(prompt.ids) for prompt in prompts),
        padded_tokens=padded,
        out_of_memory=sum(shard.out_of_memory for shard in shares),
        kept_rows=kept,
    )


def _scored(
    judge: LanguageModel,
    config: ScoringConfig,
    report: Callable[[int], None],
    groups: Sequence[Group],
) -> Iterator[tuple[int, Shard]]:
    reader = VerdictReader.of(judge, config.padding)
    with reader.ready(compiled=config.compiled), _Runner.on(reader, config) as runner:
        for number, group in enumerate(groups):
            yield number, runner.run(group, report)


def _size(group: Group) -> int:
    return sum(map(len, group))


def _groups(batches: Sequence[tuple[int, ...]], least: int) -> Iterator[list[tuple[int, ...]]]:
    group: list[tuple[int, ...]] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= least:
            yield group
            group = []
    if group:
        yield group


class _Runner:
    """Runs batches; where memory runs out, halves the token budget for the rest of the run."""

    def __init__(
        self, reader: VerdictReader, config: ScoringConfig, pool: ThreadPoolExecutor | None
    ) -> None:
        self._reader = reader
        self._config = config
        self._pool = pool

    @classmethod
    @contextmanager
    def on(cls, reader: VerdictReader, config: ScoringConfig) -> Iterator[_Runner]:
        if reader.hardware.accelerated:
            yield cls(reader, config, None)
            return
        # the number of threads of a matrix product may change its last bits: one thread each, many
        # batches at once
        with ThreadPoolExecutor(config.workers or own_cores(), initializer=_one_thread) as pool:
            yield cls(reader, config, pool)

    def run(self, batches: Sequence[Sequence[Encoded]], report: Callable[[int], None]) -> Shard:
        found: list[NDArray[np.float64]] = []
        sizes: list[int] = []
        ran_out = done = 0
        mapped = map if self._pool is None else self._pool.map
        for parts, halvings in mapped(self._fit, batches):
            found += parts
            sizes += [len(part) for part in parts]
            ran_out += halvings
            done += sum(len(part) for part in parts)
            report(done)
        return Shard(np.concatenate(found), tuple(sizes), ran_out)

    def _fit(self, batch: Sequence[Encoded]) -> tuple[list[NDArray[np.float64]], int]:
        ran_out = 0
        while True:
            config = self._config
            try:
                parts = [
                    self._reader.read([batch[row].ids for row in part])
                    for part in compose(batch, config)
                ]
                return parts, ran_out
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                lengths = [len(prompt.ids) for prompt in batch]
                if max(map(len, compose(batch, config))) == 1:
                    raise InputError(
                        f"a prompt of {lengths[0]} tokens alone does not fit into the memory of "
                        f"{self._reader.hardware.device}; encode with fewer tokens."
                    ) from None
                ran_out += 1
            # outside the handler: the traceback would keep the tensors of the failed pass alive
            tokens = min(config.token_budget, config.tokens(lengths))
            self._config = replace(config, token_budget=max(1, tokens // 2))
            self._reader.hardware.free_memory()


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    return isinstance(
        error, MemoryError | torch.OutOfMemoryError
    ) or "can't allocate memory" in str(error)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
