"""Hostile text through the surfaces of operation: pages, the terminal, what is sent out, and what Dagster shows."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.defs.operations import operation_assets, recertify_assets, review_assets
from certify_assets.operations.audit_sample import SamplingPlan
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.deploying import deploy
from certify_assets.operations.labels import Label, append_labels
from certify_assets.storage.store import Store
from certify_assets_tests import operations_builders
from certify_assets_tests.builders import judged
from certify_assets_tests.cli.calling import Call
from certify_assets_tests.cli.conftest import call  # noqa: F401 - a fixture
from certify_assets_tests.defs.running import PROJECT, materialize, partitions
from certify_assets_tests.security.hostile import CANARY, MARKUP
from certify_assets_tests.security.test_pages import Page

ASSETS = (
    "incoming_runs",
    "decisions",
    "review_queue",
    "reviewed_labels",
    "monitor",
    "recertification",
    "history",
)
_ESCAPES = {*map(chr, range(32)), "\x7f", "\u200b", "\u202e"} - {"\n"}


def _hostile(record: dict[str, Any]) -> None:
    number = (
        int(record["trajectory_id"].rsplit("-", 1)[-1].rsplit("/", 1)[-1] or 0)
        if record["trajectory_id"][-1].isdigit()
        else 0
    )
    place = sum(map(ord, record["task_id"])) % len(MARKUP)
    record["task_id"] = f"{MARKUP[place]}{record['task_id']}"
    record["trajectory_id"] = (
        f"../{MARKUP[(place + number) % len(MARKUP)]}/{record['trajectory_id']}"
    )
    record["agent"] = MARKUP[(place + 2 * number) % len(MARKUP)]


class Operated(NamedTuple):
    """A corpus through which hostile runs went, and what Dagster was told of them."""

    store: Store
    metadata: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def operation(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Operated:
    folder = tmp_path_factory.mktemp("hostile") / "root"
    shutil.copytree(_operated, folder)
    store = Store(str(folder))
    deploy(judged(store), sampling=SamplingPlan(0.5, 5), track=False)
    name = f"<img src=x onerror=window.{CANARY}=1>.jsonl"
    operations_builders.deliver(store.local_path("inbox/c") / name, tasks=50, change=_hostile)
    with partitions("c") as instance:
        found = _materialize(store, instance, ASSETS[:3])
        rows = load_decisions(Corpus(store, "c"))
        asked = rows.loc[rows["asked"] == "audit_sample", "trajectory_id"]
        said = [
            Label(run, place % 2, MARKUP[0], "file", f"{MARKUP[1]} {place}", MARKUP[2])
            for place, run in enumerate(asked)
        ]
        append_labels(Corpus(store, "c"), said)
        found |= _materialize(store, instance, ASSETS[3:])
    return Operated(store, found)


def _materialize(
    store: Store, instance: dg.DagsterInstance, names: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    result = materialize(
        [*operation_assets(PROJECT), *review_assets(PROJECT), *recertify_assets(PROJECT)],
        store,
        selection=dg.AssetSelection.assets(*(["operations", name] for name in names)),
        instance=instance,
    )
    return {
        name: dict(item.metadata)
        for name in names
        for item in result.asset_materializations_for_node(f"operations__{name}")
    }


@pytest.mark.slow
def test_the_text_went_all_the_way(operation: Operated) -> None:
    rows = load_decisions(Corpus(operation.store, "c"))
    assert set(operation.metadata) == set(ASSETS)
    assert set(rows["agent"]) <= set(MARKUP)
    assert len(rows) == 200
    assert CANARY in rows["source_file"].iloc[0]
    assert "recertification 1" in operation.metadata["recertification"]["said"].value


def test_no_text_becomes_markup_on_a_page(operation: Operated) -> None:
    names = {f"operations/c/{name}.html" for name in ("history", "queue")} | {
        "judges/lexical/c/monitor.html"
    }
    root = Path(operation.store.root) / "pages"
    pages = {
        path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*.html")
    }
    assert names <= set(pages), sorted(pages)
    for name in names:
        page = Page()
        page.feed(pages[name])
        assert page.active == [], name
    # the queue shows ids, so the escaping is what keeps them from running
    assert f"&lt;script&gt;window.{CANARY}=1" in pages["operations/c/queue.html"]


def _markdown(value: Any) -> Iterator[str]:
    if isinstance(value, dg.MarkdownMetadataValue):
        yield value.md_str


def test_no_text_of_a_run_stands_in_markdown_that_dagster_renders(operation: Operated) -> None:
    written = [
        text
        for entries in operation.metadata.values()
        for value in entries.values()
        for text in _markdown(value)
    ]
    assert len(written) >= 3
    assert not any(
        payload in text for text in written for payload in (CANARY, "javascript:", "](x")
    )
    # everywhere else it is text or JSON, which Dagster shows as it is
    kinds = {
        type(value)
        for entries in operation.metadata.values()
        for value in entries.values()
        if CANARY in str(value)
    }
    assert kinds <= {dg.TextMetadataValue, dg.JsonMetadataValue}, kinds


@pytest.mark.slow
def test_no_text_steers_a_terminal(operation: Operated, call: Call) -> None:  # noqa: F811
    store = operation.store
    rows = load_decisions(Corpus(store, "c")).drop_duplicates("agent")
    assert len(rows) > 5
    for run in rows["trajectory_id"]:
        asked = ("ops", "lineage", "--corpus", "c", "--root", store.root)
        answer = call(*asked, "--", run)
        assert answer.code == 0 and not _ESCAPES & set(answer.out + answer.err), run
        assert json.loads(call(*asked, "--json", "--", run).out)["id"] == run
    for command in (
        ("review", "queue", "c"),
        ("ops", "ingest", "c"),
        ("ops", "recertify", "c", "--dry-run"),
        ("ops", "status", "c"),
    ):
        answer = call(*command, "--root", store.root)
        assert not _ESCAPES & set(answer.out + answer.err) and "Traceback" not in answer.err, (
            command
        )
