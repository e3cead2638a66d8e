"""CPU time of exact GRPO and of TRL's sampled one, a prompt, on a random judge of the compact
model's size.

    python benchmarks/exact_grpo.py [--steps 2] [--tokens 448] [--quick]

Qwen3 with 4 layers of width 160, a vocabulary of 4,096 and LoRA on all linear layers; float32, one
thread, 8 samples a prompt. TRL runs twice: with one token a completion, as if the judge always
answered with a verdict, and with the paper's 40, which a random judge uses up. CPU time of training
steps alone, the first step left out. Ratios carry over to other machines, times do not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from certify_assets.judges.lm.contract import Encoded, LanguageModel
from certify_assets.judges.lm.exact_grpo import train_exact
from certify_assets.judges.lm.grpo_config import GrpoConfig
from certify_assets.judges.lm.rewards import ARMS
from certify_assets.judges.lm.trl_grpo import make_trainer

# the random judge belongs to the tests, which are in the repository and in no installation
sys.path.append(str(Path(__file__).resolve().parent.parent))
from certify_assets_tests.judges.lm.tiny import tiny_judge, with_adapter

ARM = ARMS["reject_3"]


def judge() -> LanguageModel:
    """A random judge of the compact model's size with a random adapter."""
    shape = {
        "hidden_size": 160,
        "intermediate_size": 480,
        "num_hidden_layers": 4,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
    }
    return with_adapter(
        tiny_judge(words=4096, head_dim=32, max_position_embeddings=1024, **shape), rank=16
    )


def seconds(marks: list[float], prompts: int) -> float:
    """CPU seconds a prompt, from the clock after each step."""
    return (marks[-1] - marks[0]) / (len(marks) - 1) / prompts


def exact(rows: tuple[list[Encoded], list[int]], config: GrpoConfig) -> float:
    marks: list[float] = []
    train_exact(
        judge(), *rows, arm=ARM, config=config, progress=lambda _: marks.append(time.process_time())
    )
    return seconds(marks, config.prompts_per_step)


def sampled(rows: tuple[list[Encoded], list[int]], config: GrpoConfig) -> float:
    from transformers import TrainerCallback

    marks: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            marks.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(judge(), *rows, arm=ARM, config=config, folder=Path(folder))
        trainer.add_callback(Clock())
        trainer.train()
    return seconds(marks, config.prompts_per_step)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=448)
    parser.add_argument("--quick", action="store_true", help="one step, 48 tokens")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    steps, tokens = (1, 48) if arguments.quick else (arguments.steps, arguments.tokens)
    rng = np.random.default_rng(0)
    prompts = [Encoded(tuple(rng.integers(4, 4096, tokens).tolist())) for _ in range(8)]
    rows = (prompts, [place % 2 for place in range(8)])
    config = {"steps": steps + 1, "prompts_per_step": 2, "save_every": 0}
    base = exact(rows, GrpoConfig(**config))
    print(
        f"prompts of {tokens} tokens, {steps} steps of 2 prompts, CPU seconds a prompt\n  exact   "
        f"     {base:.3f}",
        flush=True,
    )
    for most in (1, 40):
        found = sampled(rows, GrpoConfig(**config, max_completion_tokens=most))
        print(
            f"  TRL, {most:2} token{'s' if most > 1 else ' '} {found:.3f}   {found / base:.1f} "
            f"times",
            flush=True,
        )


if __name__ == "__main__":
    main()
