"""Middle truncation by tokens: a prompt keeps its head and tail, the body loses whole tokens."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from certify_assets.errors import InputError

# headings of a rendering and control tokens of chat templates: half of one would be read as
# something else
_MARKER = re.compile(
    r"^(?:TASK|STEP \d+|ACTION|OBSERVATION|NO STEPS)$|"
    r"<\|[^|<>\n]{1,64}\|>|<[^<>\s]{1,64}>|\[/?INST\]",
    re.MULTILINE,
)
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Encoding:
    """Token ids of a text, with the first character of each and the one after its last."""

    ids: Sequence[int]
    # ascending; tokens that share a character (bytes of one) may have equal offsets
    offsets: Sequence[tuple[int, int]]


#: text → ids with offsets, without adding special tokens; those written in the text are recognised
Encode = Callable[[str], Encoding]


@dataclass(frozen=True, slots=True)
class TokenRendered:
    """A prompt within its budget of tokens."""

    ids: tuple[int, ...]
    text: str
    # tokens of the body that are not in it; the note in the text says this number
    cut_tokens: int
    # characters lost before that to the limits of instruction, actions and observations
    cut_chars: int = 0


def fast_encoder(tokenizer: Any) -> Encode:
    """Return the encode function of a tokenizer that knows offsets."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "encode") or (hasattr(tokenizer, "is_fast") and not tokenizer.is_fast):
        raise InputError(
            f"{type(tokenizer).__name__} knows no offsets of tokens; give a fast tokenizer."
        )

    def encode(text: str) -> Encoding:
        found = backend.encode(text, add_special_tokens=False)
        return Encoding(found.ids, found.offsets)

    return encode


def fit_tokens(head: str, body: str, tail: str, *, encode: Encode, budget: int) -> TokenRendered:
    """Cut the middle of a body so that head + body + tail has at most `budget` tokens."""
    # The ids are those of one encoding of the whole prompt; after the cut only the note is encoded.
    # A cut is never inside a character, a heading or a control token, and what follows the note
    # never starts in the first column by the cut.
    whole = head + body + tail
    encoding = encode(whole)
    ids = tuple(encoding.ids)
    if len(ids) <= budget:
        return TokenRendered(ids, whole, 0)
    # characters before and after every boundary of tokens; a tokenizer may leave spaces between the
    # two to neither token
    ends = [0, *(end for _, end in encoding.offsets)]
    starts = [*(start for start, _ in encoding.offsets), len(whole)]
    places = _cut_places(whole, ends, starts, (len(head), len(head) + len(body)))
    room = places[-1] - places[0] if places else 0
    kept = room - (len(ids) - budget) if places else -1
    while room and kept >= 0:
        first = places[bisect_right(places, places[0] + kept - kept // 2) - 1]
        last = places[bisect_left(places, places[-1] - kept // 2)]
        note_text = _note(last - first, whole[: ends[first]], whole[: starts[last]])
        note = tuple(encode(note_text).ids)
        over = len(ids) - (last - first) + len(note) - budget
        if over <= 0:
            return TokenRendered(
                ids[:first] + note + ids[last:],
                whole[: ends[first]] + note_text + whole[starts[last] :],
                last - first,
            )
        kept = -1 if kept == 0 else max(0, kept - over)
    raise InputError(
        f"a prompt of {len(ids)} tokens cannot be cut to {budget}: head, tail and note need "
        "more; give a larger budget of tokens."
    )


def _cut_places(
    whole: str, ends: Sequence[int], starts: Sequence[int], body: tuple[int, int]
) -> list[int]:
    """Return the boundaries of tokens at which a cut may begin or end, in ascending order."""
    inside = {
        place
        for marker in _MARKER.finditer(whole)
        for place in range(marker.start() + 1, marker.end())
    }
    return [
        place
        for place, (end, start) in enumerate(zip(ends, starts, strict=True))
        if body[0] <= end <= start <= body[1] and end not in inside and start not in inside
    ]


def _note(cut: int, before: str, until: str) -> str:
    return (
        f"{'' if before.endswith(chr(10)) else chr(10)}[{cut} tokens "
        f"cut]\n{'' if until.endswith(chr(10)) else _INDENT}"
    )
