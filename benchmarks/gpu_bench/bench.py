"""The shapes that are measured, and a random judge of one of them on the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from certify_assets.judges.lm.language_model import (
    Encoded,
    Hardware,
    LanguageModel,
    VerdictTokens,
    compile_layers,
)
from certify_assets.judges.lm.score import ScoringConfig, score_prompts

__all__ = ["FAIL", "QWEN3_4B", "SUCCESS", "TINY", "Bench", "Shape"]

SUCCESS, FAIL, FIRST = 2, 3, 4


@dataclass(frozen=True)
class Shape:
    """A model's shape and the sizes of what is measured with it."""

    name: str
    model: dict[str, int]
    tokens: int
    shortest: int
    matmul: int
    rows: int
    mixed_rows: int
    budget: int
    ties: tuple[int, int]

    @property
    def products(self) -> int:
        """Weights of the layers' products."""
        of = self.model
        inner, keys = (
            of["num_attention_heads"] * of["head_dim"],
            of["num_key_value_heads"] * of["head_dim"],
        )
        return (
            of["num_hidden_layers"]
            * of["hidden_size"]
            * (2 * inner + 2 * keys + 3 * of["intermediate_size"])
        )

    def flops(self, tokens: int, *, linear: int = 1, attention: int = 1) -> float:
        """Operations of the floor for one prompt."""
        of = self.model
        width = of["num_hidden_layers"] * of["num_attention_heads"] * of["head_dim"]
        return linear * 2.0 * tokens * self.products + attention * 2.0 * tokens**2 * width


QWEN3_4B = Shape(
    name="qwen3-4b",
    model={
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 8192,
    },
    tokens=5120,
    shortest=300,
    matmul=8192,
    rows=72,
    mixed_rows=192,
    budget=65_536,
    ties=(224, 512),
)
TINY = Shape(
    name="tiny",
    model={
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": 512,
        "max_position_embeddings": 512,
    },
    tokens=96,
    shortest=8,
    matmul=256,
    rows=12,
    mixed_rows=24,
    budget=512,
    ties=(224, 24),
)


class Bench:
    """The device, a model on it, and what was found so far."""

    def __init__(self, shape: Shape, *, quick: bool) -> None:
        self.shape, self.quick, self.hardware = shape, quick, Hardware.present()
        self.found: dict[str, Any] = {}
        self.rng = np.random.default_rng(0)

    @cached_property
    def judge(self) -> LanguageModel:
        """A random judge, built on the device."""
        import torch
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

        words = [
            "<pad>",
            "<eos>",
            "SUCCESS",
            "FAIL",
            *(f"w{place}" for place in range(FIRST, self.shape.model["vocab_size"])),
        ]
        inner = Tokenizer(
            WordLevel({word: place for place, word in enumerate(words)}, unk_token="w4")
        )
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="w4"
        )
        config = Qwen3Config(
            tie_word_embeddings=True,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
            rope_theta=1e6,
            **self.shape.model,
        )
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, self.hardware.dtype))
        try:
            with torch.device(self.hardware.device):
                model: Any = Qwen3ForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
        compile_layers(model, self.hardware)
        return LanguageModel(
            model.eval(), tokenizer, VerdictTokens((SUCCESS,), (FAIL,)), self.shape.name, "0" * 40
        )

    @property
    def peak(self) -> float:
        """Measured TFLOP/s of a bfloat16 product; NaN where it was not measured."""
        return float(self.found.get("matmul", {}).get("tflops", float("nan")))

    def prompts(self, lengths: list[int]) -> list[Encoded]:
        """Random prompts."""
        return [
            Encoded(
                tuple(self.rng.integers(FIRST, self.shape.model["vocab_size"], length).tolist())
            )
            for length in lengths
        ]

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.hardware.accelerated:
            import torch

            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], Any]) -> float:
        """Wall-clock seconds of a run, the device waited for."""
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def score(self, prompts: list[Encoded], **settings: Any) -> dict[str, Any]:
        """Score prompts after a warm-up on some; return rows a second and what was padded."""
        judge = self.judge
        config = ScoringConfig(token_budget=self.shape.budget, **settings)
        score_prompts(judge, prompts[: max(1, len(prompts) // 6)], config=config)
        taken = self.seconds(lambda: score_prompts(judge, prompts, config=config))
        lengths = [len(prompt.ids) for prompt in prompts]
        batches = config.batches(prompts)
        padded = sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)
        flops = sum(self.shape.flops(len(prompt.ids)) for prompt in prompts)
        return {
            "rows": len(prompts),
            "seconds": taken,
            "rows_per_second": len(prompts) / taken,
            "tflops": flops / taken / 1e12,
            "share_of_peak": flops / taken / 1e12 / self.peak,
            "padding": padded / sum(lengths) - 1,
        }
