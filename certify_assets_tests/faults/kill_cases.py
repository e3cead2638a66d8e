"""What is killed: every command that writes, in small prepared folders, and who reads afterwards.

A world is a folder with files of a user, and `root`, a data root. Commands and the functions that
make worlds are run in that folder, with CERTIFY_ROOT set.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify_assets.cli.launching import platform
from certify_assets.cli.main import main
from certify_assets.corpora.corpus import Corpus
from certify_assets.operations.labels import Label, append_labels
from certify_assets.operations.layout import load_decisions
from certify_assets.operations.notifications import notify
from certify_assets.storage.store import Store, default_root
from certify_assets_tests.arms_builders import small_corpus, start_judge
from certify_assets_tests.builders import register_runs, score_rows, write_runs
from certify_assets_tests.operations_builders import certified_corpus, deliver

__all__ = ["BASES", "CASES", "ENDPOINT", "LANGUAGE", "WORLDS", "Case", "certify"]

#: environment variable with the address of the server of the compact model
ENDPOINT = "CERTIFY_TEST_ENDPOINT"


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
    #: whether it reads TEST: made again, it reads as a replay, which is a line of the ledger
    reads_test: bool = False
    #: whether it materializes assets: times and ids are in what they store
    materializes: bool = False

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
        "certificate scores.csv --side reject --out certificate.json",
        "batch plan certificate.json batch.csv --history history.csv --out plan.json",
    )


def _runs() -> None:
    write_runs(Path("runs.jsonl"), tasks=100, attempts=4)
    write_runs(Path("more.jsonl"), tasks=120, attempts=4, seed=9)
    _done("corpus import runs.jsonl --name other --set rl=false")


def _certified() -> None:
    certified_corpus(Path("root").absolute())
    write_runs(Path("more.jsonl"), tasks=120, attempts=4, seed=9)
    deliver(Path("new.jsonl"), tasks=20)
    added = write_runs(Path("added.jsonl"), tasks=20, attempts=4, seed=5)
    text = added.read_text("utf-8").replace("task-0", "more-0").replace("in order", "in a row")
    added.write_text(text, "utf-8")
    # makes the databases of Dagster and MLflow, which the first command of a data root does
    _done("corpus import more.jsonl --name other --set rl=false", "judge score c")


def _operated() -> None:
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


def _language() -> None:
    """A corpus with judges of the compact model in judges.yaml, and one that they start from."""
    store = small_corpus(Path().absolute(), tasks=48)
    Corpus(store, "small").prepare()
    start_judge(store, epochs=2.0)
    arms: dict[str, Any] = {
        "name": "arms",
        "family": "grpo",
        "steps": [1, 2],
        "rewards": [{"lambda": 2, "mu": 3}],
        "samples": 2,
        "prompts_per_step": 2,
    }
    served: dict[str, Any] = {
        "url": os.environ[ENDPOINT],
        "model": "compact",
        "form": "tokens",
        "budget_tokens": 768,
        # one after the other, so that the journal of answers has one order
        "concurrency": 1,
        "prices": {"prompt": 2.0, "completion": 10.0},
        "tokenizer": "compact",
    }
    judges = [
        arms,
        {"name": "tuned", "family": "sft", "runs": 24, "epochs": 1.0},
        {"name": "served", **served},
    ]
    Path("root/judges.yaml").write_text(json.dumps({"judges": judges}), "utf-8")
    # makes the databases of Dagster and MLflow, which the first command of a data root does
    _done("judge train small --judge base")


def _tuned() -> None:
    _done("judge train small --judge tuned")


def _served() -> None:
    _done("judge train small --judge served")


def _researched() -> None:
    store = _corpus()
    runs = write_runs(Path("c.jsonl").absolute(), tasks=130, attempts=3)
    register_runs(store, "c", runs, rl=True)
    Corpus(store, "c").prepare()
    rows = ["corpus,success_rate,auroc,coverage"]
    rows += [f"corpus {place},.{place + 1},.{place + 4}5,.{place}2" for place in range(5)]
    Path("points.csv").write_text("\n".join([*rows, ""]), "utf-8")
    _done("judge train c")


def _study() -> int:
    """Make the assets of the study that take seconds: the command has no option for fewer."""
    with platform(_corpus(), "certify_assets.defs.research.study") as study:
        every = study.job_keys
        study.job_keys = lambda job: {
            item for item in every(job) if item.to_user_string().startswith(_STUDIED)
        }
        try:
            outcomes = study.run_study(["c"])
        finally:
            study.job_keys = every
    return int(any(outcome.status == "failed" for outcome in outcomes))


#: the others are judges once more, and a simulation, which is a case of its own
_STUDIED = ("corpora/", "judges/base/", "judges/compact_model", "research/m", "research/cert")

#: worlds that are made from another one
BASES = {
    "operated": "certified",
    "unread": "certified",
    "tuned": "language",
    "served": "language",
}

#: worlds with a language model
LANGUAGE = ("language", "tuned", "served")

WORLDS: dict[str, Callable[[], None]] = {
    "tables": _tables,
    "language": _language,
    "tuned": _tuned,
    "served": _served,
    "researched": _researched,
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
_SMALL = ("corpus show small", "ledger status small", "judge list")
_RESEARCHED = ("corpus show c", "ledger status c")
_OPERATED = ("ops status c", "review queue c", "ops history c", "ledger status c", "corpus show c")

CASES = (
    Case(
        "certificate --out",
        "tables",
        "certificate scores.csv --side reject --out made.json",
        ("verify made.json scores.csv",),
        rooted=False,
    ),
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
    Case(
        "corpus import",
        "runs",
        "corpus import more.jsonl --name c --set rl=false",
        _CORPORA,
        weight=2,
    ),
    Case(
        "corpus import --replace",
        "certified",
        "corpus import more.jsonl --name c --replace --set rl=false",
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
    Case(
        "run",
        "certified",
        "run c --judge lexical",
        _JUDGED,
        weight=2,
        steps=True,
        reads_test=True,
        materializes=True,
    ),
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
    Case("judge train, endpoint", "language", "judge train small --judge served", _SMALL),
    Case("judge score, endpoint", "served", "judge score small --judge served", _SMALL, weight=2),
    Case(
        "judge train, sft",
        "language",
        "judge train small --judge tuned",
        _SMALL,
        weight=2,
    ),
    Case("judge score, sft", "tuned", "judge score small --judge tuned", _SMALL),
    Case("judge train, grpo", "language", "judge train small --judge arms", _SMALL, weight=3),
    Case(
        "research harvest",
        "researched",
        "research harvest c --gate taskboot --side reject --rounds 1 --profile certify --alpha .2",
        _RESEARCHED,
        codes=(0, 3),
        weight=2,
        steps=True,
        reads_test=True,
    ),
    Case(
        "research simulate",
        "tables",
        "research simulate --tasks 20 --rho .1 .5 .8 --trials 20 --procedure naive "
        "--procedure taskboot --workers 2 --out made.json",
        _TABLE,
        rooted=False,
        weight=2,
    ),
    Case(
        "research law POINTS",
        "researched",
        "research law points.csv --success-rate .4 --auroc .8 --out law.json",
        _RESEARCHED,
        rooted=False,
    ),
    Case(
        "research study",
        "researched",
        call=_study,
        readers=_RESEARCHED,
        steps=True,
        reads_test=True,
        materializes=True,
        weight=2,
    ),
)
