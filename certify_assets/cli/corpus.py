"""``certify corpus``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import PATH, root_option
from certify_assets.cli.output import console, emit_json, json_option, say, show_table
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import PROFILES
from certify_assets.errors import InputError

if TYPE_CHECKING:
    from certify_assets.corpora.config import CorpusConfig
    from certify_assets.corpora.corpus import ImportSummary
    from certify_assets.storage.store import Store

__all__ = ["corpus", "parse_options"]

_MOST_SHOWN = 20


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def corpus() -> None:
    """Import, list, generate and remove corpora of agent runs."""


@corpus.command("import")
@click.argument("paths", type=PATH, nargs=-1, required=True)
@click.option(
    "--format",
    "format_name",
    default="auto",
    show_default=True,
    help="Source format, or auto to take the one that fits.",
)
@click.option("--name", required=True, help="Name of the corpus.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the source format; repeat for more.",
)
@click.option(
    "--profile",
    type=click.Choice(tuple(PROFILES)),
    default="certify",
    show_default=True,
    help="Split profile.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=42, show_default=True, help="Seed of the splits."
)
@click.option(
    "--rl/--no-rl",
    default=True,
    show_default=True,
    help="Keep a share for RL; --no-rl gives it to CAL.",
)
@click.option(
    "--accept-structural-leak",
    default=None,
    metavar="REASON",
    help="Go on although a control tells the outcome; every certificate says so.",
)
@click.option(
    "--leak-threshold",
    "leak_thresholds",
    multiple=True,
    metavar="CONTROL=AUROC",
    help="AUROC from which length, steps, agent or phrases is a structural leak; repeat for more. [default: .85 each]",
)
@click.option(
    "--domain",
    default="",
    metavar="NAME",
    help="Kind of work, such as web, shell or software, for strict transfer judges. [default: that of the format, where it has one]",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Read the corpus of this name anew; its trajectories are not kept.",
)
@root_option
@json_option
def import_(
    paths: tuple[Path, ...],
    format_name: str,
    name: str,
    options: tuple[str, ...],
    leak_thresholds: tuple[str, ...],
    replace: bool,
    root: str | None,
    as_json: bool,
    **split: Any,
) -> None:
    """Read agent runs into a corpus and add its partition.

    PATHS are files, folders or archives. Prints what was read, what was left out, by reason, and whether CAL and TEST of its split are large enough for
    a certificate and its audit.
    """
    from certify_assets.cli.launching import add_partitions, open_store
    from certify_assets.corpora.config import EMBEDDED, CorpusConfig
    from certify_assets.corpora.domains import corpus_domain

    if name in EMBEDDED:
        raise InputError(
            f"{name} is the name of a corpus that comes with the package; choose another."
        )
    store = open_store(root)
    config = CorpusConfig(
        name,
        format=format_name,
        paths=tuple(str(path.absolute()) for path in paths),
        options=parse_options(options),
        leak_thresholds=parse_options(leak_thresholds, "--leak-threshold", "length=.8"),
        **split,
    )
    if store.exists(f"corpora/{name}/corpus.json"):
        _announce_replacement(store, name, replace=replace)
    summary = _register(store, config)
    profile = _profile(store, config, summary.dropped)
    say(add_partitions(store, [name]))
    keys = (
        "trajectories",
        "tasks",
        "unlabelled",
        "success_rate",
        "icc",
        "deff",
        "n_eff",
        "agents",
        "attempts",
        "duplicates",
        "dropped",
    )
    document = {
        "corpus": name,
        "domain": str(corpus_domain(Corpus(store, name))),
        **{key: profile[key] for key in keys},
        "gates": profile["gates"],
        "files": len(summary.files),
    }
    document |= {
        "notes": summary.notes,
        "label_facts": summary.label_facts,
        "examples": summary.examples,
    }
    if as_json:
        emit_json(document)
        return
    _show_import(
        document, ["domain", *keys, *(key for key in ("notes", "label_facts") if document[key])]
    )
    if summary.label_facts.get("labels_only"):
        console().print(
            "This corpus holds labels without runs: it has a profile, but nothing that could be judged or certified."
        )
        return
    # TEST audits and certifies nothing: its gate says nothing that a user could act on here
    for gate in [gate for gate in document["gates"] if gate["split"] != "test"]:
        console().print(f"α={gate['alpha']:g}: {gate['reason']}", markup=False)


def _show_import(document: dict[str, Any], keys: list[str]) -> None:
    """Print what was read, and of everything that was left out the first case in a sentence."""
    show_table(
        f"Corpus {document['corpus']}",
        ["figure", "value"],
        [[key, _shown(document[key])] for key in keys],
    )
    for reason, number in document["dropped"].items():
        console().print(
            f"{reason} ({number}), the first: {document['examples'].get(reason, 'not described')}",
            markup=False,
        )


def _announce_replacement(store: Store, name: str, *, replace: bool) -> None:
    key = f"corpora/{name}/import.json"
    number = (
        f"{store.read_json(key)['trajectories']} trajectories"
        if store.exists(key)
        else "trajectories not yet read"
    )
    if not replace:
        raise InputError(
            f"a corpus called {name} is registered already ({number}); import under another name, or give --replace, which does not keep them."
        )
    say(f"{name} is registered already: its {number} are replaced and not kept.")


def _register(store: Store, config: CorpusConfig) -> ImportSummary:
    """Register a corpus and read it; one that cannot be read is not registered, one that was keeps its old configuration."""
    from certify_assets.corpora.config import save_config

    key = f"corpora/{config.name}/corpus.json"
    previous = store.read_bytes(key) if store.exists(key) else None
    new = _missing_folders(store.local_path(key).parent) if store.is_local else []
    save_config(store, config)
    try:
        return Corpus(store, config.name).import_trajectories()
    except BaseException:
        if previous is None:
            store.delete(key)
        else:
            store.write_bytes(key, previous)
        for folder in new:
            # a folder with something in it, of whomever, stays
            with suppress(OSError):
                folder.rmdir()
        raise


def _missing_folders(folder: Path) -> list[Path]:
    """Folders that writing into this one makes, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _profile(store: Store, config: CorpusConfig, dropped: dict[str, int]) -> dict[str, Any]:
    """Profile what was read; the gates are of CAL and TEST, because a certificate is computed on CAL alone."""
    from certify_assets.corpora.profile import profile_corpus
    from certify_assets.corpora.splits import make_manifest

    frame = Corpus(store, config.name).columns()
    manifest = None
    try:
        manifest = make_manifest(
            frame["task_id"].unique(), config.name, config.profile, config.seed, train_rl=config.rl
        )
    except InputError as error:
        say(f"The corpus is stored but cannot be split, so the gate below is of all of it: {error}")
    return profile_corpus(
        frame, manifest, dropped=dropped, rendered=Corpus(store, config.name).outlines()
    ).to_dict()


