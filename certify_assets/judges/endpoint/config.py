"""One judge of `judges.yaml`: its server, question and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.configured import Entry, GrpoEntry, LocalEntry, NamedEntry, validated
from certify_assets.judges.endpoint.questions import (
    ChatPrompt,
    CompletionPrompt,
    EndpointPrompt,
    TokenPrompt,
    auditor_prompt,
)
from certify_assets.judges.endpoint.settings import PAPER, Asking, Prices, Server
from certify_assets.judges.lm.prompt import AuditorPrompt
from certify_assets.judges.reading import JudgeInput

if TYPE_CHECKING:
    from certify_assets.judges.lm.prompt import PromptEncoder


FORMS = ("chat", "completion", "tokens")

_VOTES = re.compile(r"sc_([1-9][0-9]{0,2})")


class JudgeEntry(NamedEntry):
    """A judge behind a server."""

    family: Literal["endpoint"] = "endpoint"
    url: str = Field(description="base URL of the server, like http://host:port/v1")
    model: str = Field(description="name that the server knows the model by")
    revision: str = Field(default="", description="commit or hash of the weights, if known")
    asking: str = Field(default="logprob", description="logprob, cot, or sc_5 for five votes")
    preset: str = Field(
        default="", description="paper: votes of one word, or a chain of thought, at temperature 1"
    )
    form: str = Field(default="chat", description="chat, completion or tokens")
    tokenizer: str = Field(default="", description="of form tokens: compact, a folder, a hub name")
    tokenizer_revision: str = ""
    budget_tokens: int = Field(default=5120, ge=1, description="longest prompt")
    max_failed: int = Field(default=0, description="runs that may stay unanswered")
    prices: Prices = Prices()
    # an integer stays one: the hash of the settings tells 1 from 1.0
    temperature: int | float | None = None
    seed: int = 42
    max_tokens: int = Field(default=512, description="longest answer in words")
    read: str = Field(default="auto", description="auto, token_ids, scoring or top")
    top: int = Field(default=20, description="likeliest tokens asked for where read is top")
    extra: dict[str, Any] = Field(default={}, description="further fields of the request body")
    key_variable: str | None = Field(
        default=None, description="environment variable that holds the API key"
    )
    concurrency: int = Field(default=8, description="most requests in flight")
    attempts: int = Field(default=6, description="times a request is sent at most")
    timeout_seconds: float = 120.0
    longest_wait_seconds: float = 120.0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class JudgesDocument(Entry):
    """The judges that users add: judges.yaml of the data root."""

    judges: list[JudgeEntry | LocalEntry | GrpoEntry]


_MISSING = {
    "url": "it has no url; give the server's base URL as url and the model's name as model.",
    "model": "it has no model; give the server's base URL as url and the model's name as model.",
}


def judges_schema() -> dict[str, Any]:
    """Return the JSON schema of judges.yaml."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JudgesDocument.model_json_schema(),
    }


@dataclass(frozen=True)
class EndpointConfig:
    """A judge behind a server, as the user describes it."""

    server: Server
    asking: Asking
    auditor: AuditorPrompt
    prices: Prices = field(default_factory=Prices)
    # messages; a text that ends with the verdict marker; token ids of the model's own tokenizer
    form: str = "chat"
    # form tokens: "compact", a folder or a hub name
    tokenizer: str = ""
    tokenizer_revision: str | None = None
    budget_tokens: int = 5120
    max_failed: int = 0
    # characters of a run; cuts to the budget of tokens are the server's to count
    reading: JudgeInput = field(default_factory=JudgeInput)

    def prompt(self) -> EndpointPrompt:
        """Return what renders questions; form tokens loads its tokenizer."""
        if self.form == "tokens":
            return TokenPrompt(self._encoder())
        return (
            CompletionPrompt(self.auditor)
            if self.form == "completion"
            else ChatPrompt(self.auditor)
        )

    def settings(self) -> dict[str, Any]:
        """Return all settings that scores depend on: not prices or pace."""
        return {
            "url": self.server.plain_url,
            "model": self.server.model,
            "revision": self.server.revision,
            "asking": {**self.asking.to_dict(), "read": self.asking.read, "top": self.asking.top},
            "auditor": self.auditor.to_dict(),
            "form": self.form,
            "tokenizer": [self.tokenizer, self.tokenizer_revision],
            "budget_tokens": self.budget_tokens,
        }

    @property
    def sha256(self) -> str:
        """Hash of the settings: another one makes scores and certificates stale."""
        return sha256_bytes(canonical_json(self.settings()))

    def _encoder(self) -> PromptEncoder:
        from certify_assets.judges.lm.judge import load_tokenizer
        from certify_assets.judges.lm.prompt import PromptEncoder

        tokenizer = load_tokenizer(self.tokenizer, self.tokenizer_revision)
        return PromptEncoder(tokenizer, prompt=self.auditor, budget_tokens=self.budget_tokens)


