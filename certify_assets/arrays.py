"""Types of arrays, by what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Booleans: TypeAlias = NDArray[np.bool_]
Objects: TypeAlias = NDArray[np.object_]
#: a name a row, of a task or an agent: text or numbers
Names: TypeAlias = Sequence[Any] | NDArray[Any]