@corpus.command("list")
@root_option
@json_option
def list_(root: str | None, as_json: bool) -> None:
    """List the corpora of the data root, with what was read of each."""
    from certify_assets.cli.launching import open_store
    from certify_assets.corpora.config import load_config, registered_corpora

    store = open_store(root)
    configs = [
        {**load_config(store, name).to_dict(), **_counts(store, name), **_domain(store, name)}
        for name in registered_corpora(store)
    ]
    if as_json:
        emit_json({"corpora": configs})
        return
    keys = ("name", "domain", "trajectories", "tasks", "versions", "format", "profile", "seed")
    rows = [
        [
            *("" if config[key] is None else str(config[key]) for key in keys),
            ", ".join(config["paths"]),
        ]
        for config in configs
    ]
    show_table("Corpora", ["corpus", *keys[1:], "paths"], rows)


def _counts(store: Store, name: str) -> dict[str, int | None]:
    """Trajectories and tasks as of the last import, nothing before the first, and how many versions a sensor saw land."""
    from certify_assets.corpora.landing import read_versions

    key = f"corpora/{name}/import.json"
    summary = store.read_json(key) if store.exists(key) else {}
    return {
        **{figure: summary.get(figure) for figure in ("trajectories", "tasks")},
        "versions": len(read_versions(Corpus(store, name))),
    }


def _domain(store: Store, name: str) -> dict[str, str]:
    """Say what kind of work a corpus holds: that of the configuration, else that of its format."""
    from certify_assets.corpora.domains import corpus_domain

    return {"domain": str(corpus_domain(Corpus(store, name)))}


