"""A small source of every format, written by hand. A module a format, named as the format is, with

``write(root, canary)``: writes the source below a folder and puts the canary, where there is one,
into every field on the outcome or the solution that could hold text; the runs stay readable.
``COUNTS``: trajectories, tasks and successes that its import has, and what it drops.
"""

import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

CANARY = "canary7319secret"


@dataclass(frozen=True)
class Counts:
    """What the import of a hand-made source must give; files of other formats are not compared."""

    trajectories: int
    tasks: int
    successes: int
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    name: str
    write: Callable[[Path, str | None], None]
    counts: Counts


def load_formats() -> list[Format]:
    modules = [
        (item.name, import_module(f"{__name__}.{item.name}")) for item in iter_modules(__path__)
    ]
    return [Format(name, module.write, module.COUNTS) for name, module in modules]


def pack(root: Path, target: Path) -> Path:
    """Pack a folder as a .tar.gz or .zip archive, by the target's name."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
            for path in files:
                zipped.write(path, path.relative_to(root).as_posix())
    else:
        with tarfile.open(target, "w:gz") as packed:
            for path in files:
                packed.add(path, path.relative_to(root).as_posix())
    return target
