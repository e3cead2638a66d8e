"""What a server is asked, in the words of the auditor's prompt, and what its answer means."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, TypeGuard

from certify_assets.corpora.rendering import defuse
from certify_assets.documents import Document
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.endpoint.settings import PAPER, EndpointEntry
from certify_assets.judges.lm.prompt import AuditorPrompt

Question = Sequence[Mapping[str, str]] | str

_MARKS = re.compile(r"P_SUCCESS(?==)|VERDICT(?=:)", re.IGNORECASE)


class EndpointPrompt(Protocol):
    """What turns a rendered trajectory into a question."""

    @property
    def sha256(self) -> str:
        """Hash of everything but the trajectory."""

    def render(self, text: str) -> Question:
        """Return messages, or a text that ends where the verdict begins."""


def _safe(text: str, marker: str) -> str:
    """Break up chat markup and what an answer is read by: a run cannot answer itself."""
    broken = _MARKS.sub(lambda match: f"{match.group()} ", defuse(text))
    return re.sub(
        re.escape(marker),
        lambda match: f"{match.group()[:-1]} {match.group()[-1]}",
        broken,
        flags=re.IGNORECASE,
    )


@dataclass(frozen=True, slots=True)
class _TextPrompt:
    auditor: AuditorPrompt = field(default_factory=AuditorPrompt)

    kind: ClassVar[str]

    @property
    def sha256(self) -> str:
        """Hash of the texts."""
        return sha256_bytes(canonical_json({"kind": self.kind, **self.auditor.model_dump()}))

    def _asked(self, text: str) -> str:
        auditor = self.auditor
        return f"{auditor.opening}{_safe(text, auditor.marker)}\n{auditor.closing}"


class ChatPrompt(_TextPrompt):
    """Two messages, as the local encoder puts into a chat template: the rules; run and question."""

    # the marker is not sent: the verdict is the first token of the answer
    kind = "chat"

    def render(self, text: str) -> list[dict[str, str]]:
        """Return the messages; chat markup inside the run is broken up."""
        return self.auditor.messages(self._asked(text))


class CompletionPrompt(_TextPrompt):
    """One text that ends with the verdict marker, for servers without a chat template."""

    kind = "completion"

    def render(self, text: str) -> str:
        """Return the text; chat markup inside the run is broken up."""
        return f"{self.auditor.system}\n\n{self._asked(text)}\n{self.auditor.marker}"


def prompt_of(entry: EndpointEntry) -> EndpointPrompt:
    """Return what renders the questions of a judge."""
    return (ChatPrompt if entry.form == "chat" else CompletionPrompt)(entry.auditor)


# vLLM and others write −9999 for a probability of zero, or for a token that they did not keep
_NO_PROBABILITY = -9999.0
_ROUNDING = 1e-5
_STATED = re.compile(r"P_SUCCESS")
_PERCENT = re.compile(r"P_SUCCESS ?= ?([0-9]{1,3}(?:\.[0-9]{1,4})?)(?!\w|[.,]\d|[-–/])")
_CLAIMED = re.compile(r"VERDICT")
_VERDICT = re.compile(r"VERDICT: ?(SUCCESS|FAIL)(?![\w/|])(?! or\b)")
_WORD = re.compile(
    r"[\W_]*(?:VERDICT:[\W_]*)?(SUCCESS|FAIL)(?![^\W_]|[/|]|\W+(?:or\b|SUCCESS|FAIL))"
)


class MisshapenError(CertifyError):
    """An answer of another form than the interface has."""


class Reply(Document):
    """What is kept of one answer."""

    TITLE = "answer that was kept"
    SCHEMA = "certify_assets/answer/1"
    REFUSAL = IntegrityError

    # log-probabilities of success and failure
    logs: tuple[float, float] | None = None
    text: str = ""  # modes cot and vote: what was written
    cut: bool = False  # whether it ended at the limit of tokens
    # why there is no number: missing (not among the tokens returned) or not_finite; empty otherwise
    reason: str = ""
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens; 0 where the server does not count."""
        return self.prompt_tokens or 0, self.completion_tokens or 0


def read_logprobs(body: Mapping[str, Any], names: Sequence[str]) -> Reply:
    """Read the log-probabilities of two tokens at the first position of an answer."""
    choice = _choice(body)
    found = _first_position(choice)
    numbers = [value for name in names if (value := found.get(name)) is not None]
    if len(numbers) < len(names) or any(number <= _NO_PROBABILITY for number in numbers):
        return _reply(body, reason="missing")
    if not all(math.isfinite(number) and number <= _ROUNDING for number in numbers):
        return _reply(body, reason="not_finite")
    return _reply(body, logs=(min(numbers[0], 0.0), min(numbers[1], 0.0)))


def read_text(body: Mapping[str, Any]) -> Reply:
    """Read what was written."""
    choice = _choice(body)
    message = choice.get("message")
    text = message.get("content", "") if isinstance(message, dict) else choice.get("text")
    if text is not None and not isinstance(text, str):
        raise MisshapenError("the server's answer has a message that is no text.")
    if text is None and not isinstance(message, dict):
        raise MisshapenError("the server's answer has neither a message nor a text.")
    return _reply(body, text=text or "", cut=choice.get("finish_reason") == "length")


def stated_probability(text: str, *, cut: bool = False) -> float | None:
    """Return the percentage, 0 to 100, that the last P_SUCCESS= states; None if unreadable."""
    found = _last(_STATED, _PERCENT, text, cut=cut)
    value = None if found is None else float(found)
    return value if value is not None and value <= 100 else None


