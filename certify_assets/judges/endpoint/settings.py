"""One judge of `judges.yaml` behind a server: its address, its questions and its prices."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from certify_assets.errors import InputError
from certify_assets.judges.configured import Entry, PromptedEntry
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.reading import JudgeInput

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VOTES = re.compile(r"sc_([1-9][0-9]{0,2})")
# temperature by mode, where none is written
_TEMPERATURE = {"logprob": 0.0, "cot": 0.0, "vote": 0.7}


def auditor_prompt(mode: str) -> AuditorPrompt:
    """Return the prompt of all judges, with the question of a mode at its end."""
    asked = "END OF RUN\nWas the task done? Reason in a few sentences, then end with one line"
    if mode == "cot":
        return AuditorPrompt(
            closing=f"{asked} P_SUCCESS=n, where n is a whole number from 0 to 100: the "
            "probability in percent that the task was done."
        )
    if mode == "vote":
        return AuditorPrompt(closing=f"{asked}, VERDICT: SUCCESS or VERDICT: FAIL.")
    return AuditorPrompt()


class Prices(Entry):
    """Prices of a million tokens."""

    prompt: float = Field(default=0.0, ge=0)
    completion: float = Field(default=0.0, ge=0)
    currency: str = "USD"

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of these tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class EndpointEntry(PromptedEntry):
    """A judge behind an OpenAI-compatible server, as users write it."""

    family: Literal["endpoint"] = "endpoint"
    url: str = Field(description="base URL of the server, like http://host:port/v1", repr=False)
    model: str = Field(min_length=1, description="name that the server knows the model by")
    revision: str = Field(default="", description="commit or hash of the weights, if known")
    # the key itself is read when a scoring starts
    key_variable: str | None = Field(
        default=None, description="environment variable that holds the API key"
    )
    concurrency: int = Field(default=8, ge=1, description="most requests in flight")
    attempts: int = Field(default=6, ge=1, description="times a request is sent at most")
    timeout_seconds: float = Field(default=120.0, gt=0, description="of one attempt")
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    asking: str = Field(default="logprob", description="logprob, cot, or sc_5 for five votes")
    form: Literal["chat", "completion"] = Field(
        default="chat", description="messages, or one text that ends with the marker"
    )
    budget_tokens: int = Field(default=5120, ge=1, description="longest prompt")
    max_failed: int = Field(default=0, ge=0, description="runs that may stay unanswered")
    prices: Prices = Prices()
    # an integer stays one: the hash of the settings tells 1 from 1.0
    temperature: int | float | None = None
    seed: int = Field(default=42, description="vote i is drawn with seed + i")
    max_tokens: int = Field(default=512, ge=1, description="longest answer in words")
    top: int = Field(default=20, ge=2, description="likeliest tokens asked for")
    extra: dict[str, Any] = Field(
        default={}, description="further fields of the request body; null takes a field out"
    )

    def model_post_init(self, context: object, /) -> None:
        """Refuse settings that cannot be used; neither an address nor a key is repeated."""
        if not _is_usable(self.url):
            raise InputError(
                "the server's base URL is not like http://host:port/v1. Leave out query and "
                "password; key_variable names the API key."
            )
        if self.key_variable is not None and not _VARIABLE.fullmatch(self.key_variable):
            raise InputError(
                "key_variable is not the name of an environment variable; give its name, not the "
                "key."
            )
        if self.mode == "vote" and not _VOTES.fullmatch(self.asking):
            raise InputError(f"asking is {self.asking!r}; choose logprob, cot, sc_5 or sc_10.")
        if len(set(self.words)) < 2:
            raise InputError(f"both verdicts are {self.words[0]!r}; give two words.")

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        about = self.model_dump(include={"name", "seed", "model", "revision"})
        return {**about, "reading": self.reading(JudgeInput()), "endpoint": self}

    @property
    def plain_url(self) -> str:
        """The base URL without the slash at its end."""
        return self.url.rstrip("/")

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
                "has; export only the key."
            )
        return value

    @property
    def mode(self) -> str:
        """How a verdict is given: logprob, cot or vote."""
        return self.asking if self.asking in ("logprob", "cot") else "vote"

    @property
    def votes(self) -> int:
        """Number of answers for each text."""
        return int(self.asking.removeprefix("sc_")) if self.mode == "vote" else 1

    @property
    def heat(self) -> float:
        """The temperature that is sent."""
        return _TEMPERATURE[self.mode] if self.temperature is None else self.temperature

    @cached_property
    def auditor(self) -> AuditorPrompt:
        """The prompt of all judges, with the question of this one at its end."""
        return self.asked(auditor_prompt(self.mode))

    @property
    def words(self) -> tuple[str, str]:
        """Verdicts as the server writes them; in a chat they begin the answer."""
        success, fail = self.auditor.words
        return (success.strip(), fail.strip()) if self.form == "chat" else (success, fail)

    def question(self) -> dict[str, Any]:
        """Return the settings that an answer depends on, besides prompt and server."""
        common = {"mode": self.mode, "temperature": self.heat, "extra": dict(self.extra)}
        if self.mode == "logprob":
            marker = "" if self.form == "chat" else self.auditor.marker
            return {**common, "words": list(self.words), "marker": marker}
        drawn = {"votes": self.votes} if self.mode == "vote" else {}
        return {**common, **drawn, "seed": self.seed, "max_tokens": self.max_tokens}

    def settings(self) -> dict[str, Any]:
        """Return all settings that scores depend on: not prices or pace."""
        return {
            "url": self.plain_url,
            "model": self.model,
            "revision": self.revision,
            "asking": {**self.question(), "top": self.top},
            "auditor": self.auditor.model_dump(),
            "form": self.form,
            "budget_tokens": self.budget_tokens,
        }


def _is_usable(url: str) -> bool:
    """Whether a base URL has a host, and neither secrets nor other parts."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        # a password may stand without a user
        secret = "@" in parts.netloc
        return known and not (parts.query or parts.fragment or secret) and parts.port != 0
    except ValueError:
        # a port that is no number
        return False
