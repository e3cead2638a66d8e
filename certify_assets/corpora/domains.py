"""The domain of a corpus: what kind of work its agents do. A strict transfer judge is trained on none of its target's domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from certify_assets.corpora.corpus import Corpus

__all__ = ["FORMAT_DOMAINS", "Domain", "corpus_domain", "format_domain"]

#: formats whose runs are of one kind; harbor, inspect and table hold runs of any
FORMAT_DOMAINS: Mapping[str, str] = {
    "agent_reward_bench": "web",
    "agentclinic": "medicine",
    "autocoderover": "software",
    "browsergym": "web",
    "embedded": "web",
    "intercode": "shell",
    "miniwob_demos": "web",
    "multi_swe_bench": "software",
    "openhands": "software",
    "swe_agent": "software",
    "swe_rebench": "software",
    "tau2": "customer_service",
    "taubench_v1": "customer_service",
    "terminal_bench": "shell",
}


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain and where it comes from.

    Parameters
    ----------
    name : str
        Empty where it is unknown.
    origin : str
        ``stated`` in the configuration, ``derived`` from the format, or ``unknown``.
    """

    name: str
    origin: str

    def __str__(self) -> str:
        return {"stated": self.name, "derived": f"{self.name} (derived from the format)"}.get(
            self.origin, "not stated"
        )


def corpus_domain(corpus: Corpus) -> Domain:
    """Return the domain that a corpus's configuration states, else that of the format it was read as."""
    config = corpus.config
    if config.domain:
        return Domain(config.domain, "stated")
    key = corpus.key("import.json")
    read_as = (
        corpus.store.read_json(key)["format"]
        if config.format == "auto" and corpus.store.exists(key)
        else config.format
    )
    return format_domain(str(read_as))


def format_domain(format: str) -> Domain:
    """Return the domain of a format, or of several joined by + that agree on it."""
    names = {FORMAT_DOMAINS.get(part, "") for part in format.split("+")}
    name = names.pop() if len(names) == 1 else ""
    return Domain(name, "derived" if name else "unknown")
