"""Eq. 4 of the paper: log-probabilities of the two verdicts at the end of the prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, read_json, sha256_bytes, write_atomic
from certify_assets.judges.base import Scores
from certify_assets.judges.lm.adapters import inner_model
from certify_assets.judges.lm.language_model import Encoded, Hardware, LanguageModel
from certify_assets.processes import own_cores

# what some architectures do to the logits after the head; reading the head alone would leave it out
_AFTER_THE_HEAD = (
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)

#: prompts that are read at once
Batch = Sequence[Encoded]


@dataclass(frozen=True, slots=True)
class ScoringConfig:
    """How prompts are put into batches."""

    # most tokens in a batch, padding included; a longer prompt has a batch for itself
    token_budget: int = 16_384
    rows: int = 0  # most prompts in a batch; 0 = as many as the budget holds
    # batches at once on a CPU, each on one thread; 0 = one for each core of this process. The
    # numbers do not depend on it
    workers: int = 0
    shard_rows: int = 64  # least prompts in a share of the work that is kept
    ray: bool = False  # whether Ray's actors read them

    @classmethod
    def suited(cls, judge: LanguageModel) -> ScoringConfig:
        """Return suitable settings for a model and its device."""
        # on a CPU a prompt fills a core, so each has a batch for itself: no padding, and a score
        # that depends on no other prompt
        ray = os.environ.get("CERTIFY_EXECUTOR") == "ray"
        if Hardware.of(judge.model).accelerated:
            return cls(token_budget=65_536, ray=ray)
        return cls(rows=1, ray=ray)

    def batches(self, prompts: Batch) -> list[list[int]]:
        """Put prompts into batches, the longest first, so that memory runs out at the start or
        never.
        """
        found: list[list[int]] = []
        for row in sorted(
            range(len(prompts)), key=lambda row: (-len(prompts[row].ids), prompts[row].ids)
        ):
            count = len(found[-1]) + 1 if found else 1
            fits = count * len(prompts[found[-1][0] if found else row].ids) <= self.token_budget
            if found and fits and not 0 < self.rows < count:
                found[-1].append(row)
            else:
                found.append([row])
        return found


def score_prompts(
    judge: LanguageModel,
    prompts: Batch,
    *,
    config: ScoringConfig | None = None,
    identity: str = "",
    shards: Path | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Scores:
    """Score prompts; NaN where a logit is not finite.

    Parts of the work that an earlier run of the same `identity` kept in the folder `shards` are
    reused.
    """
    config = config or ScoringConfig.suited(judge)
    values = np.full((len(prompts), 2), np.nan)
    done = 0
    groups = list(_groups(config.batches(prompts), config.shard_rows))
    work = [[[prompts[row] for row in batch] for batch in group] for group in groups]
    places = [shards and shards / f"{_key(identity, batches)}.json" for batches in work]
    kept = list(map(_kept, places))
    with _mapped(judge, config) as mapped:
        left = (part for part, found in zip(work, kept, strict=True) if found is None)
        read = iter(mapped(list(chain.from_iterable(left))))
        for group, place, found in zip(groups, places, kept, strict=True):
            rows = [row for batch in group for row in batch]
            if found is None:
                parts: list[NDArray[np.float64]] = []
                for part in islice(read, len(group)):
                    parts.append(part)
                    progress(done + sum(map(len, parts)), len(prompts))
                found = np.concatenate(parts)
                _keep(place, found)
            values[rows] = found
            done += len(rows)
            progress(done, len(prompts))
    return Scores(values[:, 0].copy(), values[:, 1].copy())


def _groups(batches: list[list[int]], least: int) -> Iterator[list[list[int]]]:
    """Join batches into parts of the work that are stored together."""
    group: list[list[int]] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= least or batch is batches[-1]:
            yield group
            group = []


def _key(identity: str, batches: Sequence[Batch]) -> str:
    """Name a part by everything that its numbers depend on."""
    ids = [[list(prompt.ids) for prompt in batch] for batch in batches]
    return sha256_bytes(canonical_json([identity, ids]))


def _keep(shard: Path | None, values: NDArray[np.float64]) -> None:
    if shard is not None:
        rows = [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]
        write_atomic(shard, canonical_json(rows))


def _kept(shard: Path | None) -> NDArray[np.float64] | None:
    """Return the numbers of a part, or None."""
    if shard is None or not shard.is_file():
        return None
    return np.array(read_json(shard), dtype=np.float64)


@contextmanager
def _mapped(
    judge: LanguageModel, config: ScoringConfig
) -> Iterator[Callable[[Sequence[Batch]], Iterator[NDArray[np.float64]]]]:
    """Return a map over batches, in order: by Ray, one at a time on a device, or on CPU threads."""
    reader = VerdictReader.of(judge)
    if config.ray:
        import ray

        ray.init(log_to_driver=False, ignore_reinit_error=True)
        kind = "GPU" if reader.hardware.accelerated else "CPU"
        # where the step itself holds all that the cluster has, an actor would wait for ever
        if free := int(ray.available_resources().get(kind, 0)):
            yield partial(_ray_map, reader, free)
            return
    if reader.hardware.accelerated:
        yield partial(map, reader.read_within_memory)
        return
    # the number of threads of a matrix product may change its last bits: one thread each
    with ThreadPoolExecutor(config.workers or own_cores(), initializer=_one_thread) as pool:
        try:
            yield partial(pool.map, reader.read_within_memory)
        finally:
            # after an error nobody waits for the rest
            pool.shutdown(wait=False, cancel_futures=True)


def _ray_map(
    reader: VerdictReader, free: int, batches: Sequence[Batch]
) -> Iterator[NDArray[np.float64]]:
    """Read batches by actors of Ray Data, each on a core or device of the cluster, in order."""
    import ray

    ray.data.DataContext.get_current().execution_options.preserve_order = True
    accelerated = reader.hardware.accelerated
    rows = [{"batch": json.dumps([list(prompt.ids) for prompt in batch])} for batch in batches]
    read = ray.data.from_items(rows).map(
        _RayReader,
        fn_constructor_args=(ray.put(reader),),
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=free),
        num_cpus=0 if accelerated else 1,
        num_gpus=1 if accelerated else 0,
    )
    for row in read.iter_rows():
        yield np.array(row["values"], dtype=np.float64).reshape(-1, 2)


class _RayReader:
    """An actor of Ray that holds a model."""

    def __init__(self, kept: Any) -> None:
        import ray

        _one_thread()
        self.reader: VerdictReader = ray.get(kept)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        batch = [Encoded(ids) for ids in json.loads(row["batch"])]
        return {"values": self.reader.read_within_memory(batch).ravel().tolist()}


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    return isinstance(
        error, MemoryError | torch.OutOfMemoryError
    ) or "can't allocate memory" in str(error)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@dataclass(frozen=True, eq=False)
class VerdictReader:
    """The parts of a model that a verdict is read from (Eq. 4)."""

    decoder: Any
    # the head in float32: in bfloat16, 224 prompts had 45 distinct scores
    head: Any
    bias: Any
    verdicts: tuple[tuple[int, ...], tuple[int, ...]]
    hardware: Hardware

    @classmethod
    def of(cls, judge: LanguageModel) -> VerdictReader:
        """Return the parts of a language model."""
        inner = inner_model(judge.model)
        text = inner.config.get_text_config()
        for name in _AFTER_THE_HEAD:
            if getattr(text, name, None) not in (None, 1, 1.0):
                raise InputError(
                    f"{judge.source} changes its logits after the head ({name}); choose another "
                    "model."
                )
        head = inner.get_output_embeddings()
        bias = getattr(head, "bias", None)
        return cls(
            decoder=inner.get_decoder(),
            head=head.weight.detach().float(),
            bias=None if bias is None else bias.detach().float(),
            verdicts=(judge.verdicts.success, judge.verdicts.fail),
            hardware=Hardware.of(inner),
        )

    def read_within_memory(self, batch: Batch) -> NDArray[np.float64]:
        """Read a batch, or its halves if memory runs out."""
        try:
            return self.read([prompt.ids for prompt in batch])
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            if len(batch) == 1:
                raise InputError(
                    f"a prompt of {len(batch[0].ids)} tokens alone does not fit into the memory of "
                    f"{self.hardware.device}; encode with fewer tokens."
                ) from None
        # outside the handler: the traceback would keep the tensors of the failed pass alive
        self.hardware.free_memory()
        half = len(batch) // 2
        parts = [self.read_within_memory(part) for part in (batch[:half], batch[half:])]
        return np.concatenate(parts)

    def read(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return log-probabilities of success and failure for a batch, of shape (rows, 2)."""
        import torch

        # a verdict's last token is predicted, the ones before it are read
        passes: dict[tuple[int, ...], Any] = {}
        totals = []
        with torch.inference_mode():
            for verdict in self.verdicts:
                before = verdict[:-1]
                if before not in passes:
                    passes[before] = self._log_probs(rows, before)
                tokens = torch.tensor(verdict, device=passes[before].device)
                steps = torch.arange(len(verdict), device=tokens.device)
                totals.append(passes[before][:, steps, tokens].sum(dim=1))
            values = torch.stack(totals, dim=1).double().cpu().numpy()
        values[~np.isfinite(values).all(axis=1)] = np.nan
        return np.asarray(values, dtype=np.float64)

    def _log_probs(self, rows: Sequence[Sequence[int]], before: tuple[int, ...]) -> Any:
        """Return log-probabilities at the end of each prompt and after each token of a verdict."""
        import torch

        read = [[*row, *before] for row in rows]
        width = max(map(len, read))
        # token 0 pads: it comes after everything that is read, where causal attention does not look
        ids = self.hardware.tensor([row + [0] * (width - len(row)) for row in read])
        hidden = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        ends = torch.tensor([[len(row) - 1] for row in rows], device=hidden.device)
        places = ends + torch.arange(len(before) + 1, device=hidden.device)
        last = hidden[torch.arange(len(rows), device=hidden.device)[:, None], places]
        logits = torch.nn.functional.linear(last.float(), self.head, self.bias)
        return torch.log_softmax(logits, dim=-1)
