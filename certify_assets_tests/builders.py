"""Small corpora and score tables that tests build by themselves."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.storage.events import Stored
from certify_assets.storage.store import Store

__all__ = [
    "CERTIFICATE_KEYS",
    "certify_small_corpora",
    "judged",
    "register_runs",
    "score_rows",
    "stored",
    "write_runs",
    "write_scores",
]

#: of the document of a certificate, as scripts may count on them
CERTIFICATE_KEYS = {
    "procedure",
    "side",
    "alpha",
    "delta",
    "certified",
    "threshold",
    "coverage",
    "selective_error",
    "tail",
    "level",
    "trajectories",
    "tasks",
    "covered_tasks",
    "effective_tasks",
    "success_rate",
    "icc",
    "deff",
    "n_eff",
    "estimand",
    "validity",
    "assumptions",
    "findings",
    "candidates",
    "inputs",
    "software",
    "seed",
    "schema",
    "promise",
    "settings",
}

_GOOD = (
    "order confirmed by the shop",
    "the form shows the name that was asked for",
    "the list is sorted now",
)
_BAD = ("no element matches the selector", "the field is still empty", "could not find the button")


def judged(store: Store, corpus: str = "c", judge: str = "lexical") -> JudgedCorpus:
    """Open a judge on a corpus, as one operation would."""
    return JudgedCorpus(Corpus(store, corpus), judge)


def write_runs(path: Path, *, tasks: int = 40, attempts: int = 6, seed: int = 0) -> Path:
    """Write runs as JSON Lines for the generic table import: tasks differ in difficulty, observations tell mostly how it went."""
    rng = np.random.default_rng(seed)
    lines = []
    for task in range(tasks):
        easy = rng.beta(0.6, 1.4)
        for attempt in range(attempts):
            outcome = int(rng.random() < easy)
            told = outcome if rng.random() < 0.95 else 1 - outcome
            words = (_GOOD if told else _BAD)[int(rng.integers(3))]
            steps = [
                {
                    "action": f"click('item {int(rng.integers(9))}')",
                    "observation": f"page {int(rng.integers(99))} of task {task}",
                },
                {"action": "submit()", "observation": words},
                {"action": "claim(done)", "observation": ""},
            ]
            record = {
                "task_id": f"task-{task:03d}",
                "trajectory_id": f"task-{task:03d}/{attempt}",
                "agent": f"agent-{attempt % 3}",
                "instruction": f"Put things in order, number {task}",
                "steps": steps,
                "outcome": outcome,
            }
            lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def register_runs(store: Store, name: str, path: Path, **config: object) -> CorpusConfig:
    """Register written runs as a corpus of a data root."""
    made = CorpusConfig(name, format="table", paths=(str(path),), **config)  # type: ignore[arg-type]
    save_config(store, made)
    return made


def certify_small_corpora(root: Path) -> None:
    """Fill a data root with three corpora, one, two and three, that the lexical judge has certificates on."""
    from certify_assets.operations import certifier

    store = Store(str(root))
    for seed, (name, tasks) in enumerate({"one": 200, "two": 60, "three": 40}.items()):
        register_runs(
            store,
            name,
            write_runs(root.parent / f"{name}.jsonl", tasks=tasks, attempts=4, seed=seed),
            rl=False,
        )
        Corpus(store, name).prepare()
        JudgedCorpus(Corpus(store, name), "lexical").train()
        JudgedCorpus(Corpus(store, name), "lexical").score()
        certifier.certify_judge(JudgedCorpus(Corpus(store, name), "lexical"))


def score_as_base(store: Store, corpus: str) -> None:
    """Let base have scored a corpus: the lexical judge's files under its name, with scores that rank worse."""
    for name in ("adapter", "scores", "pool"):
        store.write_json(
            f"judges/base/{corpus}/{name}.json",
            store.read_json(f"judges/lexical/{corpus}/{name}.json"),
        )
    table = store.read_table(f"judges/lexical/{corpus}/scores.parquet")
    noise = np.random.default_rng(0).normal(0, 2 * table["score"].std(), len(table))
    sha256 = store.write_table(
        f"judges/base/{corpus}/scores.parquet", table.assign(score=table["score"] + noise)
    )
    key = f"judges/base/{corpus}/scores.json"
    store.write_json(key, {**store.read_json(key), "scores_sha256": sha256})


def score_rows(
    *,
    tasks: int = 60,
    attempts: int = 8,
    seed: int = 0,
    success_rate: float = 0.3,
    signal: float = 2.5,
) -> pd.DataFrame:
    """Return a clustered score table in which a good judge certifies the reject side."""
    rng = np.random.default_rng(seed)
    effect = np.repeat(rng.normal(0, 1.5, tasks), attempts)
    base = np.log(success_rate / (1 - success_rate))
    outcome = (rng.random(tasks * attempts) < 1 / (1 + np.exp(-(base + effect)))).astype(int)
    score = signal * (2 * outcome - 1) + rng.normal(0, 1, outcome.size)
    return pd.DataFrame(
        {
            "task_id": [f"t{place:03d}" for place in np.repeat(np.arange(tasks), attempts)],
            "trajectory_id": [f"r{place:05d}" for place in range(outcome.size)],
            "agent": [f"a{place % 3}" for place in range(outcome.size)],
            "score": score,
            "outcome": outcome,
        }
    )


#: values of YAML whose types cannot hold them
UNREADABLE_YAML = (
    "!!timestamp x",
    "!!int ''",
    "!!float ''",
    "!!bool x",
    "2020-99-99",
    r'"\UFFFFFFFF"',
    "{!!int '': 1}",
)


def write_scores(path: Path, lines: Iterable[str]) -> Path:
    """Write a CSV from its lines."""
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def stored(store: Store, *folders: str) -> dict[str, bytes]:
    """Return every document and table below folders, by default all of corpora and judges."""
    view = Store(store.root).now()
    keys = [key for corpus in ("", *view.corpora()) for key in view.subjects(corpus, Stored)]
    below = tuple(f"{folder}/" for folder in folders or ("corpora", "judges", "operations"))
    return {key: view.read_bytes(key) for key in keys if key.startswith(below) and view.exists(key)}
