"""Small corpora over tasks of their own, to train judges on one another."""

from collections.abc import Callable
from pathlib import Path

from certify_assets.corpora.corpus import Corpus
from certify_assets.storage.store import Store
from certify_assets_tests.builders import register_runs, write_runs

__all__ = ["add_corpus", "three_corpora"]


def add_corpus(
    store: Store,
    name: str,
    *,
    tasks: int = 40,
    attempts: int = 3,
    seed: int = 0,
    domain: str = "",
    edit: Callable[[str], str] = str,
    target: bool = False,
    **config: object,
) -> None:
    """Import and split a corpus whose tasks and instructions carry its name; `edit` changes its JSON Lines before, a target can be certified."""
    path = write_runs(
        Path(store.root).parent / f"{name}.jsonl", tasks=tasks, attempts=attempts, seed=seed
    )
    text = (
        path.read_text("utf-8")
        .replace("task-", f"{name}-")
        .replace("Put things", f"Put {name} things")
    )
    path.write_text(edit(text), "utf-8")
    register_runs(store, name, path, rl=False, domain=domain, **config)
    Corpus(store, name).prepare_splits()
    if target:
        Corpus(store, name).measure_profile()
        Corpus(store, name).measure_leaks()


def three_corpora(folder: Path) -> Store:
    """Return a data root with home and near, both of the domain web, and far, of shell."""
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(str(folder / "root"))
    add_corpus(store, "home", tasks=60, attempts=4, seed=0, domain="web", target=True)
    add_corpus(store, "near", tasks=40, attempts=3, seed=1, domain="web")
    add_corpus(store, "far", tasks=40, attempts=6, seed=2, domain="shell")
    return store
