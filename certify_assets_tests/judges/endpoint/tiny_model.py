"""A random Qwen3 with a tokenizer and LoRA weights, small enough to serve in seconds."""

from pathlib import Path

from certify_assets_tests.judges.lm.models import tiny_qwen3

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
    folder.mkdir(parents=True, exist_ok=True)
    size = _write_tokenizer(folder)
    sizes = {"intermediate_size": 128, "max_position_embeddings": 1024, "eos_token_id": 2}
    model = tiny_qwen3(7, vocab_size=size, initializer_range=0.3, **sizes)
    model.save_pretrained(folder, safe_serialization=True)
    return folder
