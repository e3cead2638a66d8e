"""How the compact model is built: architecture, tokenizer, pretraining; equal settings and runs give equal weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes

__all__ = ["CompactSettings"]


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """Settings of the compact model and its pretraining.

    Parameters
    ----------
    layers, hidden, heads, key_value_heads, intermediate : int
        Shape of the Qwen3 architecture.
    head_dim : int
        32, the smallest that vLLM serves.
    vocabulary : int
        Tokens of the tokenizer.
    context : int
        Tokens of the longest prompt in pretraining; the positions are rotary, so longer prompts can be read.
    epochs : int
        Passes over the runs.
    batch_tokens : int
        Most tokens in one step.
    learning_rate, weight_decay, warmup : float
        Peak of AdamW's rate, its decay of matrices, and the share of steps before the peak; the rate then falls in a line to 0.
    verdict_weight : float
        Weight of the mean loss of the verdicts against the mean loss of the runs' own tokens.
    seed : int
        Names the initial weights and the order of the runs.
    threads : int
        Threads of torch: sums are taken in another order for another number, so it is part of the recipe.
    """

    layers: int = 4
    hidden: int = 160
    heads: int = 5
    key_value_heads: int = 5
    intermediate: int = 480
    head_dim: int = 32
    vocabulary: int = 3072
    context: int = 768
    epochs: int = 1
    batch_tokens: int = 4096
    learning_rate: float = 4e-3
    weight_decay: float = 0.1
    warmup: float = 0.05
    verdict_weight: float = 2.0
    seed: int = 42
    threads: int = 2

    def __post_init__(self) -> None:
        whole = (
            "layers",
            "hidden",
            "heads",
            "key_value_heads",
            "intermediate",
            "vocabulary",
            "context",
            "epochs",
            "batch_tokens",
            "threads",
        )
        for name in whole:
            if type(value := getattr(self, name)) is not int or value < 1:
                raise InputError(
                    f"the compact model's {name} is {value!r}; give a whole number of at least 1."
                )
        if self.heads % self.key_value_heads:
            raise InputError(
                f"{self.heads} heads cannot share {self.key_value_heads} heads of keys; give a divisor."
            )
        if self.head_dim not in (32, 64, 80, 96, 112, 128):
            raise InputError(
                f"the compact model's head_dim is {self.head_dim!r}; give 32, 64, 80, 96, 112 or 128, which servers support."
            )

    @property
    def sha256(self) -> str:
        """Hash of the settings."""
        return sha256_bytes(canonical_json(asdict(self)))
