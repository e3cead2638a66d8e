"""What a corpus is to the platform: where its runs lie, how they are split, and which leak its owner accepted, in one document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.leak_thresholds import complete_thresholds
from certify_assets.errors import InputError
from certify_assets.storage.store import Store

__all__ = [
    "EMBEDDED",
    "CorpusConfig",
    "embedded_config",
    "load_config",
    "registered_corpora",
    "remove_corpus",
    "save_config",
]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}")
_DOMAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class CorpusConfig:
    """The configuration of one corpus.

    Parameters
    ----------
    name : str
        Partition key: a letter, then letters, digits, '_' or '-', at most 64.
    format : str
        ``embedded``, ``auto`` or the name of a source format.
    paths : tuple of str
        Files or folders of the source; empty for embedded corpora.
    options : mapping
        Options of the source adapter.
    profile : str
        Split profile, ``certify`` or ``paper``.
    seed : int
        Seed of the split.
    rl : bool
        Whether a judge is trained on the RL split; where none is, its share goes to CAL.
    accept_structural_leak : str or None
        Reason for which the owner accepts a structural leak; every certificate then carries it.
    leak_thresholds : mapping of str to float
        AUROC from which length, steps, agent or phrases is a structural leak; .85 for those that are not named.
    domain : str
        What kind of work the runs are, such as web, shell or software; empty takes that of the format, where it has one.
    """

    name: str
    format: str = "auto"
    paths: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    profile: str = "certify"
    seed: int = 42
    rl: bool = True
    accept_structural_leak: str | None = None
    leak_thresholds: Mapping[str, float] = field(default_factory=dict)
    domain: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"{self.name!r} cannot name a corpus; use a letter followed by letters, digits, '_' or '-', at most 64 characters."
            )
        if not isinstance(self.leak_thresholds, Mapping):
            raise InputError(
                'leak_thresholds of corpus.json is no object; map a control such as "length" to an AUROC.'
            )
        complete_thresholds(self.leak_thresholds)
        if not isinstance(self.domain, str) or (self.domain and not _DOMAIN.fullmatch(self.domain)):
            raise InputError(
                f"{self.domain!r} cannot name a domain; use a small letter followed by small letters, digits or '_', at most 40 characters."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as a JSON object."""
        return {
            **asdict(self),
            "paths": list(self.paths),
            "options": dict(self.options),
            "leak_thresholds": dict(self.leak_thresholds),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CorpusConfig:
        """Read a configuration, refusing keys that mean nothing here.

        Raises
        ------
        InputError
            If a key is unknown or the name is missing.
        """
        unknown = sorted(set(document) - set(cls.__dataclass_fields__))
        if unknown:
            raise InputError(
                f"corpus.json has the unknown key {unknown[0]!r}; known keys are {', '.join(cls.__dataclass_fields__)}."
            )
        if "name" not in document:
            raise InputError("corpus.json has no key 'name'; add the corpus's name.")
        return cls(**{**document, "paths": tuple(document.get("paths", ()))})


@dataclass(frozen=True, slots=True)
class Domain:
    """Kind of work of a corpus, and where that is known from.

    A strict transfer judge is trained on no corpus of its target's domain.

    Parameters
    ----------
    name : str
        Empty where it is unknown.
    origin : {"stated", "derived", "unknown"}
        Stated in the configuration, or derived from the format.
    """

    name: str
    origin: str

    def __str__(self) -> str:
        derived = f"{self.name} (derived from the format)"
        return {"stated": self.name, "derived": derived}.get(self.origin, "not stated")


def format_domain(format: str) -> Domain:
    """Return the domain of a format, or of several joined by + that agree on it."""
    from certify_assets.corpora.formats import FORMATS

    known = {name: form.domain for name, form in FORMATS.items()} | {"embedded": "web"}
    names = {known.get(part, "") for part in format.split("+")}
    name = names.pop() if len(names) == 1 else ""
    return Domain(name, "derived" if name else "unknown")


def embedded_config(name: str) -> CorpusConfig:
    """Return the configuration of one of the corpora that come with the package."""
    return CorpusConfig(name=name, format="embedded", domain="web")


def save_config(store: Store, config: CorpusConfig) -> None:
    """Register a corpus in the data root."""
    store.write_json(f"corpora/{config.name}/corpus.json", config.to_dict())


def load_config(store: Store, name: str) -> CorpusConfig:
    """Return a registered corpus's configuration; embedded corpora need no registration.

    Raises
    ------
    InputError
        If no such corpus is registered; the sentence lists those that are.
    """
    key = f"corpora/{name}/corpus.json"
    if store.exists(key):
        return CorpusConfig.from_dict(store.read_json(key))
    if name in EMBEDDED:
        return embedded_config(name)
    known = ", ".join(registered_corpora(store))
    raise InputError(
        f"no corpus is called {name!r}; known are {known}; register it with `certify corpus import PATH --name {name}`."
    )


def registered_corpora(store: Store) -> list[str]:
    """Return the names of all corpora: the embedded ones and those registered in the data root, sorted."""
    imported = [
        name for name in store.names("corpora") if store.exists(f"corpora/{name}/corpus.json")
    ]
    return sorted({*EMBEDDED, *imported})


def remove_corpus(store: Store, name: str) -> list[str]:
    """Take a corpus out of the data root and return the keys that went.

    What landed in it (``versions.jsonl``), the ledger of its TEST split, its judges and certificates stay: they are the record of what was
    claimed.

    Raises
    ------
    InputError
        If no such corpus is registered, or it comes with the package.
    """
    if name in EMBEDDED:
        raise InputError(f"{name} comes with the package and cannot be removed.")
    load_config(store, name)
    folder = f"corpora/{name}"
    splits = [f"splits/{entry}" for entry in store.names(f"{folder}/splits")]
    # the configuration last: a removal that was killed can be called again
    kept = ("versions.jsonl", "splits", "corpus.json")
    gone = [*splits, *(entry for entry in store.names(folder) if entry not in kept), "corpus.json"]
    for entry in gone:
        store.delete(f"{folder}/{entry}")
    for empty in (f"{folder}/splits", folder):
        store.remove_folder(empty)
    return gone
