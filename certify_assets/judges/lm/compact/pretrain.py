"""Pretrain the compact model on the next tokens of runs; it sees no verdict and no outcome."""

# Deltas from a plain causal language model: the auditor's text before the run is read and never
# predicted; rows are batched by length, right-padded and unmasked, because a causal model never
# sees what follows.

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.checkpoint import checkpoint_run, load_checkpoint, save_checkpoint
from certify_assets.judges.lm.compact.settings import CompactSettings

_SAVE_EVERY_S = 60.0
_CLIP = 1.0


@dataclass(frozen=True, slots=True)
class Example:
    """The auditor's text before a run, and the run."""

    ids: tuple[int, ...]
    start: int  # place in `ids` where the run's own tokens begin


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of the pretraining."""

    step: int
    steps: int
    loss: float
    seconds: float


def new_model(settings: CompactSettings, pad: int, end: int) -> Any:
    """Return a Qwen3 model with the seed's initial weights, in float32."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=settings.vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads,
        head_dim=settings.head_dim,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        initializer_range=0.04,
        use_sliding_window=False,
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Qwen3ForCausalLM(config)


def plan_batches(lengths: Sequence[int], settings: CompactSettings) -> list[list[int]]:
    """Return the rows of every step: rows of like length together, within the token budget."""
    steps: list[list[int]] = []
    for epoch in range(settings.epochs):
        generator = np.random.default_rng((settings.seed, epoch))
        # equal lengths come in the epoch's random order, and lengths are jittered, so that batches
        # differ between epochs
        jitter = generator.uniform(0.9, 1.1, len(lengths))
        order = np.argsort(np.asarray(lengths) * jitter, kind="stable")
        batches: list[list[int]] = [[]]
        longest = 0
        for row in order:
            longest = max(longest, lengths[row])
            if batches[-1] and longest * (len(batches[-1]) + 1) > settings.batch_tokens:
                batches.append([])
                longest = lengths[row]
            batches[-1].append(int(row))
        steps += [batches[place] for place in generator.permutation(len(batches))]
    return steps


def pretrain(
    examples: Sequence[Example],
    settings: CompactSettings,
    *,
    pad: int,
    end: int,
    folder: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Any, list[Progress]]:
    """Train a new model on the examples."""
    with _deterministic(settings.threads):
        return _pretrain(examples, settings, (pad, end), folder, progress or (lambda _: None))


@contextmanager
def _deterministic(threads: int) -> Iterator[None]:
    """Fix torch's threads and algorithms, which decide the order of its sums."""
    import torch

    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


def _pretrain(
    examples: Sequence[Example],
    settings: CompactSettings,
    pad_end: tuple[int, int],
    folder: Path | None,
    progress: Callable[[Progress], None],
) -> tuple[Any, list[Progress]]:
    import torch

    pad, end = pad_end
    model = new_model(settings, pad, end).train()
    optimizer = _optimizer(model, settings)
    steps = plan_batches([len(example.ids) for example in examples], settings)
    key = sha256_bytes(
        canonical_json([settings.sha256, [list(example.ids) for example in examples]])
    )
    curve: list[Progress] = []
    if folder is not None and checkpoint_run(folder) == key:
        history, _ = load_checkpoint(folder, model, optimizer, run=key)
        curve = [Progress(**item) for item in history]
    saved = time.monotonic()
    started = saved - (curve[-1].seconds if curve else 0.0)
    for step in range(len(curve), len(steps)):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _rate(step, len(steps), settings.warmup)
        loss = _loss(model, [examples[row] for row in steps[step]], pad)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        now = time.monotonic()
        curve.append(Progress(step + 1, len(steps), loss.item(), now - started))
        progress(curve[-1])
        if folder is not None and now - saved > _SAVE_EVERY_S:
            history = [asdict(item) for item in curve]
            save_checkpoint(folder, model, optimizer, run=key, history=history)
            saved = now
    return model.eval(), curve


def _loss(model: Any, examples: Sequence[Example], pad: int) -> Any:
    """Mean loss of the runs' own tokens."""
    # logits are made for these places alone
    import torch
    from torch.nn.functional import cross_entropy

    longest = max(len(example.ids) for example in examples)
    ids = torch.tensor(
        [list(example.ids) + [pad] * (longest - len(example.ids)) for example in examples]
    )
    rows, places = _targets(examples)
    shared = _shared_prefix(examples)
    states = _states(model, ids, shared)
    return cross_entropy(model.lm_head(states[rows, places - 1 - shared]), ids[rows, places])


def _states(model: Any, ids: Any, shared: int) -> Any:
    """Return the last hidden states after the first `shared` tokens, which are computed once."""
    if not shared:
        return model.model(input_ids=ids, use_cache=False).last_hidden_state
    cache = model.model(input_ids=ids[:1, :shared], use_cache=True).past_key_values
    cache.batch_repeat_interleave(len(ids))
    return model.model(
        input_ids=ids[:, shared:], past_key_values=cache, use_cache=True
    ).last_hidden_state


def _shared_prefix(examples: Sequence[Example]) -> int:
    """Count the tokens before every run, but for the last, which predicts its first."""
    shared = min(example.start for example in examples) - 1
    return shared if shared > 0 and len({example.ids[:shared] for example in examples}) == 1 else 0


def _targets(examples: Sequence[Example]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    spans = [np.arange(example.start, len(example.ids)) for example in examples]
    return np.repeat(np.arange(len(spans)), [len(span) for span in spans]), np.concatenate(spans)


def _rate(step: int, steps: int, warmup: float) -> float:
    rising = max(1, math.ceil(warmup * steps))
    return min((step + 1) / rising, (steps - step) / max(1, steps - rising))


def _optimizer(model: Any, settings: CompactSettings) -> Any:
    import torch

    parameters = list(model.parameters())
    groups = [
        {
            "params": [value for value in parameters if value.ndim >= 2],
            "weight_decay": settings.weight_decay,
        },
        {"params": [value for value in parameters if value.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.95), fused=True)
