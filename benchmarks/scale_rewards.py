"""What scaling rewards by a group's standard deviation does to λ and μ, and what the optima of the
reward are.

    python benchmarks/scale_rewards.py [--steps 6] [--quick]

First, for every arm: the probability of success above which the verdict success earns more, and
where abstaining would earn most if it cost nothing. Second, with TRL on a small random judge that
answers with verdicts: the distance between the LoRA weights after training with μ = 1 and with μ =
5 (λ = 1, the same seed, so the same first samples), for each way of scaling rewards, and next to it
how far training itself went. No gradient is clipped, as clipping is a scaling of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from certify_assets.judges.lm.grpo_config import GrpoConfig
from certify_assets.judges.lm.rewards import ARMS, Arm
from certify_assets.judges.lm.trl_grpo import train_trl

# the random judge belongs to the tests, which are in the repository and in no installation
sys.path.append(str(Path(__file__).resolve().parent.parent))
from certify_assets_tests.judges.lm.tiny import random_rows, tiny_judge, with_adapter


def threshold(arm: Arm) -> float:
    """Probability of success above which success earns more: (1 + λ)/(2 + λ + μ)."""
    return (1 + arm.lam) / (2 + arm.lam + arm.mu)


def abstention(arm: Arm, unparsed: float) -> tuple[float, float] | None:
    """Return the interval of P(success) where no verdict earns most; None if there is none."""
    # with q = P(success), success earns q − (1 − q)λ and failure (1 − q) − qμ; at a reward of 0
    # the interval is (1/(1 + μ), λ/(1 + λ))
    low = max(0.0, (1 - unparsed) / (1 + arm.mu))
    high = min(1.0, (unparsed + arm.lam) / (1 + arm.lam))
    return (low, high) if low < high else None


def optima() -> None:
    print("arm         success pays above   abstaining at a reward of 0 pays in")
    for arm in ARMS.values():
        interval = abstention(arm, 0.0)
        words = "nowhere" if interval is None else f"({interval[0]:.3f}, {interval[1]:.3f})"
        print(f"{arm.name:11} {threshold(arm):.3f}                {words}")


def trained(mu: float, scale: str, steps: int, prompts: int) -> tuple[Any, Any]:
    """LoRA weights before and after training."""
    import torch

    judge = with_adapter(tiny_judge(taught=30), started=True)
    weights = [weight for weight in judge.model.parameters() if weight.requires_grad]
    before = torch.cat([weight.detach().flatten().clone() for weight in weights])
    config = GrpoConfig(
        steps=steps,
        prompts_per_step=prompts,
        learning_rate=1e-3,
        scale_rewards=scale,
        max_grad_norm=0.0,
        save_every=0,
        schedule="constant",
    )
    with tempfile.TemporaryDirectory() as folder:
        train_trl(
            judge, *random_rows(36), arm=Arm("x", 1.0, mu), config=config, folder=Path(folder)
        )
    return before, torch.cat([weight.detach().flatten() for weight in weights])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="one step of four prompts, two scales")
    arguments = parser.parse_args()
    import torch

    # waiting threads would count as CPU time where other processes run
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    optima()
    steps, prompts = (1, 4) if arguments.quick else (arguments.steps, GrpoConfig().prompts_per_step)
    print(
        f"LoRA weights after {steps} steps of TRL: distance of mu = 5 from mu = 1, and length of "
        f"the way at mu = 1"
    )
    for scale in ("group", "none") if arguments.quick else ("group", "batch", "none"):
        (start, one), (_, five) = (trained(mu, scale, steps, prompts) for mu in (1.0, 5.0))
        print(
            f"  {scale:6} {float((five - one).norm()):.6f}   {float((one - start).norm()):.6f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
