"""Speed of a judge of the Qwen3-4B shape on CUDA: scoring, fine-tuning, exact and sampled GRPO.

    python benchmarks/gpu.py [--quick] [--limit SECONDS] [--out FILE]

Weights are random and drawn on the device in bfloat16; nothing is downloaded. A section that fails
or outlasts its share of the limit says so, and the next begins. FILE gets JSON after each section.
Without CUDA the same code runs on the CPU at a tiny shape, which measures nothing of a GPU.

The operations of a prompt of T tokens, the floor that shares of the peak refer to: 2·T for each
weight of the layers' products, and 2·T²·heads·width in each layer for causal attention. Training an
adapter takes the products twice (the base's weights have no gradient) and attention three times.
"""

from __future__ import annotations

import argparse
import gc
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from certify_assets.files import write_json_atomic
from certify_assets.judges.lm.adapters import attach_lora, quiet
from certify_assets.judges.lm.grpo import GrpoConfig, GrpoRun, sampled_trainer
from certify_assets.judges.lm.language_model import (
    Encoded,
    Hardware,
    LanguageModel,
    VerdictTokens,
    compile_layers,
    uncompiled,
)
from certify_assets.judges.lm.reward import ARMS
from certify_assets.judges.lm.score import ScoringConfig, score_prompts
from certify_assets.judges.lm.sft import SftConfig, train_sft

#: token ids of the verdicts, and the first of those that fill prompts
SUCCESS, FAIL, FIRST = 2, 3, 4