@corpus.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@root_option
@json_option
def remove(name: str, yes: bool, root: str | None, as_json: bool) -> None:
    """Take a corpus and its partition out; its source files, certificates and history stay.

    Stay: judges and certificates, the ledger of TEST, and the list of versions. A corpus that a component declares comes back when its files
    or settings change.
    """
    from certify_assets.cli.launching import open_store, remove_partition
    from certify_assets.corpora.config import load_config, remove_corpus

    store = open_store(root)
    load_config(store, name)
    if not yes and not click.confirm(
        f"Remove the trajectories and splits of {name} from {store.root}?", err=True
    ):
        raise click.Abort
    gone = remove_corpus(store, name)
    say(remove_partition(store, name))
    if as_json:
        emit_json({"corpus": name, "removed": gone})
    else:
        show_table(f"Removed {name}", ["file"], [[key] for key in gone])


@corpus.command("show")
@click.argument("name")
@click.option(
    "--page", type=PATH, default=None, metavar="FILE", help="Draw the corpus's page here as well."
)
@root_option
@json_option
def show(name: str, page: Path | None, root: str | None, as_json: bool) -> None:
    """Describe a corpus before any judge reads it.

    Prints profile, gates, flip rates, leak controls, labels, texts, and what the import left out. What the data root does not hold yet is measured, not
    stored. Outcomes of TEST are in no figure but the profile's own.
    """
    from certify_assets.cli.corpus_show import show_report
    from certify_assets.cli.launching import open_store
    from certify_assets.corpora.report import gather_report
    from certify_assets.reports.corpus_page import render_corpus

    report = gather_report(Corpus(open_store(root), name))
    if page is not None:
        _write_page(page, render_corpus(report))
    if as_json:
        emit_json({**report.to_dict(), "page": None if page is None else str(page)})
    else:
        show_report(report, page)


@corpus.command("generate")
@click.option(
    "--out",
    type=PATH,
    required=True,
    help="Folder for the runs; an interrupted generation in it goes on.",
)
@click.option(
    "--attempts",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="Attempts a task and agent.",
)
@click.option(
    "--seed", type=int, default=42, show_default=True, help="Seed of instances and faults."
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Browser processes."
)
@click.option("--task", "tasks", multiple=True, help="Only this task; repeat for more.")
@json_option
def generate(
    out: Path, attempts: int, seed: int, workers: int, tasks: tuple[str, ...], as_json: bool
) -> None:
    """Generate the embedded MiniWoB++ corpora again, in a real Chromium.

    Resumable: kill it and call it again. Needs Chromium and the extra 'miniwob'.
    """
    from certify_assets.research.miniwob import generate as run

    with _bar(quiet=as_json) as progress:
        made = run(
            out,
            attempts=attempts,
            seed=seed,
            workers=workers,
            tasks=list(tasks) or None,
            progress=progress,
        )
    tables = {name: str(path) for name, path in made.tables.items()}
    document = {
        "episodes": made.episodes,
        "kept": made.kept,
        "retries": made.retries,
        "failed": made.failed,
        "tables": tables,
    }
    if as_json:
        emit_json(document)
    else:
        show_table(
            f"Generated in {out}",
            ["figure", "value"],
            [[key, _shown(value)] for key, value in document.items()],
        )


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line every hundred episodes elsewhere."""
    from rich.progress import Progress

    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield (
            lambda done, total: None if quiet or done % 100 else say(f"{done} of {total} episodes")
        )
        return
    with Progress(console=out, transient=True) as bar:
        task = bar.add_task("episodes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def parse_options(
    options: tuple[str, ...], flag: str = "--option", example: str = "merge_same_instruction=true"
) -> dict[str, Any]:
    """Read options of the form KEY=VALUE; values that are JSON are taken as what they are."""
    parsed: dict[str, Any] = {}
    for option in options:
        key, found, value = option.partition("=")
        if not found or not key:
            raise click.UsageError(
                f"{flag} {option!r} is not KEY=VALUE; write for example {flag} {example}."
            )
        try:
            # JSON has no number that begins with its point
            parsed[key] = json.loads(f"0{value}" if value.startswith(".") else value)
        except (ValueError, RecursionError):
            parsed[key] = value
    return parsed


def _write_page(path: Path, html: str) -> None:
    from certify_assets.files import write_atomic

    try:
        write_atomic(path, html.encode("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); choose another place."
        ) from None


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        rest = [f"and {len(value) - _MOST_SHOWN:,} more"] if len(value) > _MOST_SHOWN else []
        return (
            ", ".join(
                [
                    *(f"{key}: {_shown(item)}" for key, item in islice(value.items(), _MOST_SHOWN)),
                    *rest,
                ]
            )
            or "nothing"
        )
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
