"""Speed of a judge of the Qwen3-4B shape on CUDA: scoring, fine-tuning, exact and sampled GRPO,
against what the device can do.

    python benchmarks/gpu.py [--shape auto|qwen3-4b|tiny] [--quick] [--json] [--out FILE] [--limit
    SECONDS] [--only NAME ...]

Weights are random and drawn on the device in bfloat16; nothing is downloaded. Sections stand alone:
one that fails or outlasts its share of the limit says so, and the next begins. FILE is written
after each section. Without CUDA the same code runs on the CPU in float32 at a tiny shape, which
shows that it runs and measures nothing of a GPU.

The operations of a prompt of T tokens, the floor that shares of the peak refer to: 2·T for each
weight of the layers' products, and 2·T²·heads·width in each layer for causal attention; at 5,120
tokens 37.2 + 7.7 = 44.9 TFLOP. Training an adapter takes the products twice (forward, and backward
to the inputs; the base's weights have no gradient) and attention three times. What is computed
twice, padding and the head do not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gpu_bench.bench import FAIL, QWEN3_4B, SUCCESS, TINY, Bench
from gpu_bench.sections import about, finite, measured, release, show

from certify_assets.files import canonical_json, write_atomic
from certify_assets.judges.lm.adapters import attach_lora, quiet
from certify_assets.judges.lm.language_model import Encoded, Hardware, LanguageModel, uncompiled
from certify_assets.judges.lm.parity import engine_parity
from certify_assets.judges.lm.score import ScoringConfig, score_prompts

#: share of the measured peak, and times as fast
BARS = {"scoring": 0.60, "scoring_aim": 0.70, "sft": 0.40, "grpo": 8.0}


def matmul(bench: Bench) -> dict[str, Any]:
    """Measured peak: the median of products of random square matrices."""
    import torch

    size, device = bench.shape.matmul, bench.hardware.device
    a, b = (torch.randn((size, size), device=device).bfloat16() for _ in range(2))
    for _ in range(3):
        a @ b
    taken = statistics.median(
        bench.seconds(lambda: [a @ b for _ in range(5)]) / 5 for _ in range(9)
    )
    return {"size": size, "tflops": 2 * size**3 / taken / 1e12}


def scoring(bench: Bench) -> dict[str, Any]:
    """Prompts of full length, all alike, so that nothing is padded: the bar."""
    rows = bench.shape.rows // (3 if bench.quick else 1)
    return bench.score(bench.prompts([bench.shape.tokens] * rows))


def mixed(bench: Bench) -> dict[str, Any]:
    """Log-normal lengths: in batches of like length, and as they come, eight a batch, by
    transformers alone.
    """
    count = bench.shape.mixed_rows // (3 if bench.quick else 1)
    drawn = np.exp(bench.rng.normal(np.log(bench.shape.tokens / 4), 0.7, count))
    lengths = [int(length) for length in np.clip(drawn, bench.shape.shortest, bench.shape.tokens)]
    prompts = bench.prompts(lengths)
    found = {
        "sorted_padded": bench.score(prompts),
    }
    plain(bench, prompts[:8])
    taken = bench.seconds(lambda: plain(bench, prompts))
    padded = sum(
        max(lengths[place : place + 8]) * len(lengths[place : place + 8])
        for place in range(0, count, 8)
    )
    found["transformers"] = {
        "seconds": taken,
        "rows_per_second": count / taken,
        "padding": padded / sum(lengths) - 1,
    }
    found["mean_tokens"] = sum(lengths) / count
    found["over_transformers"] = (
        found["sorted_padded"]["rows_per_second"] / found["transformers"]["rows_per_second"]
    )
    return found


def plain(bench: Bench, prompts: list[Encoded]) -> None:
    """Read prompts as a script with transformers does: padded on the left as they come, with a
    mask, last logits kept.
    """
    import torch

    for place in range(0, len(prompts), 8):
        rows = [prompt.ids for prompt in prompts[place : place + 8]]
        width = max(map(len, rows))
        ids = bench.hardware.tensor([[0] * (width - len(row)) + list(row) for row in rows])
        mask = bench.hardware.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        with torch.inference_mode(), uncompiled():
            bench.judge.model(
                input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=1
            ).logits.float().cpu()


def ties(bench: Bench) -> dict[str, Any]:
    """Distinct scores with the head in float32 and in bfloat16, from the same bfloat16 layers."""
    import copy

    import torch

    count, tokens = bench.shape.ties
    prompts = bench.prompts([tokens] * count)
    judge = (
        bench.judge
        if bench.hardware.half
        else replace(bench.judge, model=copy.deepcopy(bench.judge.model).bfloat16())
    )
    full = score_prompts(judge, prompts, config=ScoringConfig()).score
    short = []
    for place in range(0, count, 16):
        ids = bench.hardware.tensor([list(prompt.ids) for prompt in prompts[place : place + 16]])
        with torch.inference_mode():
            logits = (
                judge.model(input_ids=ids, use_cache=False, logits_to_keep=1)
                .logits[:, -1]
                .bfloat16()
            )
        short += (logits[:, SUCCESS] - logits[:, FAIL]).float().tolist()
    return {
        "rows": count,
        "distinct_float32_head": len(set(full.tolist())),
        "distinct_bfloat16_head": len(set(short)),
    }


def sft(bench: Bench) -> dict[str, Any]:
    """Seconds of an optimizer step of SFT, 2 rows × 4; activations are computed twice only where
    memory runs out.
    """
    import torch

    try:
        return sft_steps(bench, recomputed=False)
    except torch.OutOfMemoryError:
        pass
    release()
    return sft_steps(bench, recomputed=True)


def sft_steps(bench: Bench, *, recomputed: bool) -> dict[str, Any]:
    from certify_assets.judges.lm.sft import SftConfig, train_sft

    steps, tokens, a_step = (2 if bench.quick else 4), bench.shape.tokens, 8
    config = SftConfig(rank=16, gradient_checkpointing=recomputed)
    prompts = bench.prompts([tokens - 1] * (a_step * (steps + 1)))
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        train_sft(
            bench.judge,
            prompts,
            [place % 2 for place in range(len(prompts))],
            Path(folder),
            config=config,
            progress=lambda *_: marks.append(time.perf_counter()),
        )
    taken = statistics.median(np.diff(marks).tolist())
    tflops = a_step * bench.shape.flops(tokens, linear=2, attention=3) / taken / 1e12
    return {
        "step_seconds": taken,
        "tflops": tflops,
        "mfu": tflops / bench.peak,
        "rank": 16,
        "rows_a_step": a_step,
        "recomputed": recomputed,
    }


@contextmanager
def with_lora(bench: Bench) -> Iterator[LanguageModel]:
    """Lend the model a random trainable adapter."""
    import torch

    model = attach_lora(bench.judge.model, rank=16, alpha=32, dropout=0.0, seed=0)
    try:
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(0, 0.01)
        yield replace(bench.judge, model=model.eval())
    finally:
        model.unload()
        for name in ("forward", "peft_config", "_hf_peft_config_loaded"):
            bench.judge.model.__dict__.pop(name, None)


def parity(bench: Bench) -> dict[str, Any]:
    """Padded rows and a merged adapter against rows alone and a separate one, on mixed lengths;
    and the same bits a second time.
    """
    lengths = np.linspace(bench.shape.shortest, bench.shape.tokens, 16).astype(int).tolist()
    prompts, config = (
        bench.prompts(lengths),
        ScoringConfig(token_budget=bench.shape.budget),
    )
    with with_lora(bench) as judge:
        found = engine_parity(judge, prompts, config=config).to_dict()
        first, again = (score_prompts(judge, prompts, config=config).score for _ in range(2))
    return {**found, "same_bits_twice": bool(np.array_equal(first, again))}


def grpo_settings(bench: Bench, **settings: Any) -> tuple[tuple[list[Encoded], list[int]], Any]:
    from certify_assets.judges.lm.grpo import GrpoConfig

    prompts = bench.prompts([bench.shape.tokens - 48] * 6)
    config = GrpoConfig(save_every=0, micro_tokens=2 * bench.shape.tokens, **settings)
    return (prompts, [place % 2 for place in range(6)]), config


def grpo_exact(bench: Bench) -> dict[str, Any]:
    """Seconds a prompt of exact GRPO."""
    from certify_assets.judges.lm.grpo import GrpoRun
    from certify_assets.judges.lm.reward import ARMS

    rows, config = grpo_settings(bench, steps=3 if bench.quick else 5)
    marks: list[float] = []
    with with_lora(bench) as judge, tempfile.TemporaryDirectory() as folder:
        GrpoRun(judge, *rows, ARMS["reject_3"], config).train(
            Path(folder), progress=lambda *_: marks.append(time.perf_counter())
        )
    return {
        "seconds_a_prompt": statistics.median(np.diff(marks).tolist()) / config.prompts_per_step
    }


def grpo_sampled(bench: Bench) -> dict[str, Any]:
    """Seconds a prompt of TRL with 8 samples: one token each, as of a judge that always answers,
    and 40, which a random judge uses up.
    """
    found: dict[str, Any] = {}
    for most in (1,) if bench.quick else (1, 40):
        found[f"seconds_a_prompt_{most}"] = sampled_seconds(bench, most)
        exact = bench.found.get("grpo_exact", {}).get("seconds_a_prompt")
        if exact:
            found[f"over_exact_{most}"] = found[f"seconds_a_prompt_{most}"] / exact
        # kept even where the longer one runs out of time
        bench.found["grpo_sampled"] = found
    return found


def sampled_seconds(bench: Bench, most: int) -> float:
    from transformers import TrainerCallback

    from certify_assets.judges.lm.grpo import GrpoRun, sampled_trainer
    from certify_assets.judges.lm.reward import ARMS

    rows, config = grpo_settings(
        bench, steps=2, prompts_per_step=1 if bench.quick else 2, max_completion_tokens=most
    )
    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            bench.wait()
            marks.append(time.perf_counter())

    with (
        with_lora(bench) as judge,
        tempfile.TemporaryDirectory() as folder,
        uncompiled(),
        quiet(),
        redirect_stdout(sys.stderr),
    ):
        trainer = sampled_trainer(GrpoRun(judge, *rows, ARMS["reject_3"], config), Path(folder))
        trainer.add_callback(Clock())
        trainer.train()
    return (marks[-1] - marks[0]) / (len(marks) - 1) / config.prompts_per_step


# the most telling first: a limit that is too short then costs the least; seconds each may take
SECTIONS: dict[Callable[[Bench], dict[str, Any]], int] = {
    matmul: 40,
    scoring: 110,
    mixed: 80,
    ties: 40,
    parity: 40,
    sft: 170,
    grpo_exact: 120,
    grpo_sampled: 100,
}


def verdicts(found: dict[str, Any]) -> dict[str, Any]:
    """Hold figures against the bars; None where one is missing."""
    over = found.get("grpo_sampled", {}).get("over_exact_1")
    mfu = found.get("sft", {}).get("mfu")
    share = found.get("scoring", {}).get("share_of_peak")
    return {
        "scoring_60_percent": None if share is None else share >= BARS["scoring"],
        "scoring_70_percent": None if share is None else share >= BARS["scoring_aim"],
        "sft_mfu_40_percent": None if mfu is None else mfu >= BARS["sft"],
        "exact_8_times": None if over is None else over >= BARS["grpo"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=["auto", "qwen3-4b", "tiny"], default="auto")
    parser.add_argument("--quick", action="store_true", help="fewer rows and steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, help="write JSON here after each section")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds for all of it")
    parser.add_argument("--only", nargs="+", choices=[section.__name__ for section in SECTIONS])
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    start = time.perf_counter()
    chosen = {
        "qwen3-4b": QWEN3_4B,
        "tiny": TINY,
        "auto": QWEN3_4B if Hardware.present().accelerated else TINY,
    }[arguments.shape]
    bench = Bench(chosen, quick=arguments.quick)
    head = about(bench)
    if not arguments.json:
        show("machine", head)
    for section, share in SECTIONS.items():
        name = section.__name__
        if arguments.only and name not in arguments.only:
            continue
        left = arguments.limit - (time.perf_counter() - start)
        found = (
            measured(bench, section, min(share, left)) if left > 5 else {"error": "no time left"}
        )
        bench.found[name] = finite(found)
        whole = {
            "machine": head,
            "sections": bench.found,
            "bars": verdicts(bench.found) if head["gpu_measured"] else None,
        }
        if arguments.out:
            write_atomic(arguments.out, canonical_json(whole))
        if not arguments.json:
            show(name, bench.found[name])
    if arguments.json:
        print(json.dumps(whole, indent=1))
    elif head["gpu_measured"]:
        show("bars", whole["bars"])
    if not head["gpu_measured"]:
        print(
            "no CUDA device at the shape of Qwen3-4B: the GPU figures are not measured.",
            file=sys.stderr if arguments.json else sys.stdout,
        )


if __name__ == "__main__":
    main()
