"""A benchmark that stays while agents change: deliveries, versions, and TEST read again."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certify_assets.corpora.config import CorpusConfig, save_config
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import SPLITS
from certify_assets.errors import InputError
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.judges.specs import DELTA
from certify_assets.operations.audit import audit_judge, load_audits
from certify_assets.operations.certifier import certify_judge, load_certificates
from certify_assets.operations.ledger import (
    ledger_entries,
    ledger_violations,
    reading_delta,
    record_read,
    register,
)
from certify_assets.operations.spending import Schedule, read_spending
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.corpora.builders import tau_record, write_json

Record = dict[str, Any]


def line(store: Store) -> None:
    """The whole line, from the files to the audit, as a scheduled run walks it."""
    corpus = Corpus(store, "c")
    corpus.prepare()
    judge = judged(store)
    judge.train()
    judge.score()
    certify_judge(judged(store))
    audit_judge(judged(store))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deliveries")
    source = write_runs(folder / "runs.jsonl", tasks=40, attempts=4)
    store = Store(str(folder / "root"))
    register_runs(store, "c", source, rl=False)
    line(store)
    return folder


@pytest.fixture
def world(template: Path, tmp_path: Path) -> tuple[Store, Path]:
    shutil.copytree(template / "root", tmp_path / "root")
    source = Path(shutil.copy(template / "runs.jsonl", tmp_path / "runs.jsonl"))
    store = Store(str(tmp_path / "root"))
    register_runs(store, "c", source, rl=False)
    return store, source


def rewrite(source: Path, change: Callable[[list[Record]], list[Record]]) -> None:
    records = [json.loads(row) for row in source.read_text("utf-8").splitlines()]
    rows = [json.dumps(record) for record in change(records)]
    source.write_text("\n".join(rows) + "\n", "utf-8")


def of_new_agents(records: list[Record]) -> list[Record]:
    """The same tasks, attempted by an agent that nobody saw before."""
    added = []
    for record in records[::2]:
        steps = [{**step, "action": step["action"] + " # again"} for step in record["steps"]]
        name = record["trajectory_id"] + "-new"
        added.append({**record, "agent": "agent-new", "trajectory_id": name, "steps": steps})
    return records + added


def without_tasks(records: list[Record]) -> list[Record]:
    """What somebody delivers again to see whether it certifies more without some tasks."""
    left_out = set(sorted({record["task_id"] for record in records})[::10])
    return [record for record in records if record["task_id"] not in left_out]


def test_a_second_delivery_of_known_tasks_walks_the_whole_line(world: tuple[Store, Path]) -> None:
    store, source = world
    before = Corpus(store, "c").manifest
    rewrite(source, of_new_agents)
    line(store)
    corpus = Corpus(store, "c")
    assert corpus.manifest == before, "every task keeps its split"
    assert ledger_violations(corpus) == []
    kinds = [entry.kind for entry in ledger_entries(corpus) if entry.kind != "pool"]
    assert kinds == ["registration", "first", "result", "registration", "reused", "result"]
    first, second = corpus.deliveries.read()
    assert (first.number, second.number) == (1, 2) and corpus.version == second
    assert second.changes is not None and second.changes.new_agents == ("agent-new",)
    assert sum(second.changes.new_runs.values()) == 80 and not second.changes.new_tasks
    audits, _ = load_audits(JudgedCorpus(corpus, "lexical"))
    assert {audit.reading for audit in audits} == {2}
    assert all("reading 2" in audit.reason for audit in audits)


@pytest.mark.slow
@pytest.mark.parametrize("change", [of_new_agents, without_tasks])
def test_every_version_spends_its_share_and_an_earlier_one_nothing_again(
    world: tuple[Store, Path], change: Callable[[list[Record]], list[Record]]
) -> None:
    store, source = world
    first = source.read_text("utf-8")

    def deltas() -> set[float]:
        line(store)
        return {item.delta for item in load_certificates(judged(store))}

    rewrite(source, change)
    assert deltas() == {Schedule().share(1)} and Schedule().share(1) < DELTA
    assert deltas() == {Schedule().share(1)}, "the same again"
    source.write_text(first, encoding="utf-8")
    assert deltas() == {DELTA}, "the first version's test, and its δ"
    assert read_spending(Corpus(store, "c")).of("lexical").spent == Schedule().share(1)


def test_all_later_readings_of_the_same_runs_spend_less_than_half_of_delta() -> None:
    assert reading_delta(0.05, 1) == 0.05
    later = sum(reading_delta(0.05, number) for number in range(2, 100_000))
    assert later == pytest.approx(0.05 * (1 - 6 / math.pi**2), rel=1e-3)


@pytest.mark.slow
def test_new_tasks_are_assigned_and_known_ones_stay(world: tuple[Store, Path]) -> None:
    store, source = world
    before = Corpus(store, "c").manifest

    def grown(records: list[Record]) -> list[Record]:
        # other tasks have other instructions and texts
        text = json.dumps(records).replace("task-", "new-task-")
        added = json.loads(text.replace("Put", "Lay").replace("of task", "of a task"))
        return records + added

    rewrite(source, grown)
    line(store)
    corpus = Corpus(store, "c")
    manifest = corpus.manifest
    assert {task: manifest.assignment[task] for task in before.assignment} == before.assignment
    sizes = {split: len(tasks) for split, tasks in manifest.tasks.items()}
    assert sizes == {split: 2 * len(before.tasks[split]) for split in SPLITS}, "by the same shares"
    assert corpus.deliveries.read()[1].changes.new_tasks == {  # type: ignore[union-attr]
        split: len(before.tasks[split]) for split in sorted(SPLITS) if before.tasks[split]
    }
    assert ledger_violations(corpus) == []


@pytest.mark.slow
def test_a_task_that_comes_back_has_the_split_it_had(world: tuple[Store, Path]) -> None:
    store, source = world
    corpus = Corpus(store, "c")
    before, full = corpus.manifest, source.read_text("utf-8")
    gone = before.tasks["test"][0]
    rewrite(source, lambda records: [item for item in records if item["task_id"] != gone])
    line(store)
    smaller = Corpus(store, "c")
    assert gone not in smaller.manifest.assignment
    changes = smaller.version.changes
    assert changes is not None
    assert (changes.gone_tasks, changes.gone_runs) == (1, {"test": 4})
    source.write_text(full, "utf-8")
    line(store)
    again = Corpus(store, "c")
    assert again.manifest.assignment == before.assignment and again.version.number == 3
    assert ledger_violations(again) == []


def test_corrected_labels_are_a_version_and_the_same_file_is_none(
    world: tuple[Store, Path],
) -> None:
    store, source = world
    Corpus(store, "c").import_trajectories()
    assert len(Corpus(store, "c").deliveries.read()) == 1
    task = Corpus(store, "c").manifest.tasks["cal"][0]

    def corrected(records: list[Record]) -> list[Record]:
        number = next(place for place, item in enumerate(records) if item["task_id"] == task)
        records[number]["outcome"] = 1 - records[number]["outcome"]
        return records

    rewrite(source, corrected)
    Corpus(store, "c").import_trajectories()
    changes = Corpus(store, "c").version.changes
    assert changes is not None
    assert changes.changed_labels == {"cal": 1} and not changes.new_runs and not changes.gone_runs


def test_runs_that_were_never_read_are_a_first_reading(world: tuple[Store, Path]) -> None:
    store, _ = world
    corpus, kinds = Corpus(store, "c"), []
    for number, runs in enumerate((["a", "b"], ["c"], ["b", "d"], ["e"])):
        registration = register(corpus, {"version": number}, run_id="r")
        read = record_read(
            corpus,
            judge="other",
            registration=registration,
            configuration={"scores": str(number)},
            run_id="r",
            runs=runs,
        )
        kinds.append(read.kind)
    assert kinds == ["first", "first", "reused", "first"]


def respaced(record: Record) -> Record:
    steps = [{**step, "action": step["action"] + "  "} for step in record["steps"]]
    return {**record, "steps": steps}


@pytest.mark.parametrize(
    "change",
    [
        lambda record: {**record, "agent": "vendor/" + record["agent"]},
        lambda record: {**record, "trajectory_id": "x" + record["trajectory_id"]},
        respaced,
    ],
)
def test_runs_under_other_names_and_spaces_were_read(
    world: tuple[Store, Path], change: Callable[[Record], Record]
) -> None:
    store, source = world
    before = Corpus(store, "c").run_contents("test")
    rewrite(source, lambda records: [change(record) for record in records])
    Corpus(store, "c").prepare_splits()
    after = Corpus(store, "c").run_contents("test")
    tasks = Corpus(store, "c").manifest.tasks["test"]
    assert len(set(before) & set(after)) >= 3 * len(tasks), "runs are known again"


def test_a_delivery_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    source = write_runs(tmp_path / "runs.jsonl", tasks=5, attempts=2)
    store = Store(str(tmp_path / "root"))
    save_config(store, CorpusConfig("c", paths=(str(source),)))
    Corpus(store, "c").import_trajectories()
    before = store.now().ledger("c")
    rewrite(source, lambda rows: [*rows, {**rows[3], "outcome": 1 - rows[3]["outcome"]}])
    said = "row 11 gives the run 'task-001/1' the outcome .*; keep the one that is right"
    with pytest.raises(InputError, match=said):
        Corpus(store, "c").import_trajectories()
    assert store.now().ledger("c") == before


def test_a_delivery_of_another_format_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    write_runs(folder / "runs.jsonl", tasks=5, attempts=2)
    store = Store(str(tmp_path / "root"))
    save_config(store, CorpusConfig("c", paths=(str(folder),)))
    Corpus(store, "c").import_trajectories()
    (folder / "runs.jsonl").unlink()
    write_json(folder / "a-retail.json", [tau_record(0), tau_record(1)])
    with pytest.raises(InputError, match="c was read as table and these files are taubench_v1"):
        Corpus(store, "c").import_trajectories()
    assert len(Corpus(store, "c").columns()) == 10
