"""A random Qwen3 with a tokenizer and LoRA weights, small enough to serve in seconds."""

from pathlib import Path

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _write_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = [
        "VERDICT: SUCCESS",
        "VERDICT: FAIL",
        "P_SUCCESS=0",
        "SUCCESS",
        "FAIL",
        "step click button the page the run",
    ]
    tokenizer.train_from_iterator(lines * 50, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=TEMPLATE,
        model_max_length=1024,
    )
    fast.save_pretrained(folder)
    return len(fast)


def write_tiny_model(folder: Path) -> Path:
    """Write a Qwen3 of two layers with random weights and logits wide enough to differ."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    size = _write_tokenizer(folder)
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.3,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def write_tiny_adapter(model: Path, folder: Path) -> Path:
    """Write LoRA weights of rank 4 on every linear layer, not zero as a fresh adapter would be."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(8)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    adapted = get_peft_model(
        base, LoraConfig(r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
    )
    for name, weights in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.1)
    adapted.save_pretrained(folder)
    return folder
