"""What is killed: every command that writes, in small prepared folders, and who reads afterwards.

A world is a folder with files of a user, and `root`, a data root. Commands and the functions that
make worlds are run in that folder, with CERTIFY_ROOT set.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from certify_assets.cli.main import main
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.layout import load_decisions
from certify_assets.operations.notifications import notify
from certify_assets.storage.store import Store, default_root
from certify_assets_tests.builders import score_rows, write_runs
from certify_assets_tests.operations_builders import certified_corpus, deliver

__all__ = ["CASES", "WORLDS", "Case", "certify"]


def certify(words: str) -> int:
    """Call a command in this process; return its exit code."""
    try:
        main(words.split())
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@dataclass(frozen=True)
class Case:
    """A call that writes: a command line, or a function that one has no command for."""

    name: str
    world: str
    words: str = ""
    #: commands that only read, called after the kill
    readers: tuple[str, ...] = ()
    call: Callable[[], int | None] | None = None
    #: exit codes of the call, in an undisturbed world and after a kill
    codes: tuple[int, ...] = (0,)
    #: share of the points that it gets
    weight: int = 1
    #: whether it has a data root, which may be in an object store
    rooted: bool = True
    #: whether all that it makes follows from what it reads
    determined: bool = True
    #: whether readers may see each of its steps, as that runs were received and not yet decided
    steps: bool = False

    def run(self) -> int:
        """Make the call in this process, in the folder of its world."""
        if self.call is None:
            return certify(self.words)
        return self.call() or 0


def _done(*commands: str) -> None:
    for words in commands:
        assert certify(words) == 0, words


def _corpus() -> Store:
    return Store(default_root())


def _tables() -> None:
    for name, seed in (("scores", 0), ("batch", 1), ("history", 2)):
        score_rows(tasks=60, seed=seed).to_csv(f"{name}.csv", index=False)
    score_rows(tasks=40, seed=3).drop(columns="outcome").to_csv("new.csv", index=False)
    _done(
        "key new sign.key --owner ann",
        "certificate scores.csv --side reject --out certificate.json",
        "batch plan certificate.json batch.csv --history history.csv --out plan.json",
    )


def _runs() -> None:
    write_runs(Path("runs.jsonl"), tasks=100, attempts=4)
    write_runs(Path("more.jsonl"), tasks=120, attempts=4, seed=9)
    _done("corpus import runs.jsonl --name other --no-rl")


def _certified() -> None:
    certified_corpus(Path("root").absolute())
    write_runs(Path("more.jsonl"), tasks=120, attempts=4, seed=9)
    deliver(Path("new.jsonl"), tasks=20)
    added = write_runs(Path("added.jsonl"), tasks=20, attempts=4, seed=5)
    text = added.read_text("utf-8").replace("task-0", "more-0").replace("in order", "in a row")
    added.write_text(text, "utf-8")
    # makes the databases of Dagster and MLflow, which the first command of a data root does
    _done("corpus import more.jsonl --name other --no-rl", "judge recalibrate c")


def _operated() -> None:
    _certified()
    sampled = "ops deploy c lexical --audit-rate .5 --spot-rate .2 --draw-seed 5"
    deliver(Path("first.jsonl"), tasks=40, seed=2)
    _done(sampled, "ops ingest c first.jsonl", sampled)
    corpus = Corpus(_corpus(), "c")
    rows = load_decisions(corpus)
    asked = rows.loc[rows["asked"] == "audit_sample", "trajectory_id"].tolist()
    append_labels(corpus, [Label(run, 0, "ann", "file", run) for run in asked])
    lines = [f"{run},{place % 2}" for place, run in enumerate(asked)]
    Path("labels.csv").write_text("\n".join(["trajectory_id,outcome", *lines, ""]), "utf-8")
    target = {"name": "log", "command": ["sh", "-c", "cat >> told.txt"], "events": ["expiry"]}
    Path("root/notifications.yaml").write_text(json.dumps({"targets": [target]}), "utf-8")


def _unread() -> None:
    """A batch that nobody has labelled, which may be taken back."""
    _certified()
    _done("ops deploy c lexical --draw-seed 5", "ops ingest c new.jsonl")


def _undo() -> int:
    (batch,) = _corpus().names("operations/c/batches")
    return certify(f"ops ingest c --undo {batch}")


def _labels() -> None:
    """Label as the review page does, one form after another."""
    corpus = Corpus(_corpus(), "c")
    rows = load_decisions(corpus)
    for run in sorted(rows.loc[rows["asked"] != "", "trajectory_id"])[:12]:
        try:
            append_labels(corpus, [Label(run, 0, "bob", "page", f"bob {run}")])
        except OSError:
            # the page says that the label was not stored
            sys.exit(1)


def _notify() -> None:
    """Tell of a certificate that is too old, as the sensor does."""
    from datetime import UTC, datetime

    with suppress(FileNotFoundError):
        Path("told.txt").unlink()
    notify(Corpus(_corpus(), "c"), now=datetime(2031, 1, 1, tzinfo=UTC))


def _prepare() -> None:
    corpus = Corpus(_corpus(), "other")
    with corpus.writing("prepare"):
        corpus.prepare()


WORLDS: dict[str, Callable[[], None]] = {
    "tables": _tables,
    "runs": _runs,
    "certified": _certified,
    "operated": _operated,
    "unread": _unread,
}

_TABLE = ("verify certificate.json scores.csv",)
_CORPORA = ("corpus list", "corpus show other", "ledger status other")
_JUDGED = (
    "corpus show c",
    "ops status c",
    "ledger status c",
    "verify root/judges/lexical/c/certificates.json root/judges/lexical/c/scores.parquet",
)
_OPERATED = ("ops status c", "review queue c", "ops history c", "ledger status c", "corpus show c")

CASES = (
    Case(
        "certificate --sign",
        "tables",
        "certificate scores.csv --side reject --out made.json --sign sign.key",
        ("verify made.json scores.csv --public-key sign.key.pub",),
        rooted=False,
    ),
    Case("key new", "tables", "key new other.key", _TABLE, rooted=False, determined=False),
    Case(
        "decide",
        "tables",
        "decide certificate.json new.csv --queue queue.csv --decisions decisions.csv",
        _TABLE,
        rooted=False,
    ),
    Case(
        "batch plan",
        "tables",
        "batch plan certificate.json batch.csv --history history.csv --out again.json",
        _TABLE,
        rooted=False,
    ),
    Case(
        "batch draw",
        "tables",
        "batch draw plan.json batch.csv --seed 11 --out draw.csv",
        _TABLE,
        rooted=False,
    ),
    Case(
        "monitor",
        "tables",
        "monitor certificate.json batch.csv --html page.html",
        _TABLE,
        codes=(0, 3),
        rooted=False,
    ),
    Case(
        "plan",
        "tables",
        "plan scores.csv --most-tasks 2 --no-alternatives --out plan_out.json",
        _TABLE,
        codes=(0, 3),
        rooted=False,
    ),
    Case(
        "report",
        "tables",
        "report certificate.json scores.csv --out page.html",
        _TABLE,
        rooted=False,
    ),
    Case("research law", "tables", "research law --paper --out law.json", _TABLE, rooted=False),
    Case("corpus import", "runs", "corpus import more.jsonl --name c --no-rl", _CORPORA, weight=2),
    Case(
        "corpus import --replace",
        "certified",
        "corpus import more.jsonl --name c --replace --no-rl",
        _JUDGED,
        weight=3,
    ),
    Case(
        "corpus import --add",
        "certified",
        "corpus import added.jsonl --name c --add",
        _JUDGED,
        weight=3,
    ),
    Case("corpus rm", "certified", "corpus rm c --yes", _CORPORA, weight=3, steps=True),
    Case("corpus show --page", "certified", "corpus show c --page page.html", _JUDGED),
    Case("prepare", "certified", call=_prepare, readers=_CORPORA, weight=2, steps=True),
    Case("judge train, lexical", "certified", "judge train c", _JUDGED, weight=2),
    Case("judge train, structure", "certified", "judge train c --judge structure", _JUDGED),
    Case("judge train, combined", "certified", "judge train c --judge combined", _JUDGED, weight=2),
    Case("judge score", "certified", "judge score c", _JUDGED, weight=2),
    Case("judge score --out", "certified", "judge score c new.jsonl --out new.csv", _JUDGED),
    Case("judge compare", "certified", "judge compare c --html a.html --csv a.csv", _JUDGED),
    Case(
        "judge compare --agent-disjoint",
        "certified",
        "judge compare c --agent-disjoint --folds 2",
        _JUDGED,
    ),
    Case("judge recalibrate", "certified", "judge recalibrate c", _JUDGED),
    Case("run", "certified", "run c --judge lexical", _JUDGED, weight=2, steps=True),
    Case(
        "ops deploy",
        "certified",
        "ops deploy c lexical --draw-seed 5",
        _JUDGED,
        weight=4,
        steps=True,
    ),
    Case(
        "ops deploy, a second one",
        "operated",
        "ops deploy c lexical --draw-seed 6",
        _OPERATED,
        weight=3,
        steps=True,
    ),
    Case("ops rollback", "operated", "ops rollback c 1", _OPERATED, weight=3, steps=True),
    Case(
        "ops ingest",
        "operated",
        "ops ingest c new.jsonl --queue queue.csv",
        _OPERATED,
        weight=5,
        steps=True,
    ),
    Case("ops ingest --undo", "unread", call=_undo, readers=_OPERATED, weight=2),
    Case(
        "ops recertify",
        "operated",
        "ops recertify c --at-least 1",
        _OPERATED,
        weight=4,
        codes=(0, 3),
        steps=True,
    ),
    Case("ops export", "operated", "ops export c out.jsonl --format langfuse", _OPERATED),
    Case("ops history --page", "operated", "ops history c --page page.html", _OPERATED),
    Case("ops prune", "operated", "ops prune c --keep 1", _OPERATED, weight=2),
    Case(
        "review import",
        "operated",
        "review import c labels.csv --reviewer bob",
        _OPERATED,
        weight=3,
    ),
    Case("review export", "operated", "review export c queue.csv", _OPERATED),
    Case("labels of the page", "operated", call=_labels, readers=_OPERATED, weight=3, steps=True),
    Case("notifications", "operated", call=_notify, readers=_OPERATED, weight=2),
)
