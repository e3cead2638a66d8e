"""Hooks of MkDocs for the site that `make docs` builds.

The home page is README.md, so that both say the same. README.md of `deploy/` and the changelog are
pages too. The reference of configuration and documents is drawn from JSON schemas.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
#: pages of the site that are written elsewhere in the repository
ELSEWHERE = {
    "index.md": "README.md",
    "deploy.md": "deploy/README.md",
    "changelog.md": "CHANGELOG.md",
}
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
_MARKER = re.compile(r"^::: schema (\w+)$", re.MULTILINE)


def _relinked(markdown: str, folder: Path, page: str) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    pages = {source: name for name, source in ELSEWHERE.items()}
    depth = page.count("/")

    def replaced(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if not target:
            return found[0]
        path = (folder / target).resolve()
        if not path.is_relative_to(REPOSITORY):
            return found[0]
        name = path.relative_to(REPOSITORY).as_posix()
        name = pages.get(name, name.removeprefix("docs/"))
        return f"]({'../' * depth}{name}{anchor})"

    return _LINK.sub(replaced, markdown)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are written outside of docs/."""
    for name, source in ELSEWHERE.items():
        path = REPOSITORY / source
        text = _relinked(path.read_text("utf-8"), path.parent, name)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the schemas that a page asks for, and lead its links to pages of the site."""
    del config, files
    name = page.file.src_uri
    if name in ELSEWHERE:
        return markdown
    drawn = _MARKER.sub(lambda found: schema_tables(found[1]), markdown)
    return _relinked(drawn, (REPOSITORY / "docs" / name).parent, name)


def load_schema(name: str) -> dict[str, Any]:
    """Return a shipped schema, or that of the component."""
    if name == "component":
        from certify_assets.components import Corpora

        model = cast("Any", Corpora.model())
        return cast("dict[str, Any]", model.model_json_schema())
    path = REPOSITORY / "certify_assets" / "schemas" / f"{name}.json"
    return cast("dict[str, Any]", json.loads(path.read_text("utf-8")))


def schema_tables(name: str) -> str:
    """One table for the document itself, and one for each of its parts."""
    schema = load_schema(name)
    parts = [("", schema)] if schema.get("properties") else []
    parts += [
        (title, part) for title, part in schema.get("$defs", {}).items() if "properties" in part
    ]
    lines: list[str] = []
    for title, part in parts:
        if title:
            lines += ["", f"### `{title}`" if name != "certificate" else "### One certificate", ""]
        if text := part.get("description"):
            lines += [_text(text), ""]
        lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
        required = set(part.get("required", ()))
        for field, shape in part["properties"].items():
            default = "required" if field in required else _default(shape)
            meaning = _text(shape.get("description", ""))
            lines.append(f"| `{field}` | {_type(shape)} | {default} | {meaning} |")
    return "\n".join(lines)


def _text(value: str) -> str:
    return " ".join(value.replace("|", "\\|").replace("<", "&lt;").split())


def _default(shape: dict[str, Any]) -> str:
    if "default" not in shape or shape["default"] is None:
        return ""
    return f"`{json.dumps(shape['default'], ensure_ascii=False)}`"


def _type(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        return f"`{shape['$ref'].rsplit('/', 1)[-1]}`"
    if "const" in shape:
        return f"`{json.dumps(shape['const'])}`"
    if "enum" in shape:
        return ", ".join(f"`{json.dumps(value)}`" for value in shape["enum"])
    for key in ("anyOf", "oneOf"):
        if key in shape:
            kinds = dict.fromkeys(_type(part) for part in shape[key])
            return " or ".join(kind for kind in kinds if kind != "null")
    kind = shape.get("type", "")
    if kind == "array":
        return f"list of {_type(shape.get('items', {})) or 'values'}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
