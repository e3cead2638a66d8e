"""``certify corpus``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certify_assets.cli.options import parse_literals, source_options, store_option
from certify_assets.cli.output import (
    OUT,
    TextTable,
    answer,
    answers,
    figures,
    read_alike,
    say,
    section_blocks,
    table,
    write_text,
)
from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, InputError
from certify_assets.words import number_of

if TYPE_CHECKING:
    from certify_assets.corpora.config import CorpusConfig
    from certify_assets.corpora.imported import ImportSummary
    from certify_assets.corpora.profile import CorpusProfile
    from certify_assets.storage.store import Store

_UNCHANGED = "The corpus has these runs already; nothing changes."
# what an import says of the profile
_IMPORTED = (
    *("trajectories", "tasks", "unlabelled", "success_rate", "icc", "deff", "n_eff"),
    *("agents", "attempts", "duplicates", "dropped"),
)
_COUNTED = ("unlabelled", "duplicates", "dropped", "notes", "label_facts")


@click.group()
def corpus() -> None:
    """Import, list, show and remove corpora."""


@corpus.command("import")
@click.argument("paths", nargs=-1, type=click.Path(), required=True)
@click.option("--name", required=True, help="Name of the corpus.")
@source_options
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _, __, given: parse_literals(given, "--set"),
    help="Setting of the corpus, such as profile=paper, seed=7 or rl=false; repeat for more. "
    "`certify schema corpus` lists all.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Make a new version of the corpus from PATHS alone; settings and splits stay.",
)
@click.option("--add", is_flag=True, help="Make a new version from the present paths and PATHS.")
@store_option
@answers
def import_(
    paths: tuple[str, ...],
    format_name: str | None,
    name: str,
    options: Mapping[str, Any],
    settings: dict[str, Any],
    replace: bool,
    add: bool,
    store: Store,
) -> None:
    """Read agent runs into a corpus, and add its partition in Dagster.

    PATHS are files, folders or archives, or URLs such as s3://bucket/runs, whose files are copied
    to be read. Prints what was read, what was left out and why, and whether the calibration tasks
    suffice for a certificate.
    """
    from certify_assets.cli.launching import change_partition, report_stored
    from certify_assets.corpora.config import CorpusConfig
    from certify_assets.corpora.embedded import EMBEDDED
    from certify_assets.storage.urls import absolute, is_url

    if add and replace:
        raise InputError("--add and --replace exclude each other. Give one of them.")
    if name in EMBEDDED:
        raise InputError(
            f"{name} is the name of a corpus that comes with the package; choose another."
        )
    missing = next((path for path in paths if not is_url(path) and not Path(path).exists()), None)
    if missing is not None:
        # before there is a data root
        raise InputError(f"{missing} does not exist; check the path.")
    given = _given(format_name, options, settings)
    config = CorpusConfig(name, paths=tuple(map(absolute, paths)), **given)
    with Corpus(store, name).writing():
        imported, summary, profile = _imported(store, config, given, add=add, replace=replace)
    change_partition(store, name, add=True)
    report_stored(imported, "corpus import", "corpora/trajectories")
    version, overlap = imported.version, imported.task_overlap()
    about = {
        "domain": str(imported.domain),
        **{name: getattr(profile, name) for name in _IMPORTED},
        "notes": summary.notes,
        "label_facts": summary.label_facts,
    }
    document = {
        "corpus": name,
        "version": version.number,
        **about,
        "gates": [asdict(gate) for gate in profile.gates],
        "overlap": asdict(overlap),
        "files": len(summary.files),
        "read_as": list(summary.read_as),
        "examples": summary.examples,
    }
    for sentence in read_alike(summary.read_as):
        say(sentence)
    # what is not there needs no row
    printed = {key: value for key, value in about.items() if value or key not in _COUNTED}
    answer(
        document,
        *figures(f"Corpus {name}", printed),
        *(
            f"{reason} ({number:,}), the first: {summary.examples.get(reason, 'not described')}"
            for reason, number in profile.dropped.items()
        ),
        *(
            f"{sentence} If the tasks are separate, give --set accept_shared_tasks=REASON."
            for sentence in overlap.sentences
        ),
        # TEST audits and certifies nothing: its gate says nothing that a user could act on here
        *(gate.reason for gate in profile.gates if gate.split != "test"),
    )


def _given(
    format_name: str | None, options: Mapping[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Return what the command says of the configuration of a corpus, by its keys."""
    given = dict(settings)
    if own := sorted({"name", "paths", "format", "options"} & given.keys()):
        raise InputError(f"--set does not take {own[0]}. Use the command's own argument for it.")
    if format_name is not None:
        given["format"] = format_name
    if format_name is not None or options:
        given["options"] = dict(options)
    return given


