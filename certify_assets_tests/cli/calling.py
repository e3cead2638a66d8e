"""What a call of the command gives back."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Answer", "Call"]


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Answer]
