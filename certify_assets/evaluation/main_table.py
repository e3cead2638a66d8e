"""Every judge on every corpus of a data root: the one table that a reader asks for first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError
from certify_assets.evaluation.comparison import compare
from certify_assets.storage.store import Store

__all__ = ["MAIN_TABLE_KEY", "gather_table", "write_main_table"]

MAIN_TABLE_KEY = "study/main_table.json"
_SCHEMA = "certify_assets/main_table/1"


def gather_table(store: Store, corpora: Iterable[str] | None = None) -> dict[str, Any]:
    """Compare the judges of every corpus; a corpus that gives no row is left out with the reason.

    Parameters
    ----------
    store : Store
    corpora : iterable of str, optional
        All that the data root has where it is not given.

    Returns
    -------
    dict
        ``corpora``, a comparison each, and ``left_out``.
    """
    documents, left_out = [], []
    for corpus in registered_corpora(store) if corpora is None else corpora:
        try:
            documents.append(compare(Corpus(store, corpus)))
        except CertifyError as error:
            left_out.append({"corpus": corpus, "reason": str(error)})
    return {"schema": _SCHEMA, "corpora": documents, "left_out": left_out}


def write_main_table(store: Store) -> dict[str, Any]:
    """Gather, store ``study/main_table.json`` and return it."""
    document = gather_table(store)
    store.write_json(MAIN_TABLE_KEY, document)
    return document
