"""The head of a corpus's journals in MLflow, where no backup of the data root reaches."""

# `ledger/<corpus>.heads.jsonl` notices that journals (of δ, alarms, draws, deployments, and reads
# of TEST) were put back from an older copy. Where the whole data root was, only another machine
# can: an MLflow server that the environment names keeps the last line of that file as a tag of the
# experiment. A server that does not answer stops nothing, as with every other record.

from __future__ import annotations

import json
from dataclasses import asdict

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.journal import Head, heads_journal
from certify_assets.storage.tracking import Tracker, ask_server


def heads_key(corpus: str) -> str:
    """Return the key of the heads of journals that must not be rewound, kept with the ledger."""
    return f"ledger/{corpus}.heads.jsonl"


def anchor_heads(corpus: Corpus) -> None:
    """Note the last head of the journals in MLflow."""
    journal = heads_journal(corpus.store, heads_key(corpus.name))
    last = journal.last()
    if last is None:
        return

    def note(tracker: Tracker) -> None:
        known = _noted(tracker, _tag(corpus))
        # another process may have noted a later line
        if known is None or known.lines < last.lines:
            tracker.note(_tag(corpus), json.dumps(asdict(last)))

    ask_server(corpus.store, note)


def require_anchored(corpus: Corpus) -> None:
    """Refuse journals that lost a line which MLflow knows."""
    journal = heads_journal(corpus.store, heads_key(corpus.name))
    if not journal.lines():
        return
    head = ask_server(corpus.store, lambda tracker: _noted(tracker, _tag(corpus)))
    if head is not None:
        journal.require_head(head, "MLflow")


def _tag(corpus: Corpus) -> str:
    # by the first line too: corpora of several data roots may have one name on a server
    first = heads_journal(corpus.store, heads_key(corpus.name)).lines()[0]
    return f"certify.heads.{corpus}.{first.sha256[:16]}"


def _noted(tracker: Tracker, tag: str) -> Head | None:
    noted = tracker.noted(tag)
    return None if noted is None else Head(**json.loads(noted))
