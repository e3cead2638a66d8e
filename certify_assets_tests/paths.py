"""Where tests find what is outside the package, and whether a picture shows anything."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_data(*parts: str) -> Path:
    """Return a path below the folder of published agent runs, or skip the test where that folder is absent."""
    path = (REPOSITORY / ".." / "shared" / "data").resolve().joinpath(*parts)
    if not path.exists():
        pytest.skip(f"published agent runs are not here: ../shared/data/{'/'.join(parts)}")
    return path


def benchmark(name: str) -> ModuleType:
    """Import a script of ``benchmarks/``."""
    spec = spec_from_file_location(f"benchmark_{name}", REPOSITORY / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    # dataclasses look their module up while it is executed
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_painted(picture: Path) -> None:
    """A screenshot shows something: many colours, none of them nearly everywhere."""
    from PIL import Image

    with Image.open(picture) as image:
        small = image.convert("RGB").resize((200, 200))
        colours = small.getcolors(maxcolors=40_000) or []
    assert len(colours) > 100
    assert max(often for often, _ in colours) < 0.9 * 200 * 200
