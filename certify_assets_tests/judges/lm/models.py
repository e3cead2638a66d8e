"""Tiny language models with random weights, and a tokenizer of their own."""

from typing import Any

import numpy as np

from certify_assets.judges.lm.language_model import Encoded, LanguageModel, VerdictTokens

SUCCESS, FAIL = 3, 4


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(
        models.BPE(vocab={f"{chr(97 + place)}": place for place in range(26)}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="a", eos_token="b")


#: of both kinds of models
_SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "tie_word_embeddings": True,
    "initializer_range": 0.2,
}


def tiny_qwen3(seed: int = 0, *, layers: int = 2, **sizes: Any) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    ends = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    config = Qwen3Config(
        num_hidden_layers=layers,
        **{**_SIZES, **ends, "max_position_embeddings": 512, **sizes},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).eval()


def with_lora(model: Any, *, seed: int, spread: float) -> Any:
    """Return the model with a trainable LoRA adapter on every linear layer; one of spread 0 does nothing."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed)
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=names, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, settings)
    for name, weights in adapted.named_parameters():
        if spread and "lora_B" in name:
            torch.nn.init.normal_(weights, std=spread)
    return adapted


def tiny_qwen3_5(seed: int = 0) -> Any:
    """Three layers of linear attention and one of full attention, as in the hybrid models."""
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    config = Qwen3_5TextConfig(
        **_SIZES,
        num_hidden_layers=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3_5ForCausalLM(config).eval()


def judge(
    model: Any, *, success: tuple[int, ...] = (SUCCESS,), fail: tuple[int, ...] = (FAIL,)
) -> LanguageModel:
    return LanguageModel(
        model=model,
        tokenizer=tokenizer(),
        verdicts=VerdictTokens(success, fail),
        source="tiny",
        revision="f" * 64,
    )


def prompts(count: int, seed: int = 0, *, longest: int = 60) -> list[Encoded]:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(5, longest, count)
    return [Encoded(tuple(generator.integers(5, 96, length).tolist())) for length in lengths]
