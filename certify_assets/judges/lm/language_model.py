"""A causal language model, and the hardware that it runs on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.errors import CertifyError, InputError, quoted

# seconds that a hub has for its first answer
_PATIENCE = 10.0
# weights from which compiled layers soon save more time than compiling takes
_LARGE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device and the type of the weights on it."""

    device: str = "cpu"
    dtype: str = "float32"

    @classmethod
    def present(cls) -> Hardware:
        """Return CUDA in bfloat16 if there is a device; otherwise the CPU in its fastest type."""
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
        """Whether to use fused optimizers and large batches: on CUDA."""
        # a CPU keeps to the reference
        return self.device == "cuda"

    @property
    def half(self) -> bool:
        """Whether training multiplies in bfloat16, the type of the weights."""
        return self.dtype == "bfloat16"

    def tensor(self, values: Sequence[Any]) -> Any:
        """Put numbers on the device, without waiting for the copy."""
        import torch

        found = torch.tensor(values)
        return found.pin_memory().to(self.device, non_blocking=True) if self.accelerated else found

    def free_memory(self) -> None:
        """Give the memory of a failed pass back to the device."""
        import torch

        if self.accelerated:
            torch.cuda.empty_cache()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt as token ids."""

    # the whole prompt, its verdict marker last: the next token is the verdict's first
    ids: tuple[int, ...]


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
    """Whether a name is that of a folder."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        # too long for a path, or with a null character
        return False


def files_of(source: str, revision: str | None) -> Files:
    """Find the files of a model, in a folder or at a hub by its commit."""
    if is_folder(source):
        return Files(source, {})
    if Path(source).is_absolute():
        raise InputError(
            f"{quoted(source)} is not a folder; give the folder of a model with config.json, "
            "tokenizer.json and .safetensors, or a hub name with its commit."
        )
    if revision is None:
        raise InputError(
            f"{source} is not a folder and has no revision; give the commit of the hub repository, "
            "so that the model can be loaded again."
        )
    _require_hub(source, revision)
    return Files(source, {"revision": revision})


@dataclass(frozen=True)
class Files:
    """Where transformers finds a model."""

    source: str
    keywords: Mapping[str, str]

    @property
    def revision(self) -> str:
        """The commit, or the hash of a folder's files."""
        return self.keywords.get("revision") or weights_sha256(Path(self.source))

    def tokenizer(self) -> Any:
        """Load the tokenizer."""
        from transformers import AutoTokenizer

        with _loading(self.source):
            return AutoTokenizer.from_pretrained(
                self.source, trust_remote_code=False, **self.keywords
            )

    def config(self) -> Any:
        """Load the configuration, without the weights."""
        from transformers import AutoConfig

        with _loading(self.source):
            return AutoConfig.from_pretrained(self.source, trust_remote_code=False, **self.keywords)

    def model(self, on: Hardware) -> Any:
        """Load the weights; refuse missing weights, and weights that are not finite numbers."""
        import torch
        from transformers import AutoModelForCausalLM

        # the type was asked for its speed, and rounding is a price that float32 ones never paid
        exact = on.device == "cpu" and self.config().dtype != torch.bfloat16
        with _loading(self.source):
            # the library declares a model alone, and returns what was loaded with it
            found: Any = AutoModelForCausalLM.from_pretrained(
                self.source,
                dtype=torch.float32 if exact else getattr(torch, on.dtype),
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                **self.keywords,
            )
            model, loaded = found
            _require_loaded(self.source, model.to(on.device).eval(), loaded)
        compile_layers(model, on)
        return model


def compile_layers(model: Any, on: Hardware) -> None:
    """Compile the layers of a large model on CUDA at their first call."""
    if on.accelerated and model.num_parameters() >= _LARGE:
        for layer in getattr(model.get_decoder(), "layers", ()):
            # prompts have many lengths
            layer.compile(dynamic=True)


def uncompiled() -> AbstractContextManager[Any]:
    """Run layers uncompiled within the block."""
    import torch

    eager: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return eager


@contextmanager
def _loading(source: str) -> Iterator[None]:
    """Turn errors of the libraries that read users' files into one sentence."""
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
    """Keep the library's progress bars and reports out of a log."""
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


def _reason_of(error: Exception) -> str:
    """Return the first line of a library's message, and the next if the first announces it."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    first, *more = said or [type(error).__name__]
    return (f"{first} {more[0]}" if first.endswith(":") and more else first).rstrip(".")


def _unloadable(source: str, error: Exception) -> InputError:
    return InputError(
        f"the model {source} cannot be loaded ({_reason_of(error)}); give a folder with "
        "config.json, tokenizer.json and .safetensors, or a hub name with its commit."
    )


def _require_loaded(source: str, model: Any, loaded: Mapping[str, Any]) -> None:
    """Refuse missing weights, which would be random, and weights that are not finite."""
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
                f"{source} has weights that are not finite numbers, {name} first; give a folder "
                "that was saved after a training that did not fail."
            )


def _require_hub(source: str, revision: str) -> None:
    """Refuse a commit that is neither stored here nor at the hub, which is asked once."""
    # each of the files would be asked for again and again, a minute without a network
    from huggingface_hub import HfApi, try_to_load_from_cache

    try:
        if try_to_load_from_cache(source, "config.json", revision=revision) is None:
            HfApi().model_info(source, revision=revision, timeout=_PATIENCE)
    except Exception as error:
        # errors of the hub's client come from several libraries
        raise _unloadable(source, error) from None


def weights_sha256(folder: Path) -> str:
    """Hash the files that make a local model: names, sizes and bytes of weights and settings."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")]):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