@dataclass(frozen=True)
class Shape:
    """A model's shape and the sizes of what is measured with it."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    head: int
    words: int
    # of a prompt: the longest, and the shortest where lengths are mixed
    tokens: int
    shortest: int
    # side of the matrices, prompts of one length, prompts of mixed lengths, tokens of a batch
    matmul: int
    rows: int
    mixed_rows: int
    budget: int

    def flops(self, tokens: int, *, linear: int = 1, attention: int = 1) -> float:
        """Operations of the floor for one prompt."""
        inner, keys = self.heads * self.head, self.key_heads * self.head
        products = self.layers * self.hidden * (2 * inner + 2 * keys + 3 * self.intermediate)
        return 2.0 * tokens * (linear * products + attention * tokens * self.layers * inner)


QWEN3_4B = Shape(2560, 9728, 36, 32, 8, 128, 151_936, 5120, 300, 8192, 72, 192, 65_536)
TINY = Shape(64, 96, 2, 2, 1, 32, 512, 96, 8, 256, 12, 24, 512)


class Bench:
    """The device, a random model on it, and what was found so far."""

    def __init__(self, *, quick: bool) -> None:
        self.quick, self.hardware = quick, Hardware.present()
        self.shape = QWEN3_4B if self.hardware.accelerated else TINY
        self.rng = np.random.default_rng(0)
        self.found: dict[str, dict[str, Any]] = {}

    @cached_property
    def judge(self) -> LanguageModel:
        import torch
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

        shape, on = self.shape, self.hardware
        names = ["<pad>", "<eos>", "SUCCESS", "FAIL"]
        names += [f"w{place}" for place in range(FIRST, shape.words)]
        inner = Tokenizer(WordLevel({name: row for row, name in enumerate(names)}, unk_token="w4"))
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>"
        )
        config = Qwen3Config(
            hidden_size=shape.hidden,
            intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.key_heads,
            head_dim=shape.head,
            vocab_size=shape.words,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
            dtype=getattr(torch, on.dtype),
        )
        torch.manual_seed(0)
        with torch.device(on.device):
            model = Qwen3ForCausalLM(config)
        model = model.to(getattr(torch, on.dtype)).eval()
        compile_layers(model, on)
        return LanguageModel(model, tokenizer, VerdictTokens((SUCCESS,), (FAIL,)), "random", "0")

    @property
    def peak(self) -> float:
        """Measured TFLOP/s of a bfloat16 product; NaN where it was not measured."""
        return float(self.found.get("matmul", {}).get("tflops", float("nan")))

    def prompts(self, lengths: list[int]) -> list[Encoded]:
        return [
            Encoded(tuple(self.rng.integers(FIRST, self.shape.words, length).tolist()))
            for length in lengths
        ]

    def seconds(self, run: Callable[[], Any]) -> float:
        """Wall-clock seconds of a run, the device waited for."""
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def wait(self) -> None:
        if self.hardware.accelerated:
            import torch

            torch.cuda.synchronize()

    def score(self, lengths: list[int]) -> dict[str, Any]:
        """Score prompts after a warm-up on some of them."""
        prompts, config = self.prompts(lengths), ScoringConfig(token_budget=self.shape.budget)
        score_prompts(self.judge, prompts[: max(1, len(prompts) // 6)], config=config)
        taken = self.seconds(lambda: score_prompts(self.judge, prompts, config=config))
        tflops = sum(map(self.shape.flops, lengths)) / taken / 1e12
        return {
            "rows_per_second": len(prompts) / taken,
            "tflops": tflops,
            "share_of_peak": tflops / self.peak,
        }

    @contextmanager
    def with_lora(self) -> Iterator[LanguageModel]:
        """Lend the model a random trainable adapter."""
        import torch

        model = attach_lora(self.judge.model, rank=16, alpha=32, dropout=0.0, seed=0)
        try:
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    if "lora_B" in name:
                        weight.normal_(0, 0.01)
            yield replace(self.judge, model=model.eval())
        finally:
            model.unload()
            for name in ("forward", "peft_config", "_hf_peft_config_loaded"):
                self.judge.model.__dict__.pop(name, None)


def matmul(bench: Bench) -> dict[str, Any]:
    """Measured peak: the median of products of random square matrices."""
    import torch

    size, device = bench.shape.matmul, bench.hardware.device
    a, b = (torch.randn((size, size), device=device).bfloat16() for _ in range(2))
    taken = [bench.seconds(lambda: [a @ b for _ in range(5)]) / 5 for _ in range(10)]
    return {"tflops": 2 * size**3 / statistics.median(taken) / 1e12}


def scoring(bench: Bench) -> dict[str, Any]:
    """Prompts of full length, all alike, so that nothing is padded."""
    return bench.score([bench.shape.tokens] * (bench.shape.rows // (3 if bench.quick else 1)))


def mixed(bench: Bench) -> dict[str, Any]:
    """Log-normal lengths: in batches of like length, and eight a batch by transformers alone."""
    shape = bench.shape
    count = shape.mixed_rows // (3 if bench.quick else 1)
    drawn = np.exp(bench.rng.normal(np.log(shape.tokens / 4), 0.7, count))
    lengths = [int(length) for length in np.clip(drawn, shape.shortest, shape.tokens)]
    prompts = bench.prompts(lengths)
    plain(bench, prompts[:8])
    taken = bench.seconds(lambda: plain(bench, prompts))
    return {
        **bench.score(lengths),
        "mean_tokens": sum(lengths) / count,
        "rows_per_second_of_transformers": count / taken,
    }


def plain(bench: Bench, prompts: list[Encoded]) -> None:
    """Read prompts as a script with transformers does: padded on the left, last logits kept."""
    import torch

    for place in range(0, len(prompts), 8):
        rows = [prompt.ids for prompt in prompts[place : place + 8]]
        width = max(map(len, rows))
        ids = bench.hardware.tensor([[0] * (width - len(row)) + list(row) for row in rows])
        with torch.inference_mode(), uncompiled():
            bench.judge.model(
                input_ids=ids, attention_mask=(ids != 0).long(), use_cache=False, logits_to_keep=1
            ).logits.float().cpu()


def sft(bench: Bench) -> dict[str, Any]:
    """Seconds of an optimizer step of SFT, 2 rows × 4."""
    steps, tokens, a_step = (2 if bench.quick else 4), bench.shape.tokens, 8
    prompts = bench.prompts([tokens - 1] * (a_step * (steps + 1)))
    outcomes = [place % 2 for place in range(len(prompts))]
    with tempfile.TemporaryDirectory() as folder, marked() as marks:
        train_sft(
            bench.judge, prompts, outcomes, Path(folder), config=SftConfig(), progress=marks.add
        )
    tflops = a_step * bench.shape.flops(tokens, linear=2, attention=3) / marks.median / 1e12
    return {"step_seconds": marks.median, "tflops": tflops, "share_of_peak": tflops / bench.peak}


class Marks:
    """Times at which steps ended."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def add(self, *_: object) -> None:
        self.at.append(time.perf_counter())

    @property
    def median(self) -> float:
        return statistics.median(np.diff(self.at).tolist())