def _imported(
    store: Store, config: CorpusConfig, given: Mapping[str, Any], *, add: bool, replace: bool
) -> tuple[Corpus, ImportSummary, CorpusProfile]:
    """Read runs into a corpus, registered or not; say what that changes."""
    from certify_assets.cli.launching import say_versions
    from certify_assets.operations.returned_runs import checking_delivery

    registered, replaces = Corpus(store, config.name), add or replace
    is_known = registered.has("corpus.json")
    if is_known and replaces:
        what = "are added to" if add else "replace"
        say(f"{registered} is registered already: these runs {what} its {_size(registered)}.")
        config = _delivered(registered.config, config, given, add=add)
    # the call before this one may have been killed once it had stored the corpus
    elif is_known and config != registered.config:
        raise _registered_already(registered)
    known = registered.deliveries.read()
    summary = registered.import_trajectories(config, check=checking_delivery(registered))
    imported = Corpus(store, config.name)
    if imported.version in known:
        say(_UNCHANGED)
    elif is_known and not replaces:
        raise _registered_already(registered)
    say_versions(imported, known)
    return imported, summary, _profile(imported)


def _registered_already(corpus: Corpus) -> InputError:
    return InputError(
        f"a corpus called {corpus} is registered already ({_size(corpus)}). Give another name, or "
        "--replace or --add for a new version of it."
    )


def _size(corpus: Corpus) -> str:
    if not corpus.has("import.json"):
        return "runs not read yet"
    return number_of(corpus.import_summary.trajectories, "run")


def _delivered(
    registered: CorpusConfig, asked: CorpusConfig, given: Mapping[str, Any], *, add: bool
) -> CorpusConfig:
    """Keep of the registered configuration what the command does not name."""
    named = {name: getattr(asked, name) for name in given}
    new = [path for path in asked.paths if path not in registered.paths] if add else []
    paths = (*registered.paths, *new) if add else asked.paths
    made = dataclasses.replace(registered, **named, paths=paths)
    design = ("profile", "seed", "rl")
    if any(getattr(made, name) != getattr(registered, name) for name in design):
        say(
            "Another profile, seed or rl assigns all tasks to splits again. TEST runs that were "
            "read before still count as read in later audits."
        )
    return made


def _profile(imported: Corpus) -> CorpusProfile:
    """Profile what was read, with the gates of its splits."""
    manifest = None
    try:
        manifest = imported.plan_splits(imported.runs["task_id"].unique())
    except InputError as error:
        say(f"The corpus is stored but cannot be split. {error} The gate below is for all tasks.")
    return imported.measured_profile(manifest)


@corpus.command("list")
@store_option
@answers
def list_(store: Store) -> None:
    """List the corpora of the data root with their sizes and versions.

    A corpus that cannot be read is named on stderr, with the reason.
    """
    from certify_assets.corpora.config import load_config, registered_corpora

    configs: list[dict[str, Any]] = []
    for name in registered_corpora(store):
        try:
            configs.append({**asdict(load_config(store, name)), **_listed(Corpus(store, name))})
        except CertifyError as error:
            say(f"warning: {name} cannot be read: {error}")
            configs.append({"name": name, "trajectories": None, "fault": str(error)})
    # narrow, so that a long name stays whole
    shown = [{**config, "runs": config["trajectories"]} for config in configs]
    answer({"corpora": configs}, table("Corpora", shown, ("name", "runs", "tasks", "versions")))


def _listed(corpus: Corpus) -> dict[str, int | str | None]:
    """Return size as of the last import, the number of versions, and the domain."""
    summary = corpus.import_summary if corpus.has("import.json") else None
    return {
        "trajectories": None if summary is None else summary.trajectories,
        "tasks": None if summary is None else summary.tasks,
        "versions": len(corpus.deliveries.read()),
        "domain": str(corpus.domain),
    }


@corpus.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Confirm the removal (required).")
@store_option
@answers
def remove(name: str, yes: bool, store: Store) -> None:
    """Remove the runs, splits and partition of a corpus.

    Its source files, judges, certificates, versions and the ledger of TEST are kept. A corpus that
    a Dagster component declares comes back when its files or settings change.
    """
    from certify_assets.cli.launching import change_partition
    from certify_assets.corpora.config import remove_corpus, require_removable

    require_removable(store, name)
    if not yes:
        raise InputError(
            f"this removes the trajectories and splits of {name} from {store.root}; give --yes."
        )
    # the partition first: killed in between, the command can be called again
    change_partition(store, name, add=False)
    gone = remove_corpus(store, name)
    removed = TextTable(f"Removed {name}", ["file"], [[key] for key in gone])
    answer({"corpus": name, "removed": gone}, removed)


@corpus.command("show")
@click.argument("name")
@click.option("--page", type=OUT, metavar="FILE", help="Also write the corpus's page here.")
@store_option
@answers
def show(name: str, page: Path | None, store: Store) -> None:
    """Describe a corpus before any judge reads it.

    Prints profile, gates, flip rates, leak checks, labels, texts, and what the import left out.
    What is not stored yet is computed for this call only. Outcomes of TEST enter no figure except
    those of the profile.
    """
    from certify_assets.corpora.report import gather_report
    from certify_assets.reports.corpus_page import corpus_sections, render_corpus, standing

    report = gather_report(Corpus(store, name))
    if page is not None:
        write_text(page, render_corpus(report))
    document = {**report.to_dict(), "page": None if page is None else str(page)}
    verdict = standing(report)
    said = (f"{verdict.heading}.", *verdict.sentences, *([f"Page: {page}"] if page else []))
    answer(document, f"Corpus {name}", *section_blocks(corpus_sections(report)), *said)
