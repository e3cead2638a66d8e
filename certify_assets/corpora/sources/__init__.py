"""Import of published or incoming agent runs: a registry with one adapter a format, and the one way in, `import_corpus`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.sources.base import Adapter, Draft, Reading, finish
from certify_assets.corpora.sources.files import Limits, SourceFile, Tally, iter_files
from certify_assets.corpora.sources.table import TABLE
from certify_assets.corpora.sources.taubench import TAUBENCH_V1
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ADAPTERS", "COMMON_OPTIONS", "Adapter", "Draft", "Imported", "Reading", "SourceFile", "detect_format", "import_corpus"]

# a new format is a module of its own and one name here
ADAPTERS: Mapping[str, Adapter] = {adapter.name: adapter for adapter in (TABLE, TAUBENCH_V1)}

COMMON_OPTIONS: Mapping[str, str] = {
    "keep_unlabelled": "keep runs without an outcome (true or false)",
    "merge_same_instruction": "count tasks with the same instruction as one (true or false)",
    "max_file_mb": "largest file to read, in megabytes",
    "strict": "refuse the import when a record cannot be used (true or false)",
}
_EXPLAINED = 2
_SWITCHES = ("keep_unlabelled", "merge_same_instruction", "strict")
_BROKEN = ("unreadable_record", "bad_outcome", "file_unreadable", "file_broken_archive", "file_ends_early", "file_unsafe_path")


@dataclass(frozen=True)
class Imported:
    """A corpus as it was read.

    Parameters
    ----------
    frame : pandas.DataFrame
        Trajectories, as `schema.to_frame` makes them.
    dropped : dict of str to int
        How many records, and (reasons that begin with "file_") files, were left out, by reason.
    format : str
        Name of the adapter.
    files : dict of str to str
        SHA-256 of every file read.
    examples : dict of str to str
        For every reason, a sentence on the first case.
    notes : dict of str to int
        What was left out of records that were kept.
    """

    frame: pd.DataFrame
    dropped: dict[str, int]
    format: str
    files: dict[str, str]
    examples: dict[str, str]
    notes: dict[str, int]


def import_corpus(
    paths: Path | str | Iterable[Path | str],
    *,
    format: str = "auto",
    name: str,
    options: Mapping[str, Any] | None = None,
) -> Imported:
    """Read agent runs into one corpus.

    Parameters
    ----------
    paths : path or iterable of paths
        Files, folders and tar archives (read without unpacking).
    format : str, default "auto"
        Name of an adapter, or "auto" to take the one that fits the files.
    name : str
        Name of the corpus.
    options : mapping, optional
        `COMMON_OPTIONS` and the adapter's own.

    Returns
    -------
    Imported
        Trajectories, and a count of everything that was left out.

    Raises
    ------
    InputError
        If a path, format or option is unknown, more than one format or none fits, or nothing could be used.
    """
    if not name.strip():
        raise InputError("the corpus has no name; give it one.")
    roots = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not roots:
        raise InputError("there is no path to import; give files, folders or archives.")
    limits = _limits(options or {})
    adapter = ADAPTERS[detect_format(roots, limits) if format == "auto" else _known(format)]
    reading = Reading(_options(adapter, options or {}), Tally())
    trajectories = finish(adapter.read(iter_files(roots, adapter.suffixes, reading.tally, limits), reading), name, reading)
    tally = reading.tally
    broken = next((tally.examples[reason] for reason in _BROKEN if reason in tally.examples), None)
    if broken and reading.options.get("strict"):
        raise InputError(f"{broken.rstrip('.')}; correct it, or import without the option strict.")
    if not trajectories:
        why = next(iter(tally.examples.values()), "there is no file of the format's kind.")
        raise InputError(f"nothing in {', '.join(str(root) for root in roots)} can be used as {adapter.title}: {why}")
    return Imported(
        to_frame(trajectories), dict(sorted(tally.dropped.items())), adapter.name, reading.hashes, tally.examples, dict(tally.notes)
    )


def detect_format(paths: Sequence[Path], limits: Limits | None = None) -> str:
    """Return the name of the one format that fits the files.

    Raises
    ------
    InputError
        If none fits (the message says why of the first files), or more than one: the message lists the candidates.
    """
    fitting: dict[str, list[str]] = {}
    reasons: list[str] = []
    suffixes = {suffix for adapter in ADAPTERS.values() for suffix in adapter.suffixes}
    for file in iter_files(paths, suffixes, Tally(), limits or Limits()):
        for adapter in ADAPTERS.values():
            if file.suffix in adapter.suffixes and adapter.fits(file):
                fitting.setdefault(adapter.name, []).append(file.name)
            elif file.suffix in adapter.suffixes and not fitting and len(reasons) < _EXPLAINED:
                reasons.extend(filter(None, [adapter.explain(file)]))
    given = ", ".join(str(path) for path in paths)
    if not fitting:
        known = "; ".join(f"{adapter.name}: {adapter.title}" for adapter in ADAPTERS.values())
        if reasons:
            raise InputError(f"no known format fits {given}: {' '.join(reasons)}")
        raise InputError(f"no known format fits {given}; name one with --format ({known}).")
    if len(fitting) > 1:
        found = ", ".join(f"{key} ({len(files)} files, such as {files[0]})" for key, files in sorted(fitting.items()))
        raise InputError(f"more than one format fits {given}: {found}; name one with --format.")
    return next(iter(fitting))


def _known(format: str) -> str:
    if format not in ADAPTERS:
        raise InputError(f"there is no format {format!r}; name one of {', '.join(sorted(ADAPTERS))} or auto.")
    return format


def _options(adapter: Adapter, options: Mapping[str, Any]) -> dict[str, Any]:
    known = {**COMMON_OPTIONS, **adapter.options}
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"format {adapter.name} has no option {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    return {key: _switch(key, value) if key in _SWITCHES else value for key, value in options.items()}


def _switch(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise InputError(f"the option {key} is {value!r}; give true or false.")
    return str(value).lower() == "true"


def _limits(options: Mapping[str, Any]) -> Limits:
    megabytes = str(options.get("max_file_mb", Limits().file_bytes >> 20))
    if not megabytes.isdecimal() or not 0 < int(megabytes) <= 1 << 20:
        raise InputError(f"the option max_file_mb is {megabytes!r}; give a whole number of megabytes.")
    return Limits(file_bytes=int(megabytes) << 20, archive_bytes=max(Limits().archive_bytes, int(megabytes) << 20))
