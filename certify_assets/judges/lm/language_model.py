"""What a causal language model is here, and the machine that it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.errors import CertifyError, InputError, quoted

# seconds that a hub has for its first answer
_PATIENCE = 10.0
# tokens of a verdict: it is a word or two
_LONGEST_VERDICT = 16


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device and the type of the weights on it."""

    device: str = "cpu"
    dtype: str = "float32"

    @classmethod
    def present(cls) -> Hardware:
        """Return CUDA where there is a device, in bfloat16; a CPU in what it multiplies fastest."""
        import torch

        if torch.cuda.is_available():
            return cls("cuda", "bfloat16")
        # without such instructions bfloat16 is emulated, slower than float32
        known = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        fast = any(getattr(torch.cpu, name, bool)() for name in known)
        return cls(dtype="bfloat16" if fast else "float32")

    @classmethod
    def of(cls, model: Any) -> Hardware:
        """Return the device of a model, and the type of its first weight."""
        weight = next(model.parameters())
        return cls(weight.device.type, str(weight.dtype).removeprefix("torch."))

    @property
    def accelerated(self) -> bool:
        """Whether optimizers are fused and batches large: on CUDA."""
        # a CPU keeps to the reference
        return self.device == "cuda"

    @property
    def half(self) -> bool:
        """Whether products of a training run in bfloat16, as the weights are."""
        return self.dtype == "bfloat16"

    def tensor(self, values: Sequence[Any]) -> Any:
        """Put numbers on the device, without waiting for the copy."""
        import torch

        found = torch.tensor(values)
        return found.pin_memory().to(self.device, non_blocking=True) if self.accelerated else found

    def free_memory(self) -> None:
        """Give memory that a failed pass left behind back to the device."""
        import torch

        if self.accelerated:
            torch.cuda.empty_cache()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as token ids."""

    # the whole prompt, its verdict marker last: the next token is the verdict's first
    ids: tuple[int, ...]
    cut_tokens: int = 0  # tokens of the body that were cut from its middle to fit the budget


@dataclass(frozen=True, slots=True)
class VerdictTokens:
    """The two verdicts as token ids, as they follow the marker; mostly one token each."""

    # neither is a prefix of the other
    success: tuple[int, ...]
    fail: tuple[int, ...]

    @property
    def single(self) -> bool:
        """Whether each verdict is one token."""
        return len(self.success) == len(self.fail) == 1


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model with its tokenizer, ready to be read at one position."""

    model: Any
    tokenizer: Any
    verdicts: VerdictTokens
    source: str  # name at a model hub, or "compact", or the last part of a folder's path
    # commit of the hub repository, or the SHA-256 of the weights of a local model: part of every
    # provenance
    revision: str


def is_folder(name: str) -> bool:
    """Whether a name is a folder's."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        # too long for a path, or with a null character
        return False


def verdict_tokens(tokenizer: Any, marker: str, words: Sequence[str]) -> VerdictTokens:
    """Return the tokens of two words as they follow the marker."""
    control = set(tokenizer.all_special_ids)
    before = list(tokenizer.encode(marker, add_special_tokens=False))
    found = []
    for word in words:
        whole = list(tokenizer.encode(marker + word, add_special_tokens=False))
        if whole[: len(before)] != before or len(whole) == len(before):
            raise InputError(
                f"the verdict {word!r} is joined to the marker {marker!r} by this tokenizer; end "
                "the marker with another character, or begin the verdict with a space."
            )
        found.append(tuple(whole[len(before) :]))
        if not control.isdisjoint(found[-1]):
            raise InputError(
                f"the verdict {quoted(word)} holds a control token of this tokenizer; choose "
                "another word."
            )
        if len(found[-1]) > _LONGEST_VERDICT:
            raise InputError(
                f"the verdict {quoted(word)} has {len(found[-1])} tokens; choose a word of at most "
                f"{_LONGEST_VERDICT}."
            )
    success, fail = found
    shorter = min(len(success), len(fail))
    if success[:shorter] == fail[:shorter]:
        raise InputError(
            f"the verdicts {words[0]!r} and {words[1]!r} are the tokens {success} and {fail} of "
            "this tokenizer, where one begins the other; choose other words for the verdicts."
        )
    return VerdictTokens(success, fail)


def load_language_model(
    source: str | Path,
    *,
    revision: str | None = None,
    on: Hardware | None = None,
    marker: str = "VERDICT:",
    words: Sequence[str] = (" SUCCESS", " FAIL"),
) -> LanguageModel:
    """Load a causal language model from a hub by name, or from a folder; by default on a CPU.

    Raises
    ------
    InputError
        When there is no such model, its files cannot be read or lack weights, or the words cannot
        be told apart by its tokenizer.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    on, folder, local = on or Hardware(), Path(source), is_folder(str(source))
    if local:
        _require_weights(folder)
    tokenizer = load_tokenizer_files(str(source), revision)
    # read in a moment, as weights are not: refuse words that it cannot tell apart
    verdicts = verdict_tokens(tokenizer, marker, words)
    with _loading(source):
        config = AutoConfig.from_pretrained(str(source), **_keywords(source, revision))
        # the type was asked for its speed, and rounding is a price that these never paid
        exact = on.device == "cpu" and config.dtype != torch.bfloat16
        # the library declares a model alone, and returns what was loaded with it
        found: Any = AutoModelForCausalLM.from_pretrained(
            str(source),
            dtype=torch.float32 if exact else getattr(torch, on.dtype),
            use_safetensors=True,
            output_loading_info=True,
            **_keywords(source, revision),
        )
        model, loaded = found
        _require_loaded(source, model.to(on.device).eval(), loaded)
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        verdicts=verdicts,
        source=folder.name if local else str(source),
        revision=weights_sha256(folder) if local else str(revision),
    )


