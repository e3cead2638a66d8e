"""Prompts within a budget of tokens where the tokenizer is the server's: it counts where it can, else characters stand for tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certify_assets.errors import CertifyError
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.endpoint.client import Client
from certify_assets.judges.endpoint.journal import Journal
from certify_assets.judges.endpoint.prompt import Question

if TYPE_CHECKING:
    from certify_assets.judges.endpoint.scoring import Asked

__all__ = ["NotKeptError", "can_count", "fitted"]

_NOTE = "\n[middle of the run cut]\n  "
# marks of a chat template, beyond the bytes of the messages
_TEMPLATE = 64
# English text has about four characters a token, pages and code about three
_CHARACTERS = 3
_ROUNDS = 8


class NotKeptError(CertifyError):
    """A scoring that may not ask the server needs an answer that the journal does not hold."""


async def can_count(client: Client) -> bool:
    """Whether the server counts tokens for us, as vLLM does."""
    try:
        answer = await client.ask(
            f"{client.server.root_url}/tokenize", {"model": client.server.model, "prompt": "one"}
        )
    except CertifyError:
        return False
    return type(answer.get("count")) is int


async def fitted(
    client: Client, journal: Journal, asked: Asked, text: str
) -> tuple[Question, bool]:
    """Render a text, cut in its middle until its prompt fits.

    Parameters
    ----------
    client : Client
    journal : Journal
        Keeps the counts, so that a scoring can be repeated without the server.
    asked : Asked
        With the budget; none where the prompt cuts for itself.
    text : str

    Returns
    -------
    question : messages, text or token ids
    cut : bool
        Whether something of the run is missing.
    """
    whole = question = asked.prompt.render(text)
    budget = asked.budget_tokens
    # a token is at least one byte
    if budget is None or _characters(whole, bytes_=True) + _TEMPLATE <= budget:
        return whole, False
    if not asked.counts:
        excess = _characters(whole) - _CHARACTERS * budget
        return (
            (whole, False)
            if excess <= 0
            else (asked.prompt.render(_cut(text, len(text) - excess - len(_NOTE))), True)
        )
    kept = len(text)
    for _ in range(_ROUNDS):
        count = await _count(client, journal, asked, question)
        if count <= budget:
            break
        # as many characters as the excess has on average, and a tenth more: the next count mostly fits
        kept = min(
            kept - 1,
            kept - int(1.1 * (count - budget) * _characters(question) / count) - len(_NOTE),
        )
        question = asked.prompt.render(_cut(text, kept))
    return question, question != whole


async def _count(client: Client, journal: Journal, asked: Asked, question: Question) -> int:
    if isinstance(question, str):
        content: dict[str, Any] = {"prompt": question}
    else:
        content = {"messages": list(question), "add_generation_prompt": True}
    payload = {"model": asked.server.model, **content}
    key = sha256_bytes(canonical_json({"server": dict(asked.identity), "count": payload}))
    known = journal.get(key)
    if known is None:
        if asked.replay:
            raise NotKeptError("the journal does not hold how long a prompt is.")
        answer = await client.ask(f"{asked.server.root_url}/tokenize", payload)
        known = {"count": answer.get("count")}
        journal.put(key, known)
    count = known["count"]
    return count if type(count) is int else 0


def _characters(question: Question, *, bytes_: bool = False) -> int:
    texts = (
        [question]
        if isinstance(question, str)
        else [item["content"] for item in question if isinstance(item, Mapping)]
    )
    return sum(len(text.encode("utf-8", "replace")) if bytes_ else len(text) for text in texts)


def _cut(text: str, kept: int) -> str:
    kept = max(0, kept)
    return f"{text[: kept - kept // 2]}{_NOTE}{text[len(text) - kept // 2 :]}"
