"""Fixtures that several folders share: a real browser, and one real run of the platform."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from certify_assets_tests.paths import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from certify_assets.storage.store import Store
    from certify_assets_tests.operations_builders import ProvisionalBatch

# what long work keeps to resume lies in the user's cache
os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir(), f"certify-cache-{os.getuid()}"))
# MLflow reports on its use unless told not to, and a test says nothing to anyone
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

# `make` exports the data root of the demo; tests use neither it nor what a developer set
for _name in ("DAGSTER_HOME", "CERTIFY_ROOT", "MLFLOW_TRACKING_URI"):
    os.environ.pop(_name, None)

#: files that take a minute or more in their tier, the longest first
LONGEST = (
    "test_benchmarks.py",
    "operations/test_year.py",
    "faults/test_command_kills.py",
    "recorded/test_recorded.py",
    "defs/test_full_study.py",
    "faults/test_ui.py",
    "faults/test_object_store.py",
    "faults/test_disk.py",
    "judges/lm/test_smollm2.py",
    "faults/test_kills.py",
    "defs/test_automatic_loop.py",
    "cli/test_judge_grpo.py",
    "defs/test_materialization.py",
    "faults/test_postgres_restarts.py",
    "faults/test_at_once.py",
    "defs/test_executors.py",
    "judges/test_arms.py",
    "corpora/test_mlflow_traces.py",
    "test_components.py",
)


def pytest_sessionstart() -> None:
    """Leave garbage where it is while test modules are imported: they stay to the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the collector from walking all that was imported, again with every test."""
    # Hypothesis looks for referrers as it is imported, and what is frozen is none
    if "hypothesis" in sys.modules:
        gc.collect()
        gc.freeze()
    # what tests import late is walked as well, at a tenth of their time by the usual threshold
    gc.set_threshold(10_000)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first: processes take files in this order, and none ends alone."""
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


_KEPT_BY_MLFLOW = (
    ("mlflow.tracking.fluent", "_active_experiment_id"),
    ("mlflow.tracking._tracking_service.utils", "_tracking_uri"),
)


@pytest.fixture(scope="module", autouse=True)
def _settings_are_kept() -> Iterator[None]:
    """Fail the module that leaves a setting in the environment, not the one that finds it."""
    before = _settings()
    yield
    assert _settings() == before


def _settings() -> dict[str, str]:
    prefixes = ("CERTIFY_", "DAGSTER_", "MLFLOW_TRACKING_", "MLFLOW_EXPERIMENT_", "AWS_")
    found = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    # MLflow's functions keep theirs in modules as well
    for module, name in _KEPT_BY_MLFLOW:
        if (value := getattr(sys.modules.get(module), name, None)) is not None:
            found[name] = str(value)
    return found


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium of this machine, or a skip with the reason."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("no Chromium here; Debian: apt-get install chromium")


@pytest.fixture
def browser(chromium: str) -> Iterator[Browser]:
    """A real headless browser, for one test: its event loop keeps out every other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[[str, int], Page]]:
    """Open a page from disk in a width, scripts off; it may load nothing else."""
    contexts = []

    def show(html: str, width: int) -> Page:
        path = tmp_path / "page.html"
        path.write_text(html, "utf-8")
        context = browser.new_context(
            java_script_enabled=False, viewport={"width": width, "height": 900}
        )
        contexts.append(context)
        page = context.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        assert asked == [path.as_uri()]
        return page

    yield show
    for context in contexts:
        context.close()


def prepared_world(
    factory: pytest.TempPathFactory, name: str, prepare: Callable[[Path], object]
) -> Path:
    """Return a data root that is prepared once for all processes of pytest-xdist, to be copied."""
    from certify_assets.files import lock_file

    # every process has a folder of its own below that of the session
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "worlds" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        lock_file(lock.fileno())
        if not (folder / "prepared").exists():
            prepare(folder / "root")
            (folder / "prepared").touch()
    return folder / "root"


def copy_world(world: Path, folder: Path) -> Store:
    """Return a copy of a prepared data root, for one test alone."""
    from certify_assets.storage.store import Store

    return Store(str(shutil.copytree(world, folder / "root")))


@pytest.fixture(scope="session")
def _small_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets_tests.builders import certify_small_corpora

    return prepared_world(tmp_path_factory, "corpora", certify_small_corpora)


@pytest.fixture
def corpora(_small_corpora: Path, tmp_path: Path) -> Store:
    """A data root with three small certified corpora, for one test alone."""
    return copy_world(_small_corpora, tmp_path)


@pytest.fixture(scope="session")
def _s3() -> Iterator[dict[str, str]]:
    from certify_assets_tests.services import object_store

    with object_store() as environment:
        yield environment


@pytest.fixture
def s3_root(_s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty data root on a real S3 server, for one test alone."""
    for name, value in _s3.items():
        monkeypatch.setenv(name, value)
    return f"s3://certify/{uuid.uuid4().hex}"