@contextmanager
def marked() -> Iterator[Marks]:
    """Give marks for the progress of a training, whose prints go to stderr."""
    with quiet(), redirect_stdout(sys.stderr):
        yield Marks()


def grpo_run(bench: Bench, judge: LanguageModel, **settings: Any) -> GrpoRun:
    prompts = bench.prompts([bench.shape.tokens - 48] * 6)
    config = GrpoConfig(save_every=0, micro_tokens=2 * bench.shape.tokens, **settings)
    return GrpoRun(judge, prompts, [place % 2 for place in range(6)], ARMS["reject_3"], config)


def grpo_exact(bench: Bench) -> dict[str, Any]:
    """Seconds a prompt of exact GRPO."""
    with bench.with_lora() as judge, tempfile.TemporaryDirectory() as folder, marked() as marks:
        run = grpo_run(bench, judge, steps=3 if bench.quick else 5)
        run.train(Path(folder), progress=marks.add)
    return {"seconds_a_prompt": marks.median / run.config.prompts_per_step}


def grpo_sampled(bench: Bench) -> dict[str, Any]:
    """Seconds a prompt of TRL with 8 samples of one token, as of a judge that always answers."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            bench.wait()
            marks.add()

    with (
        bench.with_lora() as judge,
        tempfile.TemporaryDirectory() as folder,
        uncompiled(),
        marked() as marks,
    ):
        run = grpo_run(
            bench, judge, sampled=True, steps=2, prompts_per_step=1, max_completion_tokens=1
        )
        trainer = sampled_trainer(run, Path(folder))
        trainer.add_callback(Clock())
        trainer.train()
    exact = bench.found.get("grpo_exact", {}).get("seconds_a_prompt", float("nan"))
    return {"seconds_a_prompt": marks.median, "over_exact": marks.median / exact}


#: seconds that each may take
SECTIONS: dict[Callable[[Bench], dict[str, Any]], int] = {
    matmul: 40,
    grpo_exact: 120,
    grpo_sampled: 100,
    scoring: 110,
    sft: 170,
    mixed: 80,
}


def measured(
    bench: Bench, section: Callable[[Bench], dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Run a section within its time; an error becomes its result."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds:.0f} s")

    gc.collect()
    bench.hardware.free_memory()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return section(bench)
    # the other figures are wanted all the same
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows and steps")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for all of it")
    parser.add_argument("--out", type=Path, help="write JSON here after each section")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    start, bench = time.perf_counter(), Bench(quick=given.quick)
    for section, share in SECTIONS.items():
        left = given.limit - (time.perf_counter() - start)
        found = (
            measured(bench, section, min(share, left)) if left > 5 else {"error": "no time left"}
        )
        bench.found[section.__name__] = found
        figures = (
            f"{key} {value:.4g}" if isinstance(value, float) else value
            for key, value in found.items()
        )
        print(section.__name__, *figures, sep="  ", flush=True)
        if given.out:
            write_json_atomic(given.out, bench.found)
    if not bench.hardware.accelerated:
        print("no CUDA device: the figures are of a tiny model on this CPU.")


if __name__ == "__main__":
    main()
