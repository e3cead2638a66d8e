"""``certify splits``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import root_option
from certify_assets.cli.output import emit_json, json_option, say, show_table
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import PROFILES, SPLITS

if TYPE_CHECKING:
    from certify_assets.corpora.splits import SplitManifest
    from certify_assets.storage.store import Store

__all__ = ["splits"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name")
@click.option(
    "--profile",
    type=click.Choice(tuple(PROFILES)),
    default=None,
    help="Another split profile than the corpus has.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=None, help="Another seed than the corpus has."
)
@root_option
@json_option
def splits(
    name: str, profile: str | None, seed: int | None, root: str | None, as_json: bool
) -> None:
    """Print the task-disjoint splits of a corpus: tasks and trajectories of each, and the hash of the manifest.

    Nothing is stored: the asset split_manifest stores the manifest of the corpus's own profile and seed. --profile and --seed show what
    others would give.
    """
    from certify_assets.cli.launching import open_store
    from certify_assets.corpora.config import load_config
    from certify_assets.corpora.splits import plan_splits

    store = open_store(root)
    config = load_config(store, name)
    asked = replace(
        config, profile=profile or config.profile, seed=config.seed if seed is None else seed
    )
    frame = Corpus(store, name).columns(["task_id"])
    manifest = plan_splits(asked, frame["task_id"].unique())
    counts = _counts(manifest, frame["task_id"].map(manifest.assignment).value_counts().to_dict())
    stored = _is_stored(store, name, manifest)
    if as_json:
        emit_json(
            {
                "corpus": name,
                "sha256": manifest.sha256,
                "stored": stored,
                "splits": counts,
                "manifest": manifest.to_dict(),
            }
        )
        return
    rows = [
        [split, str(figures["tasks"]), str(figures["trajectories"])]
        for split, figures in counts.items()
    ]
    show_table(
        f"Splits of {name}, profile {asked.profile}, seed {asked.seed}",
        ["split", "tasks", "trajectories"],
        rows,
    )
    click.echo(f"manifest sha256 {manifest.sha256}")
    say(
        "This is the manifest in the data root."
        if stored
        else "This manifest is not the one in the data root, if there is one."
    )


def _counts(manifest: SplitManifest, trajectories: dict[Any, int]) -> dict[str, dict[str, int]]:
    return {
        split: {
            "tasks": len(manifest.tasks[split]),
            "trajectories": int(trajectories.get(split, 0)),
        }
        for split in SPLITS
    }


def _is_stored(store: Store, name: str, manifest: SplitManifest) -> bool:
    key = f"corpora/{name}/splits/manifest.json"
    return store.exists(key) and store.read_json(key).get("sha256") == manifest.sha256
