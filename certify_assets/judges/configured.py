"""The judges that users add: one YAML document in the data root, or where CERTIFY_JUDGES says. Every judge of it is read by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.errors import CertifyError, InputError
from certify_assets.storage.store import Store, default_root

if TYPE_CHECKING:
    from certify_assets.judges.endpoint.config import EndpointConfig

__all__ = ["FILE", "VARIABLE", "Configured", "configured_judges"]

FILE = "judges.yaml"
VARIABLE = "CERTIFY_JUDGES"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class Configured:
    """What the document holds.

    Parameters
    ----------
    judges : mapping of str to EndpointConfig
        Those that can be used, in the order of the document.
    problems : tuple of str
        A sentence on each that cannot, or on the document.
    """

    judges: Mapping[str, EndpointConfig] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def configured_judges(root: str | None = None, *, taken: tuple[str, ...] = ()) -> Configured:
    """Read the judges that users added; what is wrong with the document comes back as sentences, so that other judges go on.

    Parameters
    ----------
    root : str, optional
        The data root; this process's by default.
    taken : tuple of str
        Names that others have.
    """
    where = os.environ.get(VARIABLE) or f"{root or default_root()}/{FILE}"
    try:
        entries = _entries(where, _text(where, root))
    except CertifyError as error:
        return Configured(problems=(str(error),))
    judges: dict[str, EndpointConfig] = {}
    problems = []
    for number, entry in enumerate(entries, 1):
        called = f"{where}, judge {number}"
        try:
            name = _name(entry, {*taken, *judges})
            called = f"{where}, judge {name!r}"
            judges[name] = _parsed(entry)
        except InputError as error:
            problems.append(f"{called}: {error}")
    return Configured(judges, tuple(problems))


def _text(where: str, root: str | None) -> str | None:
    """Return the document, or None where none was written."""
    try:
        if os.environ.get(VARIABLE):
            return Path(where).read_text(encoding="utf-8")
        store = Store(root or default_root())
        return store.read_bytes(FILE).decode("utf-8") if store.exists(FILE) else None
    except UnicodeDecodeError:
        raise InputError(f"{where} is not UTF-8 text; save it so.") from None
    except OSError as error:
        raise InputError(
            f"{where} cannot be read ({error.strerror or type(error).__name__}); correct {VARIABLE} or the file."
        ) from None


def _entries(where: str, text: str | None) -> list[Any]:
    if text is None:
        return []
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        # without the excerpt that the library shows: it may be of a line with a key
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{where}{place} is not YAML ({error.problem}); correct it.") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(f"{where} is not YAML; correct it.") from None
    if document is None:
        return []
    entries = (
        document.get("judges")
        if isinstance(document, Mapping) and set(document) == {"judges"}
        else None
    )
    if not isinstance(entries, list):
        raise InputError(
            f"{where} is not one key 'judges' with a list of judges; docs/endpoints.md shows one."
        )
    return entries


def _name(entry: Any, taken: set[str]) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "it has no name of small letters, digits and '_', a letter first; give it one."
        )
    if name in taken:
        raise InputError(f"the name {name!r} is taken; choose another.")
    return name


def _parsed(entry: Mapping[str, Any]) -> EndpointConfig:
    from certify_assets.judges.endpoint.config import parse_judge

    return parse_judge(entry)