def stated_vote(text: str, *, cut: bool = False) -> bool | None:
    """Return whether the last VERDICT: of a text is SUCCESS; None if unreadable."""
    found = _last(_CLAIMED, _VERDICT, text, cut=cut)
    return None if found is None else found == "SUCCESS"


def stated_word(text: str, *, cut: bool = False) -> bool | None:
    """Return whether the first word of a text is SUCCESS; None if it is neither verdict."""
    match = _WORD.match(text)
    # "FAIL" at the very end of an answer that was cut may have been another word
    if match is None or (cut and match.end() == len(text)):
        return None
    return match.group(1) == "SUCCESS"


def read_vote(reply: Reply, preset: str = "") -> bool | None:
    """Return the vote of an answer as it was asked for; None if unreadable."""
    return (stated_word if preset == PAPER else stated_vote)(reply.text, cut=reply.cut)


def conclude(
    mode: str, replies: Sequence[Reply], votes: int, preset: str = ""
) -> tuple[float, float, str]:
    """Return log p(success), log p(failure) and, where there is no verdict (NaN twice), why."""
    # modes cot and vote state p coarsely; (100 p + ½)/101 and (k p + ½)/(k + 1) keep the order and
    # keep 0 and 1 finite; a vote needs more than half of its k answers readable
    reason = next((reply.reason for reply in replies if reply.reason), "")
    if mode == "logprob":
        logs = replies[0].logs
        return (math.nan, math.nan, reason or "missing") if logs is None else (*logs, "")
    if mode == "cot":
        percent = stated_probability(replies[0].text, cut=replies[0].cut)
        return (math.nan, math.nan, "unparsed") if percent is None else _logs((percent + 0.5) / 101)
    read = [vote for reply in replies if (vote := read_vote(reply, preset)) is not None]
    if 2 * len(read) <= votes:
        return math.nan, math.nan, "unparsed"
    return _logs((votes * sum(read) / len(read) + 0.5) / (votes + 1))


def _logs(p: float) -> tuple[float, float, str]:
    return math.log(p), math.log1p(-p), ""


def _last(claim: re.Pattern[str], strict: re.Pattern[str], text: str, *, cut: bool) -> str | None:
    starts = [match.start() for match in claim.finditer(text)]
    match = strict.match(text, starts[-1]) if starts else None
    # "P_SUCCESS=8" at the very end of an answer that was cut may have been 85
    if match is None or (cut and match.end() == len(text)):
        return None
    return match.group(1)


def _choice(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MisshapenError("the server's answer has no choice.")
    return choices[0]


def _first_position(choice: Mapping[str, Any]) -> dict[str, float | None]:
    block = choice.get("logprobs")
    if not isinstance(block, dict):
        raise MisshapenError(
            "the server's answer has no log-probabilities; choose asking cot or sc_5."
        )
    content, tops = block.get("content"), block.get("top_logprobs")
    if isinstance(content, list) and content and isinstance(content[0], dict):
        entries = content[0].get("top_logprobs") or []
        listed = [content[0], *entries] if isinstance(entries, list) else []
        return {
            item["token"]: _number(item.get("logprob"))
            for item in listed
            if isinstance(item, dict) and isinstance(item.get("token"), str)
        }
    if isinstance(tops, list) and tops and isinstance(tops[0], dict):
        return {token: _number(value) for token, value in tops[0].items()}
    raise MisshapenError(
        "the server's answer lists no tokens; choose asking cot or sc_5 for this server."
    )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> float | None:
    """Return a number of a server; None stays None, and anything else is NaN."""
    return None if value is None else float(value) if _is_number(value) else math.nan


def _reply(
    body: Mapping[str, Any],
    *,
    logs: tuple[float, float] | None = None,
    text: str = "",
    cut: bool = False,
    reason: str = "",
) -> Reply:
    usage = body.get("usage")
    return Reply(
        logs=logs,
        text=text,
        cut=cut,
        reason=reason,
        model=_name(body.get("model")),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def _name(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else None


@dataclass(frozen=True, slots=True)
class Request:
    """One request and how its answer is read."""

    url: str
    payload: dict[str, Any]
    read: Callable[[Mapping[str, Any]], Reply]

    @property
    def tokens(self) -> int:
        """Estimate of the tokens it uses: a quarter of its characters and the longest answer."""
        question = self.payload.get("messages") or self.payload["prompt"]
        return characters(question) // 4 + int(self.payload.get("max_tokens") or 0)


def characters(question: Question) -> int:
    """Return the number of characters of a question."""
    if isinstance(question, str):
        return len(question)
    return sum(len(message["content"]) for message in question)


def request(
    entry: EndpointEntry,
    question: Question,
    index: int = 0,
) -> Request:
    """Build request number ``index`` of a text."""
    chat = not isinstance(question, str)
    fields: dict[str, Any] = {"max_tokens": 1, "temperature": entry.heat}
    reader: Callable[[Mapping[str, Any]], Reply] = read_text
    if entry.mode != "logprob":
        fields |= {"max_tokens": entry.max_tokens, "seed": entry.seed + index}
    else:
        in_chat = {"logprobs": True, "top_logprobs": entry.top}
        fields |= in_chat if chat else {"logprobs": entry.top}
        reader = partial(read_logprobs, names=entry.words)
    asked = question if isinstance(question, str) else list(question)
    content = {"messages" if chat else "prompt": asked}
    body = {"model": entry.model, **content, **fields, **entry.extra}
    return Request(
        entry.plain_url + ("/chat/completions" if chat else "/completions"),
        {name: value for name, value in body.items() if value is not None},
        reader,
    )
