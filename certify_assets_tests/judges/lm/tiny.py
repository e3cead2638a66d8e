"""A random language model with random rows, for tests of training."""

from dataclasses import replace

import numpy as np

from certify_assets.judges.lm.grpo import GrpoConfig, verdict_log_probs
from certify_assets.judges.lm.language_model import Encoded, LanguageModel, VerdictTokens
from certify_assets_tests.judges.lm.models import tiny_qwen3, with_lora

WORDS = 40
_SPECIAL = ["<pad>", "<eos>", "SUCCESS", "FAIL"]
#: words that a successful run has more often
SUCCESS_WORDS = tuple(range(4, 12))


def tiny_judge(*, seed: int = 0, taught: int = 0) -> LanguageModel:
    """Return a random Qwen3 with a tokenizer of words.

    ``taught`` steps let it answer with a verdict, of no particular kind.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    names = [*_SPECIAL, *(f"w{place}" for place in range(WORDS - len(_SPECIAL)))]
    base = Tokenizer(WordLevel({word: place for place, word in enumerate(names)}, unk_token="w0"))
    base.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=base, pad_token="<pad>", eos_token="<eos>", unk_token="w0"
    )
    sizes = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 16}
    model = tiny_qwen3(seed, vocab_size=WORDS, initializer_range=0.1, **sizes)
    judge = LanguageModel(model, tokenizer, VerdictTokens((2,), (3,)), "tiny", str(seed))
    if taught:
        _teach(judge, *random_rows(64, seed=seed + 100, noise=0.5), steps=taught)
    return judge


def _teach(
    judge: LanguageModel, prompts: list[Encoded], outcomes: list[int], *, steps: int
) -> None:
    """Lower the cross-entropy of the verdicts."""
    import torch

    weights = list(judge.model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=1e-2, weight_decay=0.0)
    order = GrpoConfig(steps=steps, prompts_per_step=16).order(len(prompts))
    for step in range(steps):
        rows = order[16 * step : 16 * step + 16]
        width = max(len(prompts[row].ids) for row in rows)
        ids = [[*prompts[row].ids] + [0] * (width - len(prompts[row].ids)) for row in rows]
        inputs = {
            "input_ids": torch.tensor(ids),
            "ends": torch.tensor([len(prompts[row].ids) - 1 for row in rows]),
        }
        log_probs = verdict_log_probs(judge.model, inputs, (2, 3))
        places = torch.tensor([[1 - outcomes[row]] for row in rows])
        (-log_probs.gather(1, places).mean()).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()


def with_adapter(judge: LanguageModel, *, seed: int = 1, started: bool = True) -> LanguageModel:
    """Return the judge with a trainable LoRA adapter; a started one does something."""
    model = with_lora(judge.model, seed=seed, spread=0.05 if started else 0)
    return replace(judge, model=model.eval())


def random_rows(
    count: int, *, seed: int = 0, noise: float = 0.2
) -> tuple[list[Encoded], list[int]]:
    """Rows of random words whose outcome a few words tell, most of the time."""
    rng = np.random.default_rng(seed)
    prompts, outcomes = [], []
    for _ in range(count):
        outcome = int(rng.random() < 0.5)
        shown = outcome if rng.random() >= noise else 1 - outcome
        words = rng.integers(12, WORDS, rng.integers(5, 20))
        words[:3] = rng.choice(SUCCESS_WORDS[:4] if shown else SUCCESS_WORDS[4:], 3)
        prompts.append(Encoded(tuple(int(word) for word in words)))
        outcomes.append(outcome)
    return prompts, outcomes