def parse_judge(entry: Mapping[str, Any]) -> EndpointConfig:
    """Read one entry of `judges.yaml`."""
    found = validated(entry, JudgeEntry, missing=_MISSING)
    mode, votes = _mode(found.asking)
    if found.form not in FORMS or (found.form == "tokens" and mode != "logprob"):
        raise InputError(
            f"form is {found.form!r}; choose chat, completion or, with asking logprob, tokens."
        )
    _check_preset(found, mode)
    auditor = found.asked(auditor_prompt(mode, found.preset))
    words = auditor.words
    # in a chat the verdict begins the answer, so no marker precedes it
    chat = found.form == "chat"
    tokenizer, tokenizer_revision = _tokenizer(found)
    return EndpointConfig(
        server=Server(found.url, **_of(Server, found)),
        asking=Asking(
            mode=mode,
            votes=votes,
            words=(words[0].strip(), words[1].strip()) if chat else words,
            marker="" if chat else auditor.marker,
            **_of(Asking, found),
        ),
        auditor=auditor,
        prices=found.prices,
        form=found.form,
        tokenizer=tokenizer,
        tokenizer_revision=tokenizer_revision,
        budget_tokens=found.budget_tokens,
        max_failed=found.max_failed,
        reading=found.reading(JudgeInput()),
    )


def _of(kind: type[Server | Asking], found: JudgeEntry) -> dict[str, Any]:
    """Return the settings of an entry that server and questions know under the same name."""
    names = {item.name for item in fields(kind)} & JudgeEntry.model_fields.keys()
    return {name: getattr(found, name) for name in names}


def _mode(asking: str) -> tuple[str, int]:
    votes = _VOTES.fullmatch(asking)
    if votes is None and asking not in ("logprob", "cot"):
        raise InputError(f"asking is {asking!r}; choose logprob, cot, sc_5 or sc_10.")
    return ("vote", int(votes.group(1))) if votes else (asking, 5)


def _check_preset(found: JudgeEntry, mode: str) -> None:
    """Refuse a preset that there is not, and what it says itself."""
    if not found.preset:
        return
    if found.preset != PAPER:
        raise InputError(f"preset is {found.preset!r}; write {PAPER}, or take it out.")
    if mode == "logprob":
        raise InputError(
            f"preset {PAPER} asks for words, and asking is logprob; choose cot, sc_5 or sc_10, or "
            "take preset out."
        )
    written = found.prompt.model_fields_set & {"closing", "success", "fail"}
    own = ["temperature"] if found.temperature is not None else []
    own += [f"prompt.{name}" for name in sorted(written)]
    if own:
        raise InputError(f"preset {PAPER} has its own {own[0]}; take either out.")


def _tokenizer(found: JudgeEntry) -> tuple[str, str | None]:
    if found.form != "tokens":
        return "", None
    if not found.tokenizer:
        raise InputError(
            "form tokens needs the model's tokenizer; give tokenizer: compact, a folder or a hub "
            "name with tokenizer_revision."
        )
    return found.tokenizer, found.tokenizer_revision or None
