"""Reading a causal language model at the end of its prompts, with the head in float32."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certify_assets.errors import InputError
from certify_assets.judges.lm.adapters import inner_model
from certify_assets.judges.lm.contract import Hardware, LanguageModel, VerdictTokens

# what some architectures do to the logits after the head; reading the head alone would leave it out
_AFTER_THE_HEAD = (
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)


@dataclass(frozen=True, eq=False)
class VerdictReader:
    """The parts of a model that a verdict is read from."""

    decoder: Any
    # the head in float32: in bfloat16, 224 prompts had 45 distinct scores
    head: Any
    bias: Any
    verdicts: VerdictTokens
    padding: str
    hardware: Hardware

    @classmethod
    def of(cls, judge: LanguageModel, padding: str) -> VerdictReader:
        """Take a language model apart."""
        inner = inner_model(judge.model)
        text = inner.config.get_text_config()
        for name in _AFTER_THE_HEAD:
            if getattr(text, name, None) not in (None, 1, 1.0):
                raise InputError(
                    f"{judge.source} changes its logits after the head ({name}); choose a model "
                    "without it, such as Qwen3."
                )
        head = inner.get_output_embeddings()
        bias = getattr(head, "bias", None)
        return cls(
            decoder=inner.get_decoder(),
            head=head.weight.detach().float(),
            bias=None if bias is None else bias.detach().float(),
            verdicts=judge.verdicts,
            # what follows the prompt must come next to it in the cache
            padding=padding if judge.verdicts.single else "left",
            hardware=Hardware.of(inner),
        )

    def read(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return log-probabilities of success and failure for a batch."""
        import torch

        with torch.inference_mode():
            found = self._single(rows) if self.verdicts.single else self._sequences(rows)
            values = found.double().cpu().numpy()
        values[~np.isfinite(values).all(axis=1)] = np.nan
        return np.asarray(values, dtype=np.float64)

    @contextmanager
    def ready(self, *, compiled: bool = False) -> Iterator[None]:
        """Let torch compile the layers where asked; on leaving they are as before."""
        layers = list(self.decoder.layers) if compiled else []
        for layer in layers:
            layer.compile(**self.hardware.compiler())
        try:
            yield
        finally:
            for layer in layers:
                layer._compiled_call_impl = None

    def _single(self, rows: Sequence[Sequence[int]]) -> Any:
        import torch

        ids, mask, positions = self._padded(rows)
        hidden = self.decoder(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        if self.padding == "left":
            last = hidden[:, -1]
        else:
            last = hidden[torch.arange(len(rows)), torch.tensor([len(row) - 1 for row in rows])]
        return self._verdicts(last)

    def _verdicts(self, last: Any) -> Any:
        return self._log_probs(last)[:, [self.verdicts.success[0], self.verdicts.fail[0]]]

    def _sequences(self, rows: Sequence[Sequence[int]]) -> Any:
        """Multiply the conditional probabilities of each verdict's tokens."""
        # both verdicts continue one pass over the prompt
        import torch

        ids, mask, positions = self._padded(rows)
        prompt = self.decoder(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True
        )
        first = self._log_probs(prompt.last_hidden_state[:, -1])
        lengths = torch.tensor([[len(row)] for row in rows], device=ids.device)
        totals = []
        for tokens in (self.verdicts.success, self.verdicts.fail):
            total = first[:, tokens[0]]
            if len(tokens) > 1:
                more = torch.tensor(tokens[:-1], device=ids.device).expand(len(rows), -1)
                steps = torch.arange(more.shape[1], device=ids.device)
                hidden = self.decoder(
                    input_ids=more,
                    attention_mask=None
                    if mask is None
                    else torch.cat([mask, torch.ones_like(more)], dim=1),
                    position_ids=lengths + steps,
                    # not every cache can be cut back to the prompt: linear attention keeps a
                    # running state
                    past_key_values=copy.deepcopy(prompt.past_key_values),
                    use_cache=True,
                ).last_hidden_state
                following = torch.tensor(tokens[1:], device=ids.device)
                total = total + self._log_probs(hidden)[:, steps, following].sum(dim=1)
            totals.append(total)
        return torch.stack(totals, dim=1)

    def _log_probs(self, hidden: Any) -> Any:
        import torch

        return torch.log_softmax(
            torch.nn.functional.linear(hidden.float(), self.head, self.bias), dim=-1
        )

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any, Any]:
        import torch

        width = max(map(len, rows))
        left = self.padding == "left"
        # token 0 stands in for padding: it is masked, or comes after everything that is read
        ids = [
            [0] * (width - len(row)) + list(row) if left else list(row) + [0] * (width - len(row))
            for row in rows
        ]
        if not left or all(len(row) == width for row in rows):
            return self.hardware.tensor(ids), None, None
        mask = self.hardware.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        return self.hardware.tensor(ids), mask, (torch.cumsum(mask, dim=1) - 1).clamp(min=0)
