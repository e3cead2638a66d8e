"""What operating a corpus costs before and after a change: CPU seconds, and what is read again.

    python benchmarks/state.py [--before COMMIT] [--quick]

Both trees are measured in one run, each in processes of its own, by turns: the commit, in a
temporary git worktree, and the working tree. A small corpus is certified and deployed, 400 new runs
of it are delivered and decided, and the index page of four corpora is drawn twice. CPU seconds are
the median of the rounds, of the product alone, after a first round that imports and compiles.
Counted are reads of a corpus's trajectories (opened, or only hashed), certificates recomputed, and
reads of deployment.json: by wrapping `Store` and `verify_certificate`. Every operation begins as a
command of its own would, without what the process has verified before, but for the second index
page. The commit before is driven by `_old`, the working tree by `_new`. --quick: one round, 80 runs,
one corpus, with imports and compilation.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
BEFORE = "a0aac3e"
ROUNDS = 3
COUNTED = ("corpus opened", "corpus hashed", "certificates recomputed", "deployment.json read")
# the stored table, or the copy of it that a deployment keeps
_CORPUS = re.compile(r"(operations/[^/]+/kept/[^/]+/)?corpora/[^/]+/trajectories\.parquet")
_DEPLOYMENT = re.compile(r"operations/[^/]+/deployment\.json")

_Call = Callable[[], Any]
_Trees = dict[str, tuple[str, Path]]


class Probe:
    """CPU seconds and counts of named operations."""

    def __init__(self, forget: Callable[[], None] = lambda: None) -> None:
        # what a new process would not know of its own
        self._forget = forget
        self.found: dict[str, dict[str, float]] = {}
        self._counts: Counter[str] = Counter()
        self._hashing = 0

    def watch(self, store: type, verify: Callable[..., Any]) -> None:
        """Count the reads of a class of stores, and the calls of the function that recomputes."""
        read_bytes, as_file, sha256 = store.read_bytes, store.as_file, store.sha256

        def read(this: Any, key: str) -> bytes:
            self._seen(key)
            return bytes(read_bytes(this, key))

        @contextmanager
        def opened(this: Any, key: str) -> Iterator[Path]:
            # a remote root's copy is read by read_bytes, which counts it
            if this.is_local:
                self._seen(key)
            with as_file(this, key) as path:
                yield path

        def hashed(this: Any, key: str) -> str:
            self._hashing += 1
            try:
                return str(sha256(this, key))
            finally:
                self._hashing -= 1

        def recomputed(*arguments: Any, **keywords: Any) -> Any:
            self._counts["certificates recomputed"] += 1
            return verify(*arguments, **keywords)

        store.read_bytes, store.as_file, store.sha256 = read, opened, hashed
        # modules that imported the function at their top hold it themselves
        loaded = [name for name in sys.modules if name.startswith("certify_assets")]
        for module in [sys.modules[name] for name in loaded]:
            for name in [name for name, value in vars(module).items() if value is verify]:
                setattr(module, name, recomputed)

    def _seen(self, key: str) -> None:
        if _CORPUS.fullmatch(key):
            self._counts["corpus hashed" if self._hashing else "corpus opened"] += 1
        elif _DEPLOYMENT.fullmatch(key):
            self._counts["deployment.json read"] += 1

    def measure(self, name: str, call: _Call, *, again: bool = False) -> Any:
        """Call, and write down what it took under a name; again: in the process of the last."""
        self._counts.clear()
        if not again:
            self._forget()
        started = time.process_time()
        result = call()
        seconds = time.process_time() - started
        self.found[name] = {
            "CPU s": seconds,
            **{counted: self._counts[counted] for counted in COUNTED},
        }
        return result


def _old(root: Path, runs: int, corpora: bool) -> dict[str, dict[str, float]]:
    """Operate a corpus through the interface of the commit before the rebuild."""
    from certify_assets import certificates
    from certify_assets.protocol import auditing, corpus_steps
    from certify_assets.protocol.operations import batches, deciding, deployment
    from certify_assets.protocol.store import Store
    from certify_assets.reports import judge_page
    from certify_assets_tests.builders import certify_small_corpora
    from certify_assets_tests.operations_builders import certified_corpus, deliver

    probe = Probe()
    store = certified_corpus(root)
    names = ["c"]
    if corpora:
        certify_small_corpora(root)
        names += ["one", "two", "three"]
    for name in names:
        corpus_steps.profile(store, name)
        if name != "c":
            auditing.audit_judge(store, name, "lexical")
        judge_page.write_page(store, name, "lexical")
    inbox = deliver(root.parent / "new" / "runs.jsonl", tasks=runs // 4, attempts=4)
    probe.watch(Store, certificates.verify_certificate)
    probe.measure("deploy", lambda: deployment.deploy(store, "c", "lexical", track=False))
    probe.measure("show the deployment", lambda: deployment.why_refused(store, "c"))
    probe.measure(f"receive {runs} runs", lambda: batches.receive(store, "c", [str(inbox)]))
    documents = probe.measure(f"decide {runs} runs", lambda: deciding.decide_ready(store, "c"))
    assert [(item["rows"], item["decided"]) for item in documents] == [(runs, True)]
    probe.measure("index page", lambda: judge_page.write_index(store))
    probe.measure("index page, again", lambda: judge_page.write_index(store))
    return probe.found


def _new(root: Path, runs: int, corpora: bool) -> dict[str, dict[str, float]]:
    """Operate a corpus through the interface of the working tree."""
    from certify_assets import certificates
    from certify_assets.corpora.corpus import Corpus
    from certify_assets.evaluation import certification
    from certify_assets.evaluation.audit import audit_judge
    from certify_assets.judges.judged import JudgedCorpus
    from certify_assets.operations.batches import decide_ready, receive
    from certify_assets.operations.deployment import Deployment
    from certify_assets.operations.rollout import deploy
    from certify_assets.reports import index_page, judge_page
    from certify_assets.storage.store import Store
    from certify_assets_tests.builders import certify_small_corpora
    from certify_assets_tests.operations_builders import certified_corpus, deliver

    probe = Probe(forget=certification._RECOMPUTED.clear)
    store = certified_corpus(root)
    names = ["c"]
    if corpora:
        certify_small_corpora(root)
        names += ["one", "two", "three"]
    for name in names:
        judge = JudgedCorpus(Corpus(store, name), "lexical")
        judge.corpus.measure_profile()
        if name != "c":
            audit_judge(judge)
        judge_page.write_page(judge)
    inbox = deliver(root.parent / "new" / "runs.jsonl", tasks=runs // 4, attempts=4)
    probe.watch(Store, certificates.verify_certificate)

    def corpus() -> Corpus:
        # every command opens its corpus once
        return Corpus(store, "c")

    probe.measure("deploy", lambda: deploy(JudgedCorpus(corpus(), "lexical"), track=False))
    probe.measure("show the deployment", lambda: Deployment.of(corpus()).refusal)
    probe.measure(f"receive {runs} runs", lambda: receive(corpus(), [str(inbox)]))
    documents = probe.measure(f"decide {runs} runs", lambda: decide_ready(corpus()))
    assert [(item.rows, item.decided) for item in documents] == [(runs, True)]
    probe.measure("index page", lambda: index_page.write_index(store))
    probe.measure("index page, again", lambda: index_page.write_index(store), again=True)
    return probe.found


DRIVERS = {"old": _old, "new": _new}


def drive(driver: str, runs: int, corpora: bool) -> dict[str, dict[str, float]]:
    """Operate a corpus twice in this process, first to import and compile; return the second.

    Without the corpora of the index page nothing comes first.
    """
    with tempfile.TemporaryDirectory() as folder:
        if corpora:
            (Path(folder) / "first").mkdir()
            DRIVERS[driver](Path(folder) / "first" / "root", 40, False)
        (Path(folder) / "second").mkdir()
        return DRIVERS[driver](Path(folder) / "second" / "root", runs, corpora)


def rounds(trees: _Trees, number: int, runs: int, corpora: bool) -> dict[str, list[Any]]:
    """Measure every tree so often, by turns: what else the machine does falls on all of them."""
    found: dict[str, list[Any]] = {name: [] for name in trees}
    for _ in range(number):
        for name, (driver, tree) in trees.items():
            command = [
                sys.executable,
                str(Path(__file__).resolve()),
                "--drive",
                driver,
                "--runs",
                str(runs),
                *(["--corpora"] if corpora else []),
            ]
            ours = [key for key in os.environ if key.startswith(("CERTIFY_", "DAGSTER_"))]
            environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            for key in ours:
                del environment[key]
            keywords: dict[str, Any] = {"env": environment, "capture_output": True, "text": True}
            with tempfile.TemporaryDirectory() as here:
                done = subprocess.run(command, cwd=here, check=False, **keywords)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr[-2000:]}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return found


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Give a commit of this repository as a folder, for as long as it is needed."""
    git = ["git", "-C", str(REPOSITORY), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def show(found: dict[str, list[Any]], before: str) -> None:
    """Print what each operation took before and now, and the ratio."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Before ({before}) and now, median of {len(found['before'])} rounds",
        title_justify="left",
    )
    for column in ("operation", "what", "before", "now", "now / before"):
        table.add_column(column, justify="left" if column in ("operation", "what") else "right")
    for operation in found["before"][0]:
        for what in ("CPU s", *COUNTED):
            medians = {}
            for name, measured in found.items():
                medians[name] = statistics.median(item[operation][what] for item in measured)
            was, now = medians["before"], medians["now"]
            if was or now:
                digits = ".3f" if what == "CPU s" else "g"
                ratio = f"{now / was:.2f}" if was else "–"
                table.add_row(
                    operation if what == "CPU s" else "",
                    what,
                    f"{was:{digits}}",
                    f"{now:{digits}}",
                    ratio,
                )
        table.add_section()
    Console(width=110).print(table)


def main() -> None:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--before", default=BEFORE, help="commit to compare with [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="one round, 80 runs, one corpus")
    parser.add_argument("--runs", type=int, default=400, help="runs of the batch, four a task")
    parser.add_argument("--drive", choices=tuple(DRIVERS), help=argparse.SUPPRESS)
    parser.add_argument("--corpora", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        print(json.dumps(drive(given.drive, given.runs, given.corpora)))
        return
    with worktree(given.before) as tree:
        trees = {"before": ("old", tree), "now": ("new", REPOSITORY)}
        show(
            rounds(
                trees,
                1 if given.quick else ROUNDS,
                80 if given.quick else given.runs,
                not given.quick,
            ),
            given.before,
        )


if __name__ == "__main__":
    main()
