"""What a server is, and by which of its ways a verdict is read; settled by real requests before anything is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from certify_assets.errors import CertifyError, InputError
from certify_assets.judges.endpoint.client import Client, RefusedError, UnavailableError
from certify_assets.judges.endpoint.fitting import can_count
from certify_assets.judges.endpoint.journal import Journal
from certify_assets.judges.endpoint.replies import MisshapenError, Reply
from certify_assets.judges.endpoint.requests import is_chat, request
from certify_assets.judges.endpoint.scoring import Asked, ask_once
from certify_assets.judges.endpoint.settings import READS, Asking, Server

__all__ = ["connect"]

# stands for a run in the request that settles how verdicts are read
_PROBE = "TASK\n  none\n"


async def connect(asked: Asked, journal_path: Path | None) -> Asked:
    """Complete what every request shares: the server's identity, the verdicts' tokens, the way to read them.

    Parameters
    ----------
    asked : Asked
        Without identity; `read` may be "auto".
    journal_path : Path, optional
        Keeps the answer to the request that settles the way.

    Raises
    ------
    InputError, UnavailableError
        If the server cannot be used.
    """
    async with Client(asked.server) as client:
        counts = asked.budget_tokens is not None and await can_count(client)
        asked = replace(asked, identity=await _identity(client), counts=counts)
        if asked.asking.mode != "logprob":
            return replace(asked, read="top")
        ids = asked.ids or (
            None if asked.read == "top" else await _verdict_ids(client, asked.asking)
        )
        asked = replace(asked, ids=ids)
        if asked.read != "auto":
            return asked
        with Journal(journal_path) as journal:
            return await _settled(client, journal, asked)


async def _identity(client: Client) -> dict[str, Any]:
    server = client.server
    listed = await _told(client, f"{server.plain_url}/models")
    version = (await _told(client, f"{server.root_url}/version")).get("version")
    said = {"version": version if isinstance(version, str) else "", **_entry(listed, server)}
    return {"url": server.plain_url, "revision": server.revision, **said}


async def _told(client: Client, url: str) -> Mapping[str, Any]:
    try:
        return await client.ask(url, None)
    except UnavailableError as error:
        if not error.status:
            raise UnavailableError(f"{error}; start the server, or correct the url.", 0) from None
    except CertifyError:
        # a server, or a key, may be good for verdicts and not for this; whether it is, the first verdict says
        pass
    return {}


def _entry(listed: Mapping[str, Any], server: Server) -> dict[str, Any]:
    data = listed.get("data")
    for item in data if isinstance(data, list) else []:
        if isinstance(item, dict) and item.get("id") == server.model:
            return {
                name: item[name]
                for name in ("parent", "max_model_len", "owned_by")
                if isinstance(item.get(name), (str, int))
            }
    return {}


async def _verdict_ids(client: Client, asking: Asking) -> tuple[int, int] | None:
    before = await _tokens(client, asking.marker) if asking.marker else []
    found: list[int] = []
    for word in asking.words:
        whole = await _tokens(client, asking.marker + word)
        if (
            before is None
            or whole is None
            or whole[: len(before)] != before
            or len(whole) != len(before) + 1
        ):
            return None
        found.append(whole[-1])
    return (found[0], found[1]) if found[0] != found[1] else None


async def _tokens(client: Client, text: str) -> list[int] | None:
    payload = {"model": client.server.model, "prompt": text, "add_special_tokens": False}
    try:
        answer = await client.ask(f"{client.server.root_url}/tokenize", payload)
    except CertifyError:
        return None
    tokens = answer.get("tokens")
    return (
        tokens if isinstance(tokens, list) and all(type(token) is int for token in tokens) else None
    )


async def _settled(client: Client, journal: Journal, asked: Asked) -> Asked:
    question = asked.prompt.render(_PROBE)
    said = "it knows none of the ways"
    for read in READS:
        if read != "top" and (asked.ids is None or (read == "scoring" and is_chat(question))):
            continue
        item = request(asked.server, asked.asking, question, read=read, ids=asked.ids, index=0)
        try:
            reply, _ = await ask_once(client, journal, asked, item)
        except (RefusedError, MisshapenError) as error:
            said = str(error).rstrip(".")
            continue
        if read == "top" or _exact(reply):
            return replace(asked, read=read)
    raise InputError(
        f"{asked.server.plain_url} gives no log-probabilities of verdicts ({said}); check URL and model, or choose mode cot or vote."
    )


def _exact(reply: Reply) -> bool:
    # a server that does not know the field leaves it out of account and returns other tokens
    return reply.reason != "missing"
