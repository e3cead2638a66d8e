"""One judge of `judges.yaml` behind a server: where it is, how it is asked, what it costs."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import Field

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.configured import Entry, PromptedEntry
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.reading import JudgeInput

#: votes of one word and a chain of thought at temperature 1, as in the paper
PAPER = "paper"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VOTES = re.compile(r"sc_([1-9][0-9]{0,2})")


def auditor_prompt(mode: str, preset: str = "") -> AuditorPrompt:
    """Return the prompt of all judges, with the question of a mode at its end."""
    reasoning = "step by step" if preset == PAPER else "in a few sentences"
    asked = f"END OF RUN\nWas the task done? Reason {reasoning}, then end with one line"
    if mode == "cot":
        return AuditorPrompt(
            closing=f"{asked} P_SUCCESS=n, where n is a whole number from 0 to 100: the "
            "probability in percent that the task was done."
        )
    # the one word of the paper's votes is what every judge is asked for
    if mode == "vote" and preset != PAPER:
        return AuditorPrompt(closing=f"{asked}, VERDICT: SUCCESS or VERDICT: FAIL.")
    return AuditorPrompt()


class Prices(Entry):
    """What a million tokens cost."""

    prompt: float = Field(default=0.0, ge=0)
    completion: float = Field(default=0.0, ge=0)
    currency: str = "USD"

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what so many tokens cost."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


class Server(PromptedEntry):
    """An OpenAI-compatible server and how hard it may be asked."""

    # a user and a password inside it are used and never shown
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

    def model_post_init(self, context: object, /) -> None:
        """Refuse an address or a key that cannot be used, without repeating either."""
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            usable = usable and not parts.query and not parts.fragment and (parts.port or 0) >= 0
        except ValueError:
            usable = False
        if not usable:
            raise InputError(
                "the base URL of the server is not like http://host:port/v1, without a query; "
                "give it so, and the API key by key_variable."
            )
        if self.key_variable is not None and not _VARIABLE.fullmatch(self.key_variable):
            raise InputError(
                "key_variable is no name of an environment variable; give the variable's name, "
                "not the key."
            )

    @property
    def plain_url(self) -> str:
        """The base URL without credentials and without the slash at its end."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        place = host if parts.port is None else f"{host}:{parts.port}"
        return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))

    @property
    def root_url(self) -> str:
        """The plain URL without /v1: where /version and /tokenize are."""
        return self.plain_url.removesuffix("/v1")

    def login(self) -> tuple[str, str] | None:
        """Return user and password of the base URL, if it has them."""
        parts = urlsplit(self.url)
        if parts.username is None:
            return None
        return unquote(parts.username), unquote(parts.password or "")

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


class EndpointEntry(Server):
    """A judge behind a server, as users write it."""

    family: Literal["endpoint"] = "endpoint"
    asking: str = Field(default="logprob", description="logprob, cot, or sc_5 for five votes")
    preset: Literal["", "paper"] = Field(
        default="", description="paper: votes of one word, or a chain of thought, at temperature 1"
    )
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
        """Refuse settings that do not go together."""
        super().model_post_init(context)
        if self.mode == "vote" and not _VOTES.fullmatch(self.asking):
            raise InputError(f"asking is {self.asking!r}; choose logprob, cot, sc_5 or sc_10.")
        if self.preset:
            self._check_preset()
        if len(set(self.words)) < 2:
            raise InputError(f"both verdicts are {self.words[0]!r}; give two words.")

    def _check_preset(self) -> None:
        if self.mode == "logprob":
            raise InputError(
                f"preset {PAPER} asks for words, and asking is logprob; choose cot, sc_5 or sc_10, "
                "or take preset out."
            )
        written = self.prompt.model_fields_set & {"closing", "success", "fail"}
        own = ["temperature"] if self.temperature is not None else []
        own += [f"prompt.{name}" for name in sorted(written)]
        if own:
            raise InputError(f"preset {PAPER} has its own {own[0]}; take either out.")

    def specification(self) -> dict[str, Any]:
        """Return the fields of the judge's specification."""
        about = self.model_dump(include={"name", "seed", "model", "revision"})
        return {**about, "reading": self.reading(JudgeInput()), "endpoint": self}

    @property
    def mode(self) -> str:
        """How a verdict is given: logprob, cot or vote."""
        return self.asking if self.asking in ("logprob", "cot") else "vote"

    @property
    def votes(self) -> int:
        """Answers that a text gets."""
        return int(self.asking.removeprefix("sc_")) if self.mode == "vote" else 1

    @property
    def heat(self) -> float:
        """The temperature that is sent."""
        if self.temperature is not None:
            return self.temperature
        return 1.0 if self.preset else 0.7 if self.mode == "vote" else 0.0

    @cached_property
    def auditor(self) -> AuditorPrompt:
        """The prompt of all judges, with the question of this one at its end."""
        return self.asked(auditor_prompt(self.mode, self.preset))

    @property
    def words(self) -> tuple[str, str]:
        """Verdicts as the server writes them; in a chat they begin the answer."""
        success, fail = self.auditor.words
        return (success.strip(), fail.strip()) if self.form == "chat" else (success, fail)

    @property
    def marker(self) -> str:
        """What the prompt ends with; empty in a chat."""
        return "" if self.form == "chat" else self.auditor.marker

    def question(self) -> dict[str, Any]:
        """Return what an answer depends on, besides prompt and server."""
        common = {"mode": self.mode, "temperature": self.heat, "extra": dict(self.extra)}
        if self.mode == "logprob":
            return {**common, "words": list(self.words), "marker": self.marker}
        drawn = {"votes": self.votes} if self.mode == "vote" else {}
        preset = {"preset": self.preset} if self.preset else {}
        return {**common, **drawn, **preset, "seed": self.seed, "max_tokens": self.max_tokens}

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

    @property
    def sha256(self) -> str:
        """Hash of the settings: another one makes scores and certificates stale."""
        return sha256_bytes(canonical_json(self.settings()))
