"""One judge of `judges.yaml`: which server, how it is asked, what it costs, and what its scores are compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from certify_assets.errors import InputError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.endpoint.questions import (
    ChatPrompt,
    CompletionPrompt,
    EndpointPrompt,
    TokenPrompt,
    auditor_prompt,
)
from certify_assets.judges.endpoint.settings import Asking, Prices, Server
from certify_assets.judges.lm.prompt import AuditorPrompt

if TYPE_CHECKING:
    from certify_assets.judges.lm.prompt import PromptEncoder

__all__ = ["FORMS", "EndpointConfig", "ParityConfig", "parse_judge"]

FORMS = ("chat", "completion", "tokens")

_WORDS_ONLY = "it answers in words (mode {mode}), which have no log-probabilities to compare with those of a local model"
_VOTES = re.compile(r"sc_([1-9][0-9]{0,2})")
_SERVER = {
    "concurrency": int,
    "attempts": int,
    "timeout_seconds": float,
    "longest_wait_seconds": float,
    "requests_per_minute": float,
    "tokens_per_minute": float,
    "key_variable": str,
    "revision": str,
}
_ASKING = {
    "temperature": float,
    "seed": int,
    "max_tokens": int,
    "read": str,
    "top": int,
    "extra": dict,
}
_OWN = {
    "name": str,
    "url": str,
    "model": str,
    "asking": str,
    "form": str,
    "tokenizer": str,
    "tokenizer_revision": str,
    "budget_tokens": int,
    "max_failed": int,
    "prompt": dict,
    "prices": dict,
    "parity": dict,
    "parity_reason": str,
}
_PARITY = {
    "model": str,
    "revision": str,
    "adapter": str,
    "rows": int,
    "tolerance": float,
    "least_agreement": float,
}
_PRICES = {"prompt": float, "completion": float, "currency": str}
_CALLED = {int: "a whole number", float: "a number", str: "a text", dict: "a mapping"}


@dataclass(frozen=True, slots=True)
class ParityConfig:
    """The local model that an endpoint's log-probabilities must agree with before its scores may certify.

    Parameters
    ----------
    model : str
        "compact", a folder, or the name of a hub repository.
    revision : str, optional
        Commit of the repository.
    adapter : str
        LoRA adapter on it: the name of a judge of the platform whose adapter is stored for the corpus, or a folder; empty for none.
    rows : int
        Runs of CAL that are compared.
    tolerance : float
        Largest difference of log-odds allowed; .02 lets bfloat16 weights pass.
    least_agreement : float
        Least Kendall tau-b.
    """

    model: str
    revision: str | None = None
    adapter: str = ""
    rows: int = 32
    tolerance: float = 0.02
    least_agreement: float = 0.99

    def __post_init__(self) -> None:
        if self.rows < 2 or not self.tolerance > 0 or not 0 < self.least_agreement <= 1:
            raise InputError(
                "parity needs at least 2 rows, a tolerance above 0 and a least_agreement in (0, 1]; correct its settings."
            )


@dataclass(frozen=True)
class EndpointConfig:
    """A judge behind a server, as the user describes it.

    Parameters
    ----------
    server : Server
    asking : Asking
    auditor : AuditorPrompt
        The prompt of all judges, its question that of the mode.
    prices : Prices
    form : {"chat", "completion", "tokens"}
        Messages; a text that ends with the verdict marker; token ids of the model's own tokenizer.
    tokenizer : str
        Form tokens: "compact", a folder or a hub name; by default the model of the parity test.
    tokenizer_revision : str, optional
    budget_tokens : int
        Longest prompt; what does not fit is cut from the middle of the run.
    max_failed : int
        Runs that may stay unanswered, and unscored, before a scoring ends with an error.
    parity : ParityConfig or None
    no_parity : str
        Why there is no parity test; every certificate carries it.
    """

    server: Server
    asking: Asking
    auditor: AuditorPrompt
    prices: Prices = field(default_factory=Prices)
    form: str = "chat"
    tokenizer: str = ""
    tokenizer_revision: str | None = None
    budget_tokens: int = 5120
    max_failed: int = 0
    parity: ParityConfig | None = None
    no_parity: str = ""

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
        """Return everything the scores depend on that was written down: not prices, pace, or the parity test."""
        return {
            "url": self.server.plain_url,
            "model": self.server.model,
            "revision": self.server.revision,
            "asking": {**self.asking.to_dict(), "read": self.asking.read, "top": self.asking.top},
            "auditor": asdict(self.auditor),
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
    """Read one entry of `judges.yaml`.

    Raises
    ------
    InputError
        For an unknown setting, a value of another kind, or settings that do not go together; no value is repeated, it may be a key.
    """
    found = _typed(entry, {**_OWN, **_SERVER, **_ASKING}, "a judge")
    for name in ("url", "model"):
        if name not in found:
            raise InputError(
                f"it has no {name}; give the server's base URL as url and the model's name as model."
            )
    mode, votes = _mode(found.get("asking", "logprob"))
    form = found.get("form", "chat")
    if form not in FORMS or (form == "tokens" and mode != "logprob"):
        raise InputError(
            f"form is {form!r}; choose chat, completion or, with asking logprob, tokens."
        )
    texts = _typed(
        found.get("prompt", {}), dict.fromkeys(AuditorPrompt.__dataclass_fields__, str), "prompt"
    )
    auditor = auditor_prompt(mode, **texts)
    parity, reason = _parity(found, mode)
    return EndpointConfig(
        server=Server(found["url"], found["model"], **_chosen(found, _SERVER)),
        asking=_asking(found, auditor, mode, votes=votes, form=form),
        auditor=auditor,
        prices=Prices(**_typed(found.get("prices", {}), _PRICES, "prices")),
        form=form,
        **_tokenizer(found, parity, form),
        **_chosen(found, ("budget_tokens", "max_failed")),
        parity=parity,
        no_parity=reason,
    )


def _mode(asking: str) -> tuple[str, int]:
    votes = _VOTES.fullmatch(asking)
    if votes is None and asking not in ("logprob", "cot"):
        raise InputError(f"asking is {asking!r}; choose logprob, cot, sc_5 or sc_10.")
    return ("vote", int(votes.group(1))) if votes else (asking, 5)


def _asking(
    found: Mapping[str, Any], auditor: AuditorPrompt, mode: str, *, votes: int, form: str
) -> Asking:
    words = auditor.words
    # in a chat the verdict begins the answer, so nothing stands before it
    said = (
        {"words": (words[0].strip(), words[1].strip())}
        if form == "chat"
        else {"words": words, "marker": auditor.marker}
    )
    return Asking(mode=mode, votes=votes, **said, **_chosen(found, _ASKING))


def _tokenizer(found: Mapping[str, Any], parity: ParityConfig | None, form: str) -> dict[str, Any]:
    if form != "tokens":
        return {}
    if "tokenizer" in found:
        return {
            "tokenizer": found["tokenizer"],
            "tokenizer_revision": found.get("tokenizer_revision"),
        }
    if parity is None:
        raise InputError(
            "form tokens needs the model's tokenizer; give tokenizer: compact, a folder or a hub name with tokenizer_revision."
        )
    return {"tokenizer": parity.model, "tokenizer_revision": parity.revision}


def _parity(found: Mapping[str, Any], mode: str) -> tuple[ParityConfig | None, str]:
    asked, reason = found.get("parity"), found.get("parity_reason", "").strip()
    if mode != "logprob":
        if isinstance(asked, Mapping):
            raise InputError(
                "parity compares log-probabilities, and answers in words have none; take parity out."
            )
        return None, _WORDS_ONLY.format(mode=found["asking"]) + (f"; {reason}" if reason else "")
    if isinstance(asked, Mapping):
        settings = _typed(asked, _PARITY, "parity")
        if "model" not in settings:
            raise InputError(
                "parity has no model; name the local counterpart: compact, a folder, or a hub name with its revision."
            )
        return ParityConfig(**settings), ""
    if asked == "none" and reason:
        return None, reason
    raise InputError(
        "it does not say what its log-probabilities are compared with; give parity: {model: …}, or parity: none with a parity_reason "
        "that every certificate then carries."
    )


def _typed(entry: Any, kinds: Mapping[str, type], where: str) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is no mapping of settings to values; write one setting a line.")
    unknown = next((str(name) for name in entry if name not in kinds), None)
    if unknown is not None:
        hint = (
            " The key itself is never written down: name its environment variable by key_variable."
            if "key" in unknown.lower()
            else ""
        )
        raise InputError(
            f"{where} has no setting {unknown[:40]!r}; it has {', '.join(sorted(kinds))}.{hint}"
        )
    return {
        name: _value(name, value, kinds[name]) for name, value in entry.items() if value is not None
    }


def _value(name: str, value: Any, kind: type) -> Any:
    if name == "parity" and value == "none":
        return value
    fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not fits or isinstance(value, bool):
        raise InputError(
            f"{name} is of another kind than {_CALLED[kind]}; correct it (texts that look like numbers need quotes)."
        )
    return value


def _chosen(found: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}
