"""What the device of a model lets its judge do: the one place that tells a CPU from CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

__all__ = ["Hardware"]


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device and the type of the weights on it.

    Parameters
    ----------
    device : str
        "cpu" or "cuda".
    dtype : str
        "float32" or "bfloat16".
    """

    device: str = "cpu"
    dtype: str = "float32"

    @classmethod
    def present(cls) -> Hardware:
        """Return CUDA in bfloat16 where there is a device, a CPU in float32 otherwise."""
        import torch

        return cls("cuda", "bfloat16") if torch.cuda.is_available() else cls()

    @classmethod
    def of(cls, model: Any) -> Hardware:
        """Return the device that a model lies on, and the type of its first weight."""
        weight = next(model.parameters())
        return cls(weight.device.type, str(weight.dtype).removeprefix("torch."))

    @property
    def accelerated(self) -> bool:
        """Whether rows are packed, adapters merged and optimizers fused: on CUDA; a CPU keeps to the reference."""
        return self.device == "cuda"

    @property
    def half(self) -> bool:
        """Whether products of a training run in bfloat16: bfloat16 weights on CUDA."""
        return self.accelerated and self.dtype == "bfloat16"

    @property
    def distributed(self) -> bool:
        """Whether other processes train with this one."""
        import torch

        return bool(
            torch.distributed.is_available()
            and torch.distributed.is_initialized()
            and torch.distributed.get_world_size() > 1
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a context in which float32 adapters multiply in the type of the weights."""
        import torch

        return torch.autocast(self.device, dtype=torch.bfloat16) if self.half else nullcontext()

    def optimizer(self) -> dict[str, Any]:
        """Return the keywords of torch's optimizers that suit the device."""
        return {"fused": True} if self.accelerated else {}

    def compiler(self) -> dict[str, Any]:
        """Return the keywords of torch.compile: code for CUDA; on a CPU layers are traced alone, which shows that they can be."""
        return {"dynamic": True} if self.accelerated else {"dynamic": True, "backend": "eager"}

    def tensor(self, values: Sequence[Any], dtype: Any = None) -> Any:
        """Put numbers on the device, without waiting for the copy."""
        import torch

        found = torch.tensor(values, dtype=dtype)
        return found.pin_memory().to(self.device, non_blocking=True) if self.accelerated else found

    def free_memory(self) -> None:
        """Give memory that a failed pass left behind back to the device."""
        import torch

        if self.accelerated:
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        """Wait for the device."""
        import torch

        if self.accelerated:
            torch.cuda.synchronize()
