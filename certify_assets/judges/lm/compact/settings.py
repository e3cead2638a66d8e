"""What the compact model is made from: settings, tokenizer and runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.embedded import EMBEDDED, PRETRAINING_TASKS, load_embedded
from certify_assets.errors import InputError, require_whole
from certify_assets.files import canonical_json, read_json, sha256_bytes
from certify_assets.judges.lm.prompt import AuditorPrompt

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class CompactSettings:
    """Settings of the compact model and its pretraining."""

    layers: int = 4
    hidden: int = 160
    heads: int = 5
    key_value_heads: int = 5
    intermediate: int = 480
    head_dim: int = 32  # the smallest that vLLM serves
    vocabulary: int = 3072
    # tokens of the longest prompt in pretraining; the positions are rotary, so longer prompts can
    # be read
    context: int = 768
    epochs: int = 2
    batch_tokens: int = 4096
    # peak of AdamW's rate, its decay of matrices, and the share of steps before the peak; the rate
    # then falls in a line to 0
    learning_rate: float = 4e-3
    weight_decay: float = 0.1
    warmup: float = 0.05
    seed: int = 42
    # threads of torch: sums are taken in another order for another number, so it is part of the
    # recipe
    threads: int = 1

    def __post_init__(self) -> None:
        require_whole(
            self,
            "the compact model's {name}",
            layers=1,
            hidden=1,
            heads=1,
            key_value_heads=1,
            intermediate=1,
            vocabulary=1,
            context=1,
            epochs=1,
            batch_tokens=1,
            threads=1,
        )
        if self.heads % self.key_value_heads:
            raise InputError(
                f"{self.heads} heads cannot share {self.key_value_heads} heads of keys; give a "
                "divisor."
            )
        if self.head_dim not in (32, 64, 80, 96, 112, 128):
            raise InputError(
                f"the compact model's head_dim is {self.head_dim!r}; give 32, 64, 80, 96, 112 or "
                "128, which servers support."
            )

    @property
    def sha256(self) -> str:
        """Hash of the settings."""
        return sha256_bytes(canonical_json(asdict(self)))


@dataclass(frozen=True, kw_only=True)
class CompactProvenance:
    """How the compact model came about; stored next to it as provenance.json."""

    schema: str = "certify_assets/compact_model/2"
    what: str = (
        "A small causal language model of the Qwen3 architecture that judges runs of agents; "
        "built by `python -m certify_assets.research.build_compact --out DIR` on the next tokens "
        "of runs of the pretraining tasks; no verdict and no outcome was in them."
    )
    settings: dict[str, int | float]
    prompt: dict[str, str]
    renderer_sha256: str
    pretraining_tasks: list[str]
    steps: int
    loss_curve: list[dict[str, float]]
    versions: dict[str, str]
    parameters: int
    runs: int
    tokens: int
    texts_sha256: str
    runs_file_sha256: str
    files: dict[str, str]  # SHA-256 of every file but this one

    @classmethod
    def read(cls, path: Path) -> CompactProvenance:
        """Read it from its file."""
        document = read_json(path)
        try:
            return cls(**document)
        except TypeError:
            raise InputError(
                f"{path} is not the provenance of a compact model; install the package again."
            ) from None


PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# words, numbers of up to three digits, runs of other signs, blanks before a line break: a number
# never joins a word
_PIECES = r"\n ?| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]{1,3}|\s+(?!\S)|\s"


def train_tokenizer(texts: Iterable[str], prompt: AuditorPrompt, *, size: int = 4096) -> Any:
    """Learn a tokenizer; the same texts in the same order give the same tokenizer."""
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


RUNS_FILE = Path(__file__).with_name("runs.parquet")


def pretraining_runs(runs: Path = RUNS_FILE) -> pd.DataFrame:
    """Return the labelled runs of the pretraining tasks, sorted by id."""
    import pandas as pd

    from certify_assets.corpora.schema import read_trajectories

    frame = pd.concat([*map(load_embedded, EMBEDDED), read_trajectories(runs)], ignore_index=True)
    frame = frame[frame["task_id"].isin(PRETRAINING_TASKS) & frame["outcome"].notna()]
    return frame.sort_values("trajectory_id", kind="stable").reset_index(drop=True)
