"""The question to a server, from the auditor's prompt, and the meaning of its answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from certify_assets.corpora.rendering import defuse
from certify_assets.documents import Document
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.endpoint.settings import EndpointEntry

#: messages of a chat, or one text
Question = Sequence[Mapping[str, str]] | str

_MARKS = re.compile(r"P_SUCCESS(?==)|VERDICT(?=:)", re.IGNORECASE)
_NOTE = "\n[middle of the run cut]\n  "
# English text has about four characters a token, pages and code about three
_CHARACTERS = 3


def prompt_sha256(entry: EndpointEntry) -> str:
    """Hash everything of a question except the run."""
    return sha256_bytes(canonical_json({"kind": entry.form, **entry.auditor.model_dump()}))


def render(entry: EndpointEntry, text: str) -> Question:
    """Return the question about a rendered run; chat markup and verdict marks in the run are broken
    up.
    """
    auditor = entry.auditor
    asked = f"{auditor.opening}{_safe(text, auditor.marker)}\n{auditor.closing}"
    if entry.form == "chat":
        # the marker is not sent: the verdict is the first token of the answer
        return auditor.messages(asked)
    return f"{auditor.system}\n\n{asked}\n{auditor.marker}"


def payload(entry: EndpointEntry, text: str, index: int = 0) -> dict[str, Any]:
    """Return the body of a text's request number ``index``; the middle of a long run is cut."""
    asked = render(entry, text)
    excess = characters(asked) - _CHARACTERS * entry.budget_tokens
    if excess > 0:
        kept = max(0, len(text) - excess - len(_NOTE))
        head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
        asked = render(entry, f"{head}{_NOTE}{tail}")
    chat = not isinstance(asked, str)
    fields: dict[str, Any] = {"max_tokens": 1, "temperature": entry.heat}
    if entry.mode != "logprob":
        fields |= {"max_tokens": entry.max_tokens, "seed": entry.seed + index}
    elif chat:
        fields |= {"logprobs": True, "top_logprobs": entry.top}
    else:
        fields["logprobs"] = entry.top
    content = {"messages" if chat else "prompt": asked}
    body = {"model": entry.model, **content, **fields, **entry.extra}
    return {name: value for name, value in body.items() if value is not None}


def characters(question: Question) -> int:
    """Return the number of characters of a question."""
    if isinstance(question, str):
        return len(question)
    return sum(len(message["content"]) for message in question)


def _safe(text: str, marker: str) -> str:
    """Break up chat markup and verdict marks, so that a run cannot answer for the judge."""
    broken = _MARKS.sub(lambda match: f"{match.group()} ", defuse(text))
    return re.sub(
        re.escape(marker),
        lambda match: f"{match.group()[:-1]} {match.group()[-1]}",
        broken,
        flags=re.IGNORECASE,
    )


# vLLM and others write −9999 for a probability of zero, or for a token that they did not keep
_NO_PROBABILITY = -9999.0
_ROUNDING = 1e-5
_STATED = re.compile(r"P_SUCCESS")
_PERCENT = re.compile(r"P_SUCCESS ?= ?([0-9]{1,3}(?:\.[0-9]{1,4})?)(?!\w|[.,]\d|[-–/])")
_CLAIMED = re.compile(r"VERDICT")
_VERDICT = re.compile(r"VERDICT: ?(SUCCESS|FAIL)(?![\w/|])(?! or\b)")


class MisshapenError(CertifyError):
    """An answer that does not have the form of the interface."""


class Reply(Document):
    """The stored part of one answer."""

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
    def percent(self) -> float | None:
        """The percentage, 0 to 100, that the last P_SUCCESS= states; None if unreadable."""
        found = self._last(_STATED, _PERCENT)
        value = None if found is None else float(found)
        return value if value is not None and value <= 100 else None

    @property
    def vote(self) -> bool | None:
        """Whether the last VERDICT: is SUCCESS; None if unreadable."""
        found = self._last(_CLAIMED, _VERDICT)
        return None if found is None else found == "SUCCESS"

    def is_read(self, mode: str) -> bool:
        """Whether a verdict was found."""
        if mode == "logprob":
            return not self.reason
        return (self.percent if mode == "cot" else self.vote) is not None

    def _last(self, claim: re.Pattern[str], strict: re.Pattern[str]) -> str | None:
        starts = [match.start() for match in claim.finditer(self.text)]
        match = strict.match(self.text, starts[-1]) if starts else None
        # "P_SUCCESS=8" at the very end of an answer that was cut may have been 85
        if match is None or (self.cut and match.end() == len(self.text)):
            return None
        return match.group(1)


def read_answer(entry: EndpointEntry, body: Mapping[str, Any]) -> Reply:
    """Parse a server's answer to a request."""
    choices, usage, model = body.get("choices"), body.get("usage"), body.get("model")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MisshapenError("the server's answer has no choice.")
    found = _logprobs(choices[0], entry.words) if entry.mode == "logprob" else _text(choices[0])
    return Reply(
        **found,
        model=model[:200] if isinstance(model, str) else "",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def _logprobs(choice: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Read the log-probabilities of two tokens at the first position of an answer."""
    found = _first_position(choice)
    numbers = [value for word in words if (value := found.get(word)) is not None]
    if len(numbers) < len(words) or any(number <= _NO_PROBABILITY for number in numbers):
        return {"reason": "missing"}
    if not all(math.isfinite(number) and number <= _ROUNDING for number in numbers):
        return {"reason": "not_finite"}
    return {"logs": (min(numbers[0], 0.0), min(numbers[1], 0.0))}


def _text(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text of an answer; a reasoning model that was cut off sends no content."""
    message = choice.get("message")
    text = message.get("content") or "" if isinstance(message, dict) else choice.get("text")
    if not isinstance(text, str):
        raise MisshapenError("the server's answer has no text.")
    return {"text": text, "cut": choice.get("finish_reason") == "length"}


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


def _number(value: Any) -> float | None:
    """Return a number of a server; None stays None, and anything else is NaN."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else None


def conclude(mode: str, replies: Sequence[Reply], votes: int) -> tuple[float, float, str]:
    """Return log p(success), log p(failure) and ""; without a verdict NaN, NaN and the reason."""
    # modes cot and vote state p coarsely; (100 p + ½)/101 and (k p + ½)/(k + 1) keep the order and
    # keep 0 and 1 finite; a vote needs more than half of its k answers readable
    if mode == "logprob":
        logs = replies[0].logs
        return (math.nan, math.nan, replies[0].reason) if logs is None else (*logs, "")
    if mode == "cot":
        percent = replies[0].percent
        p = None if percent is None else (percent + 0.5) / 101
    else:
        read = [reply.vote for reply in replies if reply.vote is not None]
        many = 2 * len(read) > votes
        p = (votes * sum(read) / len(read) + 0.5) / (votes + 1) if many else None
    return (math.nan, math.nan, "unparsed") if p is None else (math.log(p), math.log1p(-p), "")
