"""``certify lineage``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from certify_assets.cli.options import root_option
from certify_assets.cli.output import NOTHING, console, emit_json, json_option, printable

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from certify_assets.operations.links import Link

__all__ = ["lineage"]

_STYLES = {"holds": "green", "differs": "bold red", "missing": "bold red", "told": ""}
_SHOWN = 5


@click.command()
@click.argument("name", metavar="ID")
@click.option(
    "--corpus", default=None, help="Corpus to look in, where an ID is in several. [default: all]"
)
@root_option
@json_option
@click.pass_context
def lineage(
    ctx: click.Context, /, name: str, corpus: str | None, root: str | None, as_json: bool
) -> None:
    """Follow a decision, a certificate or a batch to the files that it comes from.

    ID is the trajectory_id of a decided run, the beginning of a certificate's SHA-256 (8 digits or more), or a batch. Each link is named by a hash, which
    is compared with what is stored now: it holds, differs or is missing, and exit 3 says that one does not hold. A source file that lies no
    longer where it was read is told and breaks nothing: the data root does not own it.
    """
    from certify_assets.cli.launching import open_corpus_store, open_store
    from certify_assets.operations.provenance_walk import find, walk

    store = open_store(root) if corpus is None else open_corpus_store(root, corpus)
    found = find(store, name, corpus)
    trees = [walk(store, item) for item in found]
    broken = [link for tree in trees for link in tree.walk() if link.broken]
    if as_json:
        emit_json(
            {
                "id": name,
                "corpus": found[0].corpus,
                "kind": found[0].kind,
                "holds": not broken,
                "broken": [f"{link.kind} {link.name}: {link.status}" for link in broken],
                "lineage": [tree.to_dict() for tree in trees],
            }
        )
    else:
        for tree in trees:
            console().print(_tree(tree), soft_wrap=False)
        console().print(
            "Every link holds." if not broken else f"{len(broken)} links do not hold.", markup=False
        )
    ctx.exit(NOTHING if broken else 0)


def _tree(link: Link) -> Tree:
    from rich.tree import Tree

    made = Tree(_label(link))
    hidden = 0
    for number, child in enumerate(link.links):
        # a corpus may have thousands of source files; those that do not hold are all shown
        if number < _SHOWN or child.kind != "source" or child.broken:
            made.children.append(_tree(child))
        else:
            hidden += 1
    if hidden:
        made.add(f"and {hidden} more source files that hold or were told")
    return made


def _label(link: Link) -> Text:
    from rich.text import Text

    label = Text(printable(f"{link.kind} {link.name}"))
    if link.status != "told":
        label.append(f"  {link.status}{_hashes(link)}", style=_STYLES[link.status])
    return label.append(printable(f"  {link.detail}") if link.detail else "", style="dim")


def _hashes(link: Link) -> str:
    """Return the beginnings of the hashes, which --json has whole; of a decision what it is and what it should be."""
    if link.status == "differs":
        return f" {link.expected[:16]} ≠ {link.found[:16]}"
    return f" {link.expected[:12]}" if link.status == "holds" and link.kind != "decision" else ""