@pytest.fixture
def one_step_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the judge grpo have one step an arm."""
    from certify_assets.judges.specs import JUDGES
    from certify_assets_tests.arms_builders import TINY

    monkeypatch.setitem(JUDGES, "grpo", TINY)


@pytest.fixture(scope="session")
def _chosen_arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets.judges.specs import JUDGES
    from certify_assets_tests.arms_builders import TINY, chosen_arm

    def prepare(root: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(JUDGES, "grpo", TINY)
            assert chosen_arm(root.parent, tasks=40).root == str(root)

    return prepared_world(tmp_path_factory, "arms", prepare)


@pytest.fixture
def arms_store(_chosen_arm: Path, one_step_arms: None, tmp_path: Path) -> Store:
    """The judge grpo chosen among arms of one step, for one test alone."""
    return copy_world(_chosen_arm, tmp_path)


class Demo(NamedTuple):
    """What one run of the demo left, as a copy for one process of pytest-xdist."""

    root: Path
    document: dict[str, Any]
    stderr: str

    @property
    def environment(self) -> dict[str, str]:
        return platform_environment(self.root)


def platform_environment(root: Path) -> dict[str, str]:
    """The environment of a process on a data root, without the machine's own Dagster and MLflow."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAGSTER", "MLFLOW", "CERTIFY"))
    }
    return {
        **kept,
        "CERTIFY_ROOT": str(root),
        "DAGSTER_HOME": str(root / "dagster"),
        "PYTHONWARNINGS": "default",
    }


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The whole pipeline on an embedded corpus, by the command that users call; 40 CPU seconds."""

    def prepare(root: Path) -> None:
        command = [sys.executable, "-m", "certify_assets.cli", "run", "miniwob_mixed"]
        command += ["--root", str(root), "--json"]
        environment = platform_environment(root)
        for name in ("DAGSTER_HOME", "CERTIFY_ROOT"):
            del environment[name]
        done = subprocess.run(
            command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        output = json.dumps({"document": json.loads(done.stdout), "stderr": done.stderr})
        (root.parent / "output.json").write_text(output, "utf-8")

    made_at = prepared_world(tmp_path_factory, "demo", prepare)
    root = Path(shutil.copytree(made_at, tmp_path_factory.mktemp("demo") / "root"))
    return Demo(root, **json.loads((made_at.parent / "output.json").read_text("utf-8")))


@pytest.fixture(scope="session")
def _operated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets_tests.operations_builders import certified_corpus

    return prepared_world(tmp_path_factory, "operations", certified_corpus)


@pytest.fixture
def operated(_operated: Path, tmp_path: Path) -> Store:
    """A data root whose corpus `c` has a lexical judge that may be deployed, for one test alone."""
    return copy_world(_operated, tmp_path)


@pytest.fixture(scope="session")
def _provisional(_operated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from certify_assets.storage.store import Store
    from certify_assets_tests.operations_builders import provisional_batch

    def prepare(root: Path) -> None:
        shutil.copytree(_operated, root)
        made = provisional_batch(Store(str(root)), root.parent)
        about = {"name": made.name, "truth": made.truth}
        (root.parent / "batch.json").write_text(json.dumps(about), "utf-8")

    return prepared_world(tmp_path_factory, "provisional", prepare)


@pytest.fixture
def provisional(_provisional: Path, tmp_path: Path) -> ProvisionalBatch:
    """A deployed judge and a batch that waits for the labels of its draw, for one test alone."""
    from certify_assets_tests.operations_builders import ProvisionalBatch

    about = json.loads((_provisional.parent / "batch.json").read_text("utf-8"))
    return ProvisionalBatch(store=copy_world(_provisional, tmp_path), **about)
