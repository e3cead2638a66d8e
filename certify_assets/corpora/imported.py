"""Facts about an import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certify_assets._version import __version__
from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes, sha256_file
from certify_assets.storage.urls import is_url


@dataclass(frozen=True, kw_only=True)
class ImportFacts:
    """What an import read and left out.

    Parameters
    ----------
    format : str
        Name of the format.
    files : dict of str to str
        SHA-256 of every file read.
    dropped : dict of str to int
        Number of records left out, by reason; reasons that begin with "file_" count files.
    examples : dict of str to str
        A sentence on the first case, for every reason.
    notes : dict of str to int
        Counts of parts left out of kept records, and of other remarks on how they were read.
    label_source : str
        Where the outcomes come from.
    label_facts : dict of str to number
        Figures of the source's labels, such as annotations, ties and disagreement.
    read_as : tuple of str
        Sentences on how tables were read.
    """

    format: str
    files: dict[str, str]
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    label_source: str = ""
    label_facts: dict[str, float] = field(default_factory=dict)
    read_as: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ImportSummary(ImportFacts):
    """Summary of an import, stored as ``import.json``."""

    trajectories: int
    tasks: int
    agents: tuple[str, ...]
    # SHA-256 of the Parquet table
    sha256: str
    # of the configuration; none of an embedded corpus
    paths: tuple[str, ...] = ()
    # as `import_sha256`
    import_sha256: str = ""


def import_sha256(paths: Sequence[str], format: str, options: Mapping[str, Any]) -> str:
    """Hash everything that an import depends on; empty if its files are remote or unreadable."""
    from certify_assets.corpora.formats.files import Tally, files_at

    if not paths or any(map(is_url, paths)):
        return ""
    try:
        files = {name: sha256_file(path) for name, path in files_at(map(Path, paths), Tally())}
    except (InputError, OSError):
        # the import may not need what cannot be read
        return ""
    return sha256_bytes(canonical_json([__version__, format, dict(options), files]))
