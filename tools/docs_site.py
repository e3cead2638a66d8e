"""Hooks of MkDocs for the site that `make docs` builds.

The home page is README.md, so that both say the same. CONTRIBUTING.md, README.md of `deploy/`, the
changelog and the notebook with its outputs are pages too. The reference is drawn from the click commands and the JSON schemas.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    import click
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
#: pages of the site that are written elsewhere in the repository
ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "deploy.md": "deploy/README.md",
    "changelog.md": "CHANGELOG.md",
    "notebook.md": "docs/notebook.ipynb",
    "align_and_certify.md": "docs/examples/align_and_certify.ipynb",
}
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
_SCHEMA = re.compile(r"^::: schema (\w+)$", re.MULTILINE)
_COMMANDS = re.compile(r"^::: commands$", re.MULTILINE)


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
        text = path.read_text("utf-8")
        text = notebook_page(text) if path.suffix == ".ipynb" else text
        text = _relinked(text, path.parent, name)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw the schemas that a page asks for, and lead its links to pages of the site."""
    del config, files
    name = page.file.src_uri
    if name in ELSEWHERE:
        return markdown
    drawn = _SCHEMA.sub(lambda found: schema_tables(found[1]), markdown)
    drawn = _COMMANDS.sub(lambda _: "\n".join(command_tables()), drawn)
    return _relinked(drawn, (REPOSITORY / "docs" / name).parent, name)


def notebook_page(text: str) -> str:
    """Draw the cells of a notebook and what they put out, as a notebook server shows them."""
    drawn: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            drawn.append(source)
            continue
        drawn.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
            if page := data.get("text/html"):
                # a blank line would end the block of HTML
                drawn.append("<div>" + re.sub(r"\n\s*", "\n", page) + "</div>")
            elif picture := data.get("image/png"):
                source = "data:image/png;base64," + picture.replace("\n", "")
                drawn.append(f'<img alt="{data.get("text/plain", "")}" src="{source}">')
            else:
                words = data.get("text/plain") or "".join(output.get("text", ""))
                drawn.append(f"```text\n{words.rstrip()}\n```")
    return "\n\n".join(drawn)


def command_tables() -> Iterator[str]:
    """Draw every command as `--help` has it, its options as a table."""
    import click

    from certify_assets.cli import cli

    def drawn(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
        yield from ("", f"{'#' * level} {context.command_path}", "")
        yield from _paragraphs(command.help or "")
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield from ("", "```text", usage, "```", "")
        options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
        if len(options) > 1:
            yield from ("| option | meaning | default |", "|---|---|---|")
            for option in options:
                if record := option.get_help_record(context):
                    yield _option_row(option, context, record[0])
        yield ""
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                inner = click.Context(child, info_name=name, parent=context)
                yield from drawn(child, inner, min(level + 1, 4))

    context = click.Context(cli, info_name="certify", show_default=True)
    for name in cli.list_commands(context):
        child = cli.get_command(context, name)
        assert child is not None
        yield from drawn(child, click.Context(child, info_name=name, parent=context), 2)


def _option_row(option: click.Option, context: click.Context, names: str) -> str:
    extra = option.get_help_extra(context)
    meaning = " ".join((option.help or "").split())
    # some help texts name a default in words
    worded = re.search(r"\s*\[default: (.*?)\]", meaning)
    default = extra.get("default") or (worded[1] if worded else "")
    if extra.get("required"):
        default = "required"
    if worded:
        meaning = meaning.replace(worded[0], "")
    return f"| `{names.replace('|', ' ¦ ')}` | {_text(meaning)} | {_text(str(default))} |"


def _paragraphs(text: str) -> Iterator[str]:
    """Turn the paragraphs of a help text into Markdown; those that click must not wrap are code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from ("```text", paragraph[2:], "```", "")
        elif paragraph:
            yield from (_text(paragraph), "")


def load_schema(name: str) -> dict[str, Any]:
    """Return the schema that `certify schema` prints, or that of a component."""
    if name in ("component", "certificate_component"):
        from certify_assets.components import Certificate, Corpora

        made = Corpora if name == "component" else Certificate
        model = cast("Any", made.model())
        return cast("dict[str, Any]", model.model_json_schema())
    from certify_assets.cli.schema import schema_of

    return schema_of(name)


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
        described = any("description" in shape for shape in part["properties"].values())
        lines += ["| field | type | default |" + " meaning |" * described]
        lines += ["|---|---|---|" + "---|" * described]
        required = set(part.get("required", ()))
        for field, shape in part["properties"].items():
            default = "required" if field in required else _default(shape)
            meaning = _text(shape.get("description", ""))
            row = f"| `{field}` | {_type(shape)} | {default} |"
            lines.append(f"{row} {meaning} |" if described else row)
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
