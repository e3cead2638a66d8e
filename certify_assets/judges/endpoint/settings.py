"""Where the server is, how it is asked, and what it costs; none of it holds a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import ConfigDict

from certify_assets.errors import InputError
from certify_assets.judges.configured import Entry

#: votes of one word and a chain of thought at temperature 1, as in the paper
PAPER = "paper"
READS = ("token_ids", "scoring", "top")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# Dataclasses, not models of pydantic: judges.yaml is checked by the model of its entries, and what
# is left to check here holds for callers from Python too, in sentences that never repeat a URL.
@dataclass(frozen=True, slots=True)
class Server:
    """An OpenAI-compatible server and how hard it may be asked."""

    # for example "http://127.0.0.1:8000/v1". A user and password inside it are used and never shown
    base_url: str = field(repr=False)
    model: str  # name the server knows the model or LoRA module by
    # name of the environment variable that holds the API key; the key itself is read when a scoring
    # starts
    key_variable: str | None = None
    concurrency: int = 8
    attempts: int = 6
    timeout_seconds: float = 120.0  # for one attempt, connection and body included
    # a server that asks for a longer wait ends the scoring, which can be resumed
    longest_wait_seconds: float = 120.0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    longest_body: int = 4 << 20
    first_wait_seconds: float = 0.5
    # commit or hash of the weights behind the model's name, if known: servers do not say, and kept
    # answers are of one revision
    revision: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.base_url)
            usable = (
                parts.scheme in ("http", "https")
                and bool(parts.hostname)
                and not parts.query
                and not parts.fragment
            )
            usable = usable and (parts.port or 0) >= 0
        except ValueError:
            usable = False
        if not usable:
            raise InputError(
                "the base URL of the server is not like http://host:port/v1, without a query; "
                "give it so, and the API key by key_variable."
            )
        if not self.model:
            raise InputError(
                "the server needs the name of a model; give the one that its /v1/models lists."
            )
        if self.key_variable is not None and not _VARIABLE.fullmatch(self.key_variable):
            # it may be the key itself, so it is not repeated here
            raise InputError(
                "key_variable is no name of an environment variable; give the variable's name, "
                "not the key."
            )
        for name in (
            "concurrency",
            "attempts",
            "timeout_seconds",
            "longest_wait_seconds",
            "longest_body",
            "requests_per_minute",
            "tokens_per_minute",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}; give a number above 0.")

    @property
    def plain_url(self) -> str:
        """The base URL without credentials and without the slash at its end."""
        parts = urlsplit(self.base_url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        place = host if parts.port is None else f"{host}:{parts.port}"
        return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))

    @property
    def root_url(self) -> str:
        """The plain URL without /v1: where /version, /tokenize and /generative_scoring are."""
        return self.plain_url.removesuffix("/v1")

    def login(self) -> tuple[str, str] | None:
        """Return user and password of the base URL, if it has them."""
        parts = urlsplit(self.base_url)
        return (
            None
            if parts.username is None
            else (unquote(parts.username), unquote(parts.password or ""))
        )

    def key(self) -> str | None:
        """Read the API key from its environment variable."""
        if self.key_variable is None:
            return None
        value = os.environ.get(self.key_variable, "").strip()
        if not value:
            raise InputError(
                f"the environment variable {self.key_variable} is not set; export the API key of "
                "the server in it."
            )
        if not value.isascii() or not value.isprintable():
            raise InputError(
                f"the environment variable {self.key_variable} holds characters that no API key "
                "has; export the key alone."
            )
        return value


@dataclass(frozen=True, slots=True)
class Asking:
    """How a verdict is asked for."""

    # one token's probabilities; reasoning and P_SUCCESS=0–100; share of SUCCESS among
    # votes (self-consistency)
    mode: str = "logprob"
    votes: int = 5  # samples a text in mode vote: 5 and 10 are usual
    # by default 0 for logprob and cot, 0.7 for vote, 1 for either as the paper asks
    temperature: float | None = None
    seed: int = 42  # vote i is drawn with seed + i
    max_tokens: int = 512
    # tokens of success and failure as the server writes them; with a space before them where they
    # follow a marker
    words: tuple[str, str] = ("SUCCESS", "FAIL")
    marker: str = ""  # what the prompt ends with in completion mode; empty in chat
    # "auto", or one of token_ids (exact, vLLM), scoring (vLLM's /generative_scoring), top (the 20
    # likeliest tokens)
    read: str = "auto"
    # likeliest tokens asked for where read is top; servers give at most 20, some fewer
    top: int = 20
    # further fields of the request body, such as {"chat_template_kwargs": {"enable_thinking":
    # False}}; None takes a field out
    extra: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""  # or paper

    def __post_init__(self) -> None:
        if self.read not in ("auto", *READS):
            raise InputError(
                f"{self.read!r} is no way to read a verdict; choose auto, {', '.join(READS)}."
            )
        if self.votes < 1 or self.max_tokens < 1 or not 2 <= self.top <= 20:
            raise InputError(
                f"{self.votes} votes of at most {self.max_tokens} tokens, or {self.top} likeliest "
                "tokens, cannot be asked for; give numbers above 0, and 2 to 20 likeliest tokens."
            )
        if self.words[0] == self.words[1] or not all(self.words):
            raise InputError(f"the verdict words are {self.words}; give two different words.")

    @property
    def heat(self) -> float:
        """The temperature that is sent."""
        if self.temperature is not None:
            return self.temperature
        if self.preset == PAPER:
            return 1.0
        return 0.7 if self.mode == "vote" else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return what the scores depend on."""
        common = {"mode": self.mode, "temperature": self.heat, "extra": dict(self.extra)}
        if self.mode == "logprob":
            return {**common, "words": list(self.words), "marker": self.marker}
        drawn = {"votes": self.votes} if self.mode == "vote" else {}
        preset = {"preset": self.preset} if self.preset else {}
        return {**common, **drawn, **preset, "seed": self.seed, "max_tokens": self.max_tokens}


class Prices(Entry):
    """What a million tokens cost."""

    # refused in one sentence with those below 0
    model_config = ConfigDict(allow_inf_nan=True)

    prompt: float = 0.0
    completion: float = 0.0
    currency: str = "USD"

    def model_post_init(self, context: object, /) -> None:
        """Refuse prices below 0, and none at all."""
        if not (0 <= self.prompt < float("inf") and 0 <= self.completion < float("inf")):
            raise InputError(
                f"prices of {self.prompt} and {self.completion} a million tokens cannot be used; "
                "give numbers from 0."
            )

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what so many tokens cost."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6
