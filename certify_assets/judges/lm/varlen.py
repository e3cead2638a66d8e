"""Rows of different lengths in one sequence without padding, attention kept within each."""

# The rows' boundaries go to every layer under the names that transformers uses for flash attention
# (cu_seq_lens_q, max_length_q …), and positions count from 0 in each row. In half precision on CUDA
# torch's own flash kernel for variable lengths computes the attention; anywhere else each row goes
# through the attention of the padded path by itself: the reference of the kernel.

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise
from typing import Any

from certify_assets.judges.lm.contract import Hardware

ATTENTION = "certify_varlen"

_Rows = Callable[..., Any]

# what some architectures add to the scores of attention; the kernels here know nothing of it
_ADDED = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True, eq=False)
class Packed:
    """Rows in one sequence."""

    # positions count from 0 in each row
    ids: Any
    positions: Any
    bounds: Any  # where rows begin; the number of tokens at the end
    last: Any
    longest: int

    def states(self, decoder: Any) -> Any:
        """Return the last hidden states of all tokens, inside `packed_attention`."""
        return decoder(
            input_ids=self.ids,
            position_ids=self.positions,
            use_cache=False,
            cu_seq_lens_q=self.bounds,
            cu_seq_lens_k=self.bounds,
            max_length_q=self.longest,
            max_length_k=self.longest,
        ).last_hidden_state[0]


def pack(rows: Sequence[Sequence[int]], device: str = "cpu") -> Packed:
    """Put rows of token ids one after the other."""
    import torch

    on, lengths = Hardware(device), [len(row) for row in rows]
    ends = list(accumulate(lengths))
    return Packed(
        ids=on.tensor([list(chain.from_iterable(rows))], torch.int64),
        positions=on.tensor([list(chain.from_iterable(map(range, lengths)))], torch.int64),
        bounds=on.tensor([0, *ends], torch.int32),
        last=on.tensor([end - 1 for end in ends], torch.int64),
        longest=max(lengths),
    )


def packable(model: Any) -> bool:
    """Whether every layer of a model keeps to the rows' boundaries."""
    # linear attention and state-space layers carry a state, and a convolution, over the boundaries
    # unless kernels that are no part of torch are installed: such models are read in padded batches
    import torch

    text = model.config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    mixing = any(isinstance(module, torch.nn.Conv1d) for module in model.get_decoder().modules())
    through_interface = getattr(model, "_supports_attention_backend", False) and getattr(
        model, "_supports_sdpa", False
    )
    plain = getattr(text, "attn_logit_softcapping", None) is None
    return bool(
        kinds <= {"full_attention", "sliding_attention"}
        and not mixing
        and through_interface
        and plain
    )


@contextmanager
def packed_attention(model: Any) -> Iterator[None]:
    """Let the layers of a model read packed rows; on leaving, its attention is the one it had."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = model.config._attn_implementation
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention_on(Hardware.of(model)))
    model.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@lru_cache(maxsize=4)
def _attention_on(hardware: Hardware) -> _Rows:
    """Return the attention of a device, the same object each time."""
    # a compiled layer would be compiled again for another object
    import torch

    # left out of compiled layers: traced, the loop would be compiled for each number of rows
    disable: Any = torch.compiler.disable
    return partial(_attention, flash=_flash_on(hardware), by_row=disable(_by_row))


def _attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    flash: _Rows | None,
    by_row: _Rows,
    **keywords: Any,
) -> tuple[Any, None]:
    """Attend within rows: (1, heads, tokens, width) in, (1, tokens, heads, width) out."""
    bounds = keywords.get("cu_seq_lens_q")
    if bounds is None or attention_mask is not None or query.shape[0] != 1:
        raise ValueError(
            f"attention {ATTENTION} takes one sequence of packed rows with their boundaries, and "
            "no mask."
        )
    named = [name for name in _ADDED if keywords.get(name) is not None]
    if named:
        raise ValueError(
            f"attention {ATTENTION} knows no {named[0]}; read this model in padded batches."
        )
    about = {"window": keywords.get("sliding_window"), "scale": keywords.get("scaling")}
    if flash is None:
        return by_row(
            module, (query, key, value), bounds, dropout=keywords.get("dropout", 0.0), **about
        ), None
    return flash((query, key, value), bounds, keywords["max_length_q"], **about), None


def _by_row(
    module: Any,
    whole: Sequence[Any],
    bounds: Any,
    *,
    window: int | None,
    scale: float | None,
    dropout: float,
) -> Any:
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    attend: Any = sdpa_attention_forward
    found, places = [], bounds.tolist()
    for start, end in pairwise(places):
        length, mask = end - start, None
        if window is not None and length > window:
            apart = torch.arange(length, device=whole[0].device)
            apart = apart[:, None] - apart
            mask = ((apart >= 0) & (apart < window))[None, None]
        parts = [part[:, :, start:end] for part in whole]
        found.append(attend(module, *parts, mask, scaling=scale, dropout=dropout)[0])
    return torch.cat(found, dim=1)


def _flash(
    whole: Sequence[Any],
    bounds: Any,
    longest: int,
    *,
    window: int | None,
    scale: float | None,
    kernel: _Rows,
) -> Any:
    query, key, value = (part[0].transpose(0, 1).to(whole[0].dtype) for part in whole)
    reach = (-1 if window is None else window - 1, 0)
    return kernel(
        query, key, value, bounds, bounds, longest, longest, scale=scale, window_size=reach
    ).unsqueeze(0)


def _flash_on(hardware: Hardware) -> _Rows | None:
    """Return torch's own kernel for variable lengths; None where rows go one by one."""
    if not (hardware.accelerated and hardware.half):
        return None
    import torch

    probe = torch.zeros((16, 2, 64), dtype=torch.bfloat16, device=hardware.device)
    bounds = torch.tensor([0, 16], dtype=torch.int32, device=hardware.device)
    # one split makes a row independent of the others; a kernel without that option splits
    # for single queries alone
    kernel = _varlen_kernel(num_splits=1)
    try:
        kernel(probe, probe, probe, bounds, bounds, 16, 16, window_size=(-1, 0))
    except RuntimeError:
        kernel = _varlen_kernel()
    return partial(_flash, kernel=kernel)


def _varlen_kernel(**options: Any) -> _Rows:
    """Return torch's kernel with shared heads, and the options that this version knows."""
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    options = {name: value for name, value in options.items() if name in known}
    return (
        partial(varlen_attn, enable_gqa=True, **options)
        if "enable_gqa" in known
        else partial(_repeated, kernel=varlen_attn, **options)
    )


def _repeated(
    query: Any, key: Any, value: Any, *others: Any, kernel: _Rows, **keywords: Any
) -> Any:
    key, value = (
        part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value)
    )
    return kernel(query, key, value, *others, **keywords)
