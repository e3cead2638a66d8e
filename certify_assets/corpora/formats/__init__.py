"""Formats of published agent runs, one module each, and the import of runs into a corpus."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

from certify_assets.corpora.formats.base import (
    BROKEN,
    FORMATS,
    CorpusFormat,
    Draft,
    Reading,
    corpus_format,
    format_error,
)
from certify_assets.corpora.formats.files import SourceFile
from certify_assets.corpora.formats.importing import (
    COMMON_OPTIONS,
    ImportedCorpus,
    detect_format,
    gather_corpus,
    import_corpus,
)

__all__ = [
    "BROKEN",
    "COMMON_OPTIONS",
    "FORMATS",
    "CorpusFormat",
    "Draft",
    "ImportedCorpus",
    "Reading",
    "SourceFile",
    "corpus_format",
    "detect_format",
    "format_error",
    "gather_corpus",
    "import_corpus",
]

# every module of this folder may register formats; the client of MLflow is for its URLs alone
for _module in sorted({item.name for item in iter_modules(__path__)} - {"mlflow_server"}):
    _before, _loaded = dict(FORMATS), set(sys.modules)
    try:
        import_module(f"{__name__}.{_module}")
    except Exception as _error:  # whatever one module raises, the other formats stay
        for _name in FORMATS.keys() - _before:
            del FORMATS[_name]
        # those that it has loaded are loaded again, with their formats
        for _name in sys.modules.keys() - _loaded:
            if _name.startswith(f"{__name__}."):
                del sys.modules[_name]
        BROKEN[_module] = (
            f"The format module {_module} cannot be imported ({type(_error).__name__}: {_error}). "
            "Correct it."
        )
