"""The compact model's own tokenizer: byte-level BPE learnt from its pretraining runs, verdicts one token each, a chat template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from certify_assets.errors import InputError
from certify_assets.judges.lm.prompt import AuditorPrompt

__all__ = ["CHAT_TEMPLATE", "END", "PAD", "START", "train_tokenizer"]

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# words, numbers of up to three digits, runs of other signs, blanks before a line break: a number never joins a word
_PIECES = r"\n ?| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]{1,3}|\s+(?!\S)|\s"


def train_tokenizer(texts: Iterable[str], prompt: AuditorPrompt, *, size: int = 4096) -> Any:
    """Learn a tokenizer; the same texts in the same order give the same tokenizer.

    Parameters
    ----------
    texts : iterable of str
        Rendered runs.
    prompt : AuditorPrompt
        Its words are learnt as well, and its verdicts become one token each.
    size : int
        Tokens in all.

    Returns
    -------
    transformers.PreTrainedTokenizerFast

    Raises
    ------
    InputError
        If a verdict did not become one token: the size is too small.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    inner.decoder = decoders.ByteLevel()
    corpus = list(texts)
    said = "\n".join(
        (
            prompt.system,
            prompt.opening,
            prompt.closing,
            prompt.marker + prompt.success,
            prompt.marker + prompt.fail,
        )
    )
    # often enough to be learnt first, whatever the size of the corpus
    corpus += [said] * max(10, len(corpus) // 5)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, START, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(corpus, trainer)
    # transformers leaves it untyped
    fast: Any = PreTrainedTokenizerFast
    tokenizer = fast(
        tokenizer_object=inner,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    for word in prompt.words:
        if len(tokenizer.encode(prompt.marker + word)) != len(tokenizer.encode(prompt.marker)) + 1:
            raise InputError(
                f"the verdict {word!r} is not one of {size} tokens; make the tokenizer larger."
            )
    return tokenizer
