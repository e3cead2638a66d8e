"""Canonical JSON, rounded numbers, content hashes, atomic writes and locks between processes."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, SupportsFloat, TypeVar

from certify_assets.errors import InputError

_CHUNK = 1 << 20
_Stored = TypeVar("_Stored")
_ADAPTERS: dict[Any, Any] = {}
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
    """Return the SHA-256 of a file's content, read in pieces of one megabyte."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


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
            _replace(target, data, private)
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


def _replace(path: Path, data: bytes, private: bool) -> None:
    with replacing(path, private=private) as stream:
        stream.write(data)


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a stream whose content takes the file's name at the end, unless the block fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    handle, name = tempfile.mkstemp(prefix=".certify.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes the file private; what it replaces is as readable as any other file of the
        # user
        temporary.chmod(0o600 if private else 0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def write_json_atomic(path: Path, value: Any) -> bytes:
    """Write an indented JSON document atomically; return its bytes."""
    data = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    write_atomic(path, data)
    return data


def parse_json(text: str) -> Any:
    """Parse one JSON value; refuse what two readers could read differently."""
    try:
        return json.loads(text, object_pairs_hook=unique_keys, parse_int=_integer)
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


#: values of a YAML document whose aliases are written out
_MOST_VALUES: Final = 100_000


def parse_yaml(text: str) -> Any:
    """Parse one YAML document of plain values; refuse a repeated key, and aliases without end.

    Raises
    ------
    ValueError
        With the line and what is wrong there, without an excerpt, which may hold a secret.
    """
    import yaml

    def refused(words: str, mark: Any) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem=words, problem_mark=mark)

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise refused(f"the key {key.value[:60]!a} is there twice", key.start_mark)
                seen.add(key.value)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            # the library takes a value to be what its tag or its form says
            try:
                return super().construct_object(node, deep)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                raise refused(f"a value is none of {node.tag}", node.start_mark) from None

    sizes: dict[int, float] = {}

    def size(node: Any) -> float:
        # a node within itself is as large as any
        if id(node) not in sizes:
            sizes[id(node)] = math.inf
            inner = () if isinstance(node, yaml.ScalarNode) else node.value
            parts = (part for item in inner for part in (item if type(item) is tuple else (item,)))
            sizes[id(node)] = 1 + sum(map(size, parts))
        return sizes[id(node)]

    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if size(node) > _MOST_VALUES:
            raise refused(f"aliases stand for more than {_MOST_VALUES:,} values", node.start_mark)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{place}{error.problem}") from None
    except (yaml.YAMLError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        # an escape beyond the last character, a version of too many digits, or too deep
        raise ValueError("a character or number that there is not") from None


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
    return read_json_bytes(path, remedy=remedy)[0]


def read_json_bytes(
    path: Path, *, remedy: str = "give the file as it was written"
) -> tuple[Any, bytes]:
    """Read a JSON document once; return it and the bytes that it was read from."""
    try:
        data = path.read_bytes()
        return parse_json(data.decode("utf-8-sig")), data
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


def stored_as(kind: type[_Stored], document: Any) -> _Stored:
    """Build a dataclass, with the dataclasses in it, from its stored JSON object.

    Lists become tuples where the fields say so; keys of other documents are passed over.
    """
    import pydantic

    # an adapter takes a millisecond to make, and there are many events
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = pydantic.TypeAdapter(kind)
    try:
        found: _Stored = _ADAPTERS[kind].validate_python(document)
        return found
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise InputError(
            f"the stored document of a {kind.__name__} cannot be read ({place}: {first['msg']}); "
            "make it again."
        ) from None
