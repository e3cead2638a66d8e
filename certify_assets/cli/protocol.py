"""``certify protocol``."""

from __future__ import annotations

from typing import Any

import click

from certify_assets.cli.options import root_option
from certify_assets.cli.output import NOTHING, emit_json, json_option, say, show_table

__all__ = ["protocol"]

_COLUMNS = ("first", "replay", "changed", "unregistered", "results", "last")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def protocol() -> None:
    """What was fixed before TEST was read, and who read it."""


@protocol.command()
@click.argument("corpora", nargs=-1)
@root_option
@json_option
@click.pass_context
def status(ctx: click.Context, corpora: tuple[str, ...], root: str | None, as_json: bool) -> None:
    """Show registrations and reads of TEST, of all CORPORA or those named.

    first: read under a registration for the first time; replay: again with the same hashes; changed: with others after a result was seen;
    unregistered: asked for without a registration, and refused. Exit 3 when a rule was broken or a ledger was altered.
    """
    from certify_assets.cli.launching import open_store
    from certify_assets.evaluation.ledger_status import protocol_status

    found = protocol_status(open_store(root), corpora)
    if as_json:
        emit_json({"corpora": found})
    else:
        for one in found:
            _show(one)
        if not found:
            say("no corpus is registered; import one first.")
    ctx.exit(NOTHING if any(one["violations"] or one["fault"] for one in found) else 0)


def _show(one: dict[str, Any]) -> None:
    if one["fault"]:
        say(f"{one['corpus']}: {one['fault']}")
        return
    rows = [
        [reader["judge"], *(str(reader[name]) for name in _COLUMNS)] for reader in one["readers"]
    ]
    show_table(
        f"TEST of {one['corpus']}: {len(one['registrations'])} registrations",
        ["reader", *_COLUMNS],
        rows,
    )
    for broken in one["violations"]:
        say(f"  {broken['judge']}: the read of {broken['time']} is {broken['kind']}.")
