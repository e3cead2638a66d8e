"""Canonical JSON, rounded numbers, content hashes, atomic writes and locks between processes."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, SupportsFloat

from certify_assets.errors import InputError

_DIGITS = 10
_POLL_SECONDS = 0.005


def canonical_json(value: Any) -> bytes:
    """Encode a JSON value canonically: sorted keys, no spaces, UTF-8, a newline at the end."""
    # NaN and infinite raise a ValueError: JSON has no form for them
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8") + b"\n"


def significant(value: SupportsFloat) -> float:
    """Round to ten significant digits, so that derived numbers agree between machines."""
    return float(f"{float(value):.{_DIGITS}g}")


def shortest(value: SupportsFloat) -> str:
    """Write a number with at most six significant digits, and no more than it has."""
    return f"{float(value):.6g}"


def rounded(value: Any) -> Any:
    """Return a JSON value with every float at ten significant digits."""
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, Mapping):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of the bytes as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def name_digest(name: str) -> str:
    """Return what recognises a name without giving it: the first 12 digits of its SHA-256."""
    return sha256_bytes(name.encode("utf-8", "surrogatepass"))[:12]


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with naming(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    # a link keeps its target, which is written
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            # a rename would put an ordinary file in the place of the device; a folder is refused
            # here
            target.write_bytes(data)
        else:
            with replacing(target, private=private) as stream:
                stream.write(data)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error that names none, as where a disk is full."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a stream whose content takes the file's name at the end, unless the block fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    temporary = path.with_name(f".certify.{secrets.token_hex(8)}.part")
    mode = 0o600 if private else 0o666
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json_atomic(path: Path, value: Any) -> bytes:
    """Write an indented JSON document atomically; return its bytes."""
    data = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    write_atomic(path, data)
    return data


def parse_json(text: str, *, parse_float: Callable[[str], float] | None = None) -> Any:
    """Parse one JSON value; refuse what two readers could read differently."""
    try:
        return json.loads(
            text, object_pairs_hook=unique_keys, parse_int=_integer, parse_float=parse_float
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> object:
    """Make a JSON object; refuse a key that it has twice, of which one value would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        # in one passage: counting each key takes minutes where the last of many is repeated
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"it has the key {name[:60]!a} twice in one object")
            seen.add(name)
    return found


def parse_yaml(text: str) -> Any:
    """Parse one YAML document of plain values; refuse a repeated key, and nested aliases.

    Raises
    ------
    ValueError
        With the line and what is wrong there, without an excerpt, which may hold a secret.
    """
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        named = 0  # nodes under way that have an anchor

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if self.named and isinstance(event, yaml.AliasEvent):
                # a few of them stand for more values than memory holds
                words = "an alias of an alias is not read"
                raise yaml.MarkedYAMLError(problem=words, problem_mark=event.start_mark)
            self.named += (opened := event.anchor is not None)
            node = super().compose_node(parent, index)
            self.named -= opened
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    words = f"the key {key.value[:60]!a} is there twice"
                    raise yaml.MarkedYAMLError(problem=words, problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{place}{error.problem}") from None
    except (
        *(yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError),
        *(TypeError, ValueError),
    ):
        # the library takes a value to be what its tag or its form says
        raise ValueError("a value is not what its form says") from None


def apart_from_0_and_1(digits: str) -> float:
    """Return a number of JSON; one that only rounding makes 0 or 1 is the number next to that."""
    value = float(digits)
    if value in (0.0, 1.0) and Decimal(digits) != Decimal(value):
        return math.nextafter(value, 0.5)
    return value


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"it holds an integer of {len(digits)} digits") from None


def read_json(path: Path, *, remedy: str = "give the file as it was written") -> Any:
    """Read a JSON document, with a sentence instead of a traceback where it cannot be read."""
    try:
        return parse_json(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the path.") from None
    except ValueError as error:
        raise InputError(f"{path} is not a JSON document ({error}); {remedy}.") from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions."
        ) from None


def lock_file(handle: int, *, wait: bool = True) -> bool:
    """Lock an open file until it is closed, which a kill does too; return whether it is held."""
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=wait, poll_interval=_POLL_SECONDS)
