"""Taking the name of a reviewer out of a corpus."""

from __future__ import annotations

from typing import Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError
from certify_assets.operations.labels import GoldLabelled, Labelled, write_label_table
from certify_assets.storage.care import blank
from certify_assets.storage.store import Store


def blank_reviewer(store: Store, corpus: str, reviewer: str) -> int:
    """Put a number for a reviewer's name and take the comments out; return the number of events.

    Raises
    ------
    InputError
        If the corpus has no labels.
    """
    said = [
        entry.content for kind in (Labelled, GoldLabelled) for entry in store.events(corpus, kind)
    ]
    names = {label.reviewer for label in said}
    if not names:
        raise InputError(f"{corpus} has no labels; give the name of a corpus that has some.")
    free = next(n for n in range(1, len(names) + 2) if f"reviewer {n}" not in names)

    def without_name(kind: str, said: Any) -> Any | None:
        del kind
        if said.get("reviewer") != reviewer:
            return None
        return {**said, "reviewer": f"reviewer {free}", "comment": ""}

    count = blank(store, corpus, without_name) if reviewer in names else 0
    # a call that was killed may have left the name in it
    write_label_table(Corpus(Store(store.root), corpus))
    return count