def load_tokenizer_files(source: str, revision: str | None) -> Any:
    """Load a tokenizer from a folder, or from a hub by its commit."""
    from transformers import AutoTokenizer

    if not is_folder(source):
        if Path(source).is_absolute():
            raise InputError(
                f"{quoted(source)} is no folder; give the folder of a model with config.json, "
                "tokenizer.json and .safetensors, or a hub name with its commit."
            )
        if revision is None:
            raise InputError(
                f"{source} is no folder and has no revision; give the commit of the hub "
                "repository, so that the model can be loaded again."
            )
        require_hub(source, revision)
    with _loading(source):
        return AutoTokenizer.from_pretrained(source, **_keywords(source, revision))


def _keywords(source: str | Path, revision: str | None) -> dict[str, Any]:
    safe = {"trust_remote_code": False}
    return safe if is_folder(str(source)) else {**safe, "revision": revision}


@contextmanager
def _loading(source: str | Path) -> Iterator[None]:
    """Turn what fails in the libraries that read somebody's files into a sentence."""
    import torch

    try:
        with _quiet():
            yield
    except (CertifyError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "allocate memory" in str(error):
            raise
        raise _unloadable(source, error) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's bars and reports out of a log: an error says what is wrong."""
    from transformers.utils import logging

    disable_bar: Any = logging.disable_progress_bar
    disable_bar()
    shown = logging.get_verbosity()
    quiet: Any = logging.set_verbosity_error
    quiet()
    try:
        yield
    finally:
        logging.set_verbosity(shown)


def reason_of(error: Exception) -> str:
    """Return the first line of a library's message, and the next where that announces it."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    first, *more = said or [type(error).__name__]
    return (f"{first} {more[0]}" if first.endswith(":") and more else first).rstrip(".")


def _unloadable(source: str | Path, error: Exception) -> InputError:
    return InputError(
        f"the model {source} cannot be loaded ({reason_of(error)}); give a folder with "
        "config.json, tokenizer.json and .safetensors, or a hub name with its commit."
    )


def _require_loaded(source: str | Path, model: Any, loaded: Mapping[str, Any]) -> None:
    """Refuse weights that are missing, which are random numbers then, or no numbers."""
    missing = sorted(loaded["missing_keys"])
    if missing:
        raise InputError(
            f"{source} lacks {len(missing)} of the weights that its config.json names, "
            f"{missing[0]} first; give a folder in which they belong together."
        )
    import torch

    for name, weights in model.named_parameters():
        # one number a tensor: no copy of it is made
        if not torch.isfinite(weights.detach().sum(dtype=torch.float32)):
            raise InputError(
                f"{source} has weights that are no finite numbers, {name} first; give a folder "
                "that was saved after a training that did not fail."
            )


def require_hub(source: str, revision: str) -> None:
    """Refuse a commit that is neither kept here nor at the hub, which is asked once."""
    # each of the files would be asked for again and again, a minute without a network
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if try_to_load_from_cache(source, "config.json", revision=revision) is None:
            HfApi().model_info(source, revision=revision, timeout=_PATIENCE)
    except Exception as error:
        # errors of the hub's client come from several libraries
        raise _unloadable(source, error) from None


def _require_weights(folder: Path) -> None:
    """Refuse a folder without safetensors, and say where its weights are pickled."""
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for end in ("bin", "pt", "pth") for path in folder.glob(f"*.{end}"))
    raise InputError(
        f"{folder / pickled[0]} is pickled, which can run code and is refused; save the model with "
        "safetensors."
        if pickled
        else f"{folder} has no .safetensors; give the folder of a model that was saved with "
        "safetensors."
    )


def weights_sha256(folder: Path) -> str:
    """Hash the files that make a local model: names, sizes and bytes of weights and settings."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
