"""The head of a corpus's journals in MLflow, where no backup of the data root reaches."""

# `ledger/<corpus>.heads.jsonl` notices that journals (of δ, alarms, draws, deployments, labels, and
# reads of TEST) were put back from an older copy. Where that file or the whole data root was, only
# another machine can: an MLflow server that the environment names keeps the last line of that file
# as tags of the experiment. A server that does not answer stops nothing, as with every other
# record.

from __future__ import annotations

import json
from dataclasses import asdict

from certify_assets.corpora.corpus import Corpus
from certify_assets.files import sha256_bytes
from certify_assets.storage.journal import Head, heads_journal
from certify_assets.storage.tracking import Tracker, ask_server


def heads_key(corpus: str) -> str:
    """Return the key of the heads of journals that must not be rewound, kept with the ledger."""
    return f"ledger/{corpus}.heads.jsonl"


def anchor_heads(corpus: Corpus) -> None:
    """Note the last head of the journals in MLflow."""
    last = heads_journal(corpus.store, heads_key(corpus.name)).last()
    if last is None:
        return
    tags = _tags(corpus)

    def note(tracker: Tracker) -> None:
        for tag in tags:
            known = _noted(tracker, tag)
            # another process may have noted a later line
            if known is None or known.lines < last.lines:
                tracker.note(tag, json.dumps(asdict(last)))

    ask_server(corpus.store, note)


def require_anchored(corpus: Corpus) -> None:
    """Refuse journals that lost a line which MLflow knows."""
    if tags := _tags(corpus):
        known = ask_server(corpus.store, lambda tracker: [_noted(tracker, tag) for tag in tags])
        for head in filter(None, known or ()):
            heads_journal(corpus.store, heads_key(corpus.name)).require_head(head, "MLflow")


def _tags(corpus: Corpus) -> list[str]:
    """Return the tags of the last head, by the first lines of its file and of the ledger."""
    # by a first line, since corpora of several data roots may have one name on a server; by two,
    # since a file of heads that is gone, or was begun again, does not lead to what is noted of it
    heads = heads_journal(corpus.store, heads_key(corpus.name)).lines()
    firsts = [line.sha256 for line in heads[:1]]
    ledger = f"ledger/{corpus}.jsonl"
    if corpus.store.exists(ledger):
        line = corpus.store.read_bytes(ledger).partition(b"\n")[0]
        firsts.append(sha256_bytes(b"ledger " + line))
    return [f"certify.heads.{corpus}.{first[:16]}" for first in firsts]


def _noted(tracker: Tracker, tag: str) -> Head | None:
    noted = tracker.noted(tag)
    return None if noted is None else Head(**json.loads(noted))
