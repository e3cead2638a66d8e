"""Great Expectations' Data Docs of a corpus: what the library renders of its validation results, in one page that loads nothing.

The library's own view asks a dozen addresses for scripts and styles when a page is opened, and writes texts of the data as markup. Its
renderers are used as they are; the page around them is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.corpora.corpus import Corpus
from certify_assets.reports.templating import environment

if TYPE_CHECKING:
    from certify_assets.corpora.quality import QualityReport

__all__ = ["data_docs_key", "render_data_docs", "write_data_docs"]

_TABLES = {
    "columns": "Columns of the trajectory table",
    "rows": "Rows of the trajectory table",
    "leaks": "Leak findings: columns and keys that speak of the outcome",
    "tasks": "Tasks that are in two splits",
    "cal": "Size of CAL",
}


def data_docs_key(corpus: str) -> str:
    """Return where a corpus's Data Docs stand in the data root."""
    return f"corpora/{corpus}/data_docs/index.html"


def write_data_docs(corpus: Corpus, report: QualityReport) -> str:
    """Store a corpus's Data Docs; return where they are."""
    corpus.store.write_bytes(
        data_docs_key(corpus.name), render_data_docs(corpus.name, report).encode("utf-8")
    )
    return corpus.store.locate(data_docs_key(corpus.name))


def render_data_docs(corpus: str, report: QualityReport) -> str:
    """Render the validation results of a corpus.

    Parameters
    ----------
    corpus : str
        Name.
    report : QualityReport
        Results and what Great Expectations rendered of them.

    Returns
    -------
    str
        HTML; the same text for the same tables: the times and fingerprints that the library adds are left out.
    """
    failed = [result for result in report.results if not result.passed]
    blocking = [result for result in failed if result.severity == "error"]
    view = {
        "version": __version__,
        "title": f"Data Docs of {corpus}",
        "corpus": corpus,
        "state": "failed" if blocking else "warn" if failed else "certified",
        "heading": f"{len(failed)} of {len(report.results)} suites failed"
        if failed
        else f"All {len(report.results)} suites passed",
        "suites": report.results,
        "tables": [
            {
                "heading": _TABLES.get(name, name),
                "statistics": _statistics(document),
                "sections": _sections(document),
            }
            for name, document in report.documents.items()
        ],
        "library": _library(),
    }
    return environment().get_template("data_docs.html").render(**view)


def _library() -> str:
    from importlib.metadata import version

    return f"Great Expectations {version('great-expectations')}"


def _sections(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was expected and seen, by column; the first section is the overview."""
    sections = []
    for section in document["sections"][1:]:
        rows = [
            _row(row)
            for block in section["content_blocks"]
            if block["content_block_type"] == "table"
            for row in block["table"]
            if len(row) >= 3
        ]
        sections.append({"name": section["section_name"], "rows": rows})
    return sections


def _row(row: list[Any]) -> dict[str, Any]:
    status, expected, seen = row[0], row[1], row[2]
    blocks = expected if isinstance(expected, list) else [expected]
    # after the sentence of the expectation come the count and samples of what did not meet it
    return {
        "passed": _parameters(status).get("markdown_status_icon") != "\N{CROSS MARK}",
        "expected": _text(blocks[0]),
        "found": [text for text in (_text(block) for block in blocks[1:]) if text],
        "seen": _text(seen),
    }


def _statistics(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    blocks = document["sections"][0]["content_blocks"]
    table: list[Any] = next(
        (block["table"] for block in blocks if block["content_block_type"] == "table"), []
    )
    return [(_text(name), _text(value)) for name, value in table]


def _parameters(block: Any) -> Mapping[str, Any]:
    return block.get("string_template", {}).get("params", {}) if isinstance(block, dict) else {}


def _text(block: Any) -> str:
    """Return a rendered block as plain text; a table as its heading and cells."""
    from string import Template

    if isinstance(block, list):
        return ", ".join(_text(item) for item in block)
    if not isinstance(block, dict):
        return "" if block is None else str(block)
    if "string_template" in block:
        template = block["string_template"]
        return (
            Template(template["template"].replace("<br>", " "))
            .safe_substitute(template.get("params", {}))
            .strip()
        )
    if block.get("content_block_type") == "table":
        return f"{', '.join(map(str, block.get('header_row', [])))}: {', '.join(_text(row) for row in block['table'])}"
    return ""
