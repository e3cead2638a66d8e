"""What a server is asked, in the words of the one auditor's prompt: messages for its chat route, or a text or token ids for its completion route."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

from certify_assets.corpora.rendering import defuse
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.lm.prompt import AuditorPrompt, PromptEncoder

__all__ = [
    "ChatPrompt",
    "CompletionPrompt",
    "EndpointPrompt",
    "Question",
    "TokenPrompt",
    "auditor_prompt",
    "chat_prompt",
]

Question = Sequence[Mapping[str, str]] | Sequence[int] | str

# the last lines of the auditor's prompt where the answer is more than one word
_CLOSINGS = {
    "cot": (
        "END OF RUN\nWas the task done? Reason in a few sentences, then end with one line P_SUCCESS=n, where n is a whole number from 0 "
        "to 100: the probability in percent that the task was done."
    ),
    "vote": "END OF RUN\nWas the task done? Reason in a few sentences, then end with one line, VERDICT: SUCCESS or VERDICT: FAIL.",
}
_MARKS = re.compile(r"P_SUCCESS(?==)|VERDICT(?=:)", re.IGNORECASE)


class EndpointPrompt(Protocol):
    """What turns a rendered trajectory into a question."""

    @property
    def sha256(self) -> str:
        """Hash of everything but the trajectory."""

    def render(self, text: str) -> Question:
        """Return messages (chat), or a text or token ids (completion) that end where the verdict begins."""


def auditor_prompt(mode: str, **texts: str) -> AuditorPrompt:
    """Return the prompt of all judges, with the question of a mode at its end.

    Parameters
    ----------
    mode : {"logprob", "cot", "vote"}
    **texts
        Fields of `AuditorPrompt` in other words.
    """
    closing = {"closing": _CLOSINGS[mode]} if mode in _CLOSINGS else {}
    return replace(AuditorPrompt(), **{**closing, **texts})


def _safe(text: str, marker: str) -> str:
    """Break up chat markup and what an answer is read by, so that a run can neither close its message nor answer in the auditor's place."""
    broken = _MARKS.sub(lambda match: f"{match.group()} ", defuse(text))
    return re.sub(
        re.escape(marker),
        lambda match: f"{match.group()[:-1]} {match.group()[-1]}",
        broken,
        flags=re.IGNORECASE,
    )


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Two messages, the same that the local encoder puts into a chat template: the auditor's rules, then the run and the question.

    Parameters
    ----------
    auditor : AuditorPrompt
        Its marker is not sent: the verdict is the first token of the answer.
    """

    auditor: AuditorPrompt = field(default_factory=AuditorPrompt)

    @property
    def sha256(self) -> str:
        """Hash of the texts."""
        return sha256_bytes(canonical_json({"kind": "chat", **asdict(self.auditor)}))

    def render(self, text: str) -> list[dict[str, str]]:
        """Return the messages; chat markup inside the run is broken up, so that it cannot close its message."""
        user = f"{self.auditor.opening}{_safe(text, self.auditor.marker)}\n{self.auditor.closing}"
        return [
            {"role": "system", "content": self.auditor.system},
            {"role": "user", "content": user},
        ]


@dataclass(frozen=True, slots=True)
class CompletionPrompt:
    """One text that ends with the verdict marker, for base models and for servers without a chat template.

    Parameters
    ----------
    auditor : AuditorPrompt
        Its marker comes last; the verdict is the next token.
    """

    auditor: AuditorPrompt = field(default_factory=AuditorPrompt)

    @property
    def sha256(self) -> str:
        """Hash of the texts."""
        return sha256_bytes(canonical_json({"kind": "completion", **asdict(self.auditor)}))

    def render(self, text: str) -> str:
        """Return the text; chat markup inside the run is broken up."""
        auditor = self.auditor
        return f"{auditor.system}\n\n{auditor.opening}{_safe(text, auditor.marker)}\n{auditor.closing}\n{auditor.marker}"


@dataclass(frozen=True, eq=False, slots=True)
class TokenPrompt:
    """The token ids of a local encoder: a server gets exactly what the local judge of the same model reads.

    Parameters
    ----------
    encoder : PromptEncoder
        Of the tokenizer that the server's model has; it cuts to its own budget.
    """

    encoder: PromptEncoder

    @property
    def sha256(self) -> str:
        """Hash of the encoder."""
        return self.encoder.sha256

    def render(self, text: str) -> list[int]:
        """Return the ids; no control token of the tokenizer is left in the run."""
        return list(self.encoder.encode_text(text).ids)


def chat_prompt(mode: str) -> ChatPrompt:
    """Return the auditor's messages for a mode: logprob, cot or vote."""
    return ChatPrompt(auditor_prompt(mode))
