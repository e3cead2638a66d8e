"""The bodies of requests: which route, which fields, and how the answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from certify_assets.errors import InputError
from certify_assets.judges.endpoint.prompt import Question
from certify_assets.judges.endpoint.replies import Reply, read_logprobs, read_probability, read_text
from certify_assets.judges.endpoint.settings import Asking, Server

__all__ = ["Request", "is_chat", "per_text", "request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request and how its answer is read.

    Parameters
    ----------
    url : str
    payload : dict
    read : callable
    tokens : int
        Estimate of the tokens it uses: a quarter of its characters and the longest answer.
    """

    url: str
    payload: dict[str, Any]
    read: Callable[[Mapping[str, Any]], Reply]
    tokens: int


def is_chat(question: Question) -> bool:
    """Whether a question is a list of messages."""
    return not isinstance(question, str) and bool(question) and isinstance(question[0], Mapping)


def per_text(asking: Asking, read: str) -> int:
    """Requests a text costs."""
    return (
        asking.votes
        if asking.mode == "vote"
        else 2
        if asking.mode == "logprob" and read == "scoring"
        else 1
    )


def request(
    server: Server,
    asking: Asking,
    question: Question,
    *,
    read: str,
    ids: tuple[int, int] | None,
    index: int,
) -> Request:
    """Build request number ``index`` of a text.

    Parameters
    ----------
    server : Server
    asking : Asking
    question : messages, text or token ids
    read : str
        How a verdict is read in mode logprob.
    ids : tuple of int, optional
        Tokens of the two verdicts.
    index : int
        From 0 to `per_text` − 1.

    Raises
    ------
    InputError
        If the way to read verdicts needs token ids that are not known, or does not take messages.
    """
    chat = is_chat(question)
    if asking.mode != "logprob":
        fields: dict[str, Any] = {
            "max_tokens": asking.max_tokens,
            "temperature": asking.heat,
            "seed": asking.seed + index,
        }
        return _routed(server, asking, question, fields, read_text)
    first: dict[str, Any] = {"max_tokens": 1, "temperature": asking.heat}
    if read == "top":
        asked: dict[str, Any] = (
            {"logprobs": True, "top_logprobs": asking.top} if chat else {"logprobs": asking.top}
        )
        return _routed(
            server, asking, question, first | asked, partial(read_logprobs, names=asking.words)
        )
    if ids is None:
        raise InputError(
            f"reading verdicts by {read} needs their token ids and the server has no /tokenize; give verdict_ids."
        )
    if read == "token_ids":
        asked = {
            "logprobs": True if chat else 1,
            "logprob_token_ids": list(ids),
            "return_tokens_as_token_ids": True,
        }
        names = [f"token_id:{number}" for number in ids]
        return _routed(server, asking, question, first | asked, partial(read_logprobs, names=names))
    if chat:
        raise InputError(
            "reading verdicts by scoring takes a text or token ids, not messages; choose another way or a completion prompt."
        )
    return _scoring(server, asking, question, ids if index == 0 else ids[::-1])


def _routed(
    server: Server,
    asking: Asking,
    question: Question,
    fields: dict[str, Any],
    read: Callable[[Mapping[str, Any]], Reply],
) -> Request:
    chat = is_chat(question)
    content = (
        {"messages": list(question)}
        if chat
        else {"prompt": question if isinstance(question, str) else list(question)}
    )
    payload = _merged({"model": server.model, **content, **fields}, asking.extra)
    route = "/chat/completions" if chat else "/completions"
    return Request(
        server.plain_url + route, payload, read, _estimate(question, fields["max_tokens"])
    )


def _scoring(
    server: Server, asking: Asking, question: Question, labels: tuple[int, ...]
) -> Request:
    # the score is the probability of the first label: one request a verdict keeps small probabilities exact
    empty: str | list[int] = "" if isinstance(question, str) else []
    query = question if isinstance(question, str) else list(question)
    fields = {
        "model": server.model,
        "query": query,
        "items": [empty],
        "label_token_ids": list(labels),
        "apply_softmax": False,
    }
    return Request(
        f"{server.root_url}/generative_scoring",
        _merged(fields, asking.extra),
        read_probability,
        _estimate(question, 1),
    )


def _merged(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**fields, **extra}.items() if value is not None}


def _estimate(question: Question, answer: int) -> int:
    if isinstance(question, str):
        return len(question) // 4 + answer
    characters = sum(
        len(item.get("content", "")) if isinstance(item, Mapping) else 4 for item in question
    )
    return characters // 4 + answer
