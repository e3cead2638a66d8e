"""Any model behind an OpenAI-compatible endpoint as an agent of the generator.

Settings come from the environment: ``CERTIFY_MODEL_URL`` (base URL, the part before ``/chat/completions``),
``CERTIFY_MODEL_NAME`` and, where the endpoint wants one, ``CERTIFY_MODEL_KEY``. Tested at the edge of the protocol against
a local server; not tried with a real model.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass, field

from certify_assets.errors import InputError
from certify_assets.research.miniwob.hands import Hands, Page, Stuck
from certify_assets.research.miniwob.words import name_of

__all__ = ["MODEL_PREFIX", "ModelAgent", "parse_reply"]

MODEL_PREFIX = "model:"
MAX_TURNS = 12
SYSTEM = """You act on a small web page. Each turn you get the task and the numbered elements that are visible. Answer with one line:
click N
type N "text"
choose N "option"
submit
claim "what you did and whether it is done"
Nothing else. Use claim as the last answer."""
_REPLY = re.compile(
    r"^\s*(click|type|choose|submit|claim)\b\s*(\d+)?\s*(?:\"(.*)\")?\s*$",
    re.IGNORECASE | re.MULTILINE,
)


def parse_reply(text: str) -> tuple[str, int | None, str]:
    """Return (verb, element number, text) of the first line that is an action; a reply without one is a claim that it failed."""
    found = _REPLY.search(text)
    if not found:
        return "claim", None, "not done: no readable action"
    return (
        found.group(1).lower(),
        int(found.group(2)) if found.group(2) else None,
        found.group(3) or "",
    )


@dataclass(slots=True)
class ModelAgent:
    """One attempt of a model: asked for an action a turn, until it claims or the turns are used up."""

    url: str
    model: str
    key: str = field(default="", repr=False)
    timeout_s: float = 60.0

    @classmethod
    def from_environment(cls) -> ModelAgent:
        """Return the agent that the environment describes.

        Raises
        ------
        InputError
            If the base URL or the model's name is not set.
        """
        url, model = (
            os.environ.get("CERTIFY_MODEL_URL", ""),
            os.environ.get("CERTIFY_MODEL_NAME", ""),
        )
        if not url or not model:
            raise InputError(
                "A model agent needs CERTIFY_MODEL_URL (an OpenAI-compatible base URL) and CERTIFY_MODEL_NAME; set both."
            )
        return cls(url.rstrip("/"), model, os.environ.get("CERTIFY_MODEL_KEY", ""))

    @property
    def name(self) -> str:
        """The agent's name in trajectories."""
        return MODEL_PREFIX + self.model

    def ask(self, messages: list[dict[str, str]]) -> str:
        """Return the endpoint's answer to a conversation, at temperature 0.

        Raises
        ------
        InputError
            If the endpoint refuses, cannot be reached, or answers in another form.
        """
        body = json.dumps({"model": self.model, "messages": messages, "temperature": 0}).encode(
            "utf-8"
        )
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self.key}"} if self.key else {}
        )
        request = urllib.request.Request(f"{self.url}/chat/completions", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            raise InputError(
                f"{self.url} refused the request with status {error.code}; check the model's name and the key."
            ) from None
        except OSError as error:
            raise InputError(
                f"{self.url} cannot be reached ({error}); check CERTIFY_MODEL_URL."
            ) from None
        except (ValueError, KeyError, IndexError, TypeError):
            raise InputError(
                f"{self.url} answered in a form that is not chat/completions; check CERTIFY_MODEL_URL."
            ) from None

    def attempt(self, page: Page, task: str, attempt: int) -> list[tuple[str, str]]:
        """Let the model act; return the steps, the last one its claim."""
        hands = Hands(page, fault="")
        claim = "not done: out of turns"
        messages = [{"role": "system", "content": SYSTEM}]
        try:
            for _ in range(MAX_TURNS):
                listing = "\n".join(
                    f"{i}. {name_of(e)} {e.value}".rstrip() for i, e in enumerate(hands.view)
                )
                messages.append(
                    {
                        "role": "user",
                        "content": f"Task: {hands.instruction}\nLast: {hands.steps[-1][1]}\n{listing}",
                    }
                )
                reply = self.ask(messages)
                messages.append({"role": "assistant", "content": reply})
                verb, number, text = parse_reply(reply)
                if verb == "claim":
                    claim = text
                    break
                self._do(hands, verb, number, text)
        except Stuck as stuck:
            claim = f"not done: {stuck}"
        hands.steps.append((f'claim("{claim}")', ""))
        return hands.steps

    def _do(self, hands: Hands, verb: str, number: int | None, text: str) -> None:
        if verb == "submit":
            hands.submit()
        elif number is None or number >= len(hands.view):
            hands.say(f"{verb} {number}", "no element matches")
        elif verb == "click":
            hands.click(hands.view[number])
        elif verb == "type":
            hands.type(hands.view[number], text)
        elif hands.view[number].kind == "list":
            hands.choose(hands.view[number], [text])
        else:
            hands.say(f'choose {number} "{text}"', "the element is not a list")
