"""A year of weekly deliveries to one benchmark: what is decided, what it costs, what was wrong.

    python benchmarks/year.py [--data DIR] [--corpus swebench_lite_acr] [--weeks 52] [--seed 0]
    [--seeds 5] [--alpha A] [--batch-runs N] [--out FOLDER] [--quick]

A published corpus of several agents is delivered as a team would. The labelled runs of the first
agent (the first three, where each task has one run of an agent) on half of the tasks are the
corpus. Its other runs come week by week without labels, and so do those of the agents that arrive
one after the other. The attempts of an agent at a task come together. Once a quarter, ten further
tasks come labelled, of every agent that has arrived.
Reviewers read what the queue asks for and answer with the published outcomes, which nothing else
sees. Deliveries, labels and questions go through the commands. Dagster's sensors and schedule are
evaluated, and what they request is done: after a labelled delivery, after labels every fourth week,
and twice a year. What is certified then is deployed where the checks allow it.

What goes wrong on the way: In the second month the agents of CAL still deliver new tasks, and the
harness reports every verdict the wrong way round, so that the judge errs. For a month one reviewer
answers at random; a fifth of the runs are read twice. In one week a stored table of decisions is
altered.

The table has, by week, the runs that the corpus certificate and the certificates of batches decided
without reading, and how many were wrong. It also has the labels and the largest e-value of the
monitor, whose alarm is at 1/δ. The summary compares every certified batch with the withheld
outcomes.

--seeds: so many years, from --seed on, whose figures are averaged with their standard error.
--alpha: the budget, of the corpus and of batches. --out: keeps the table of each year and a row of
its figures; a year whose row is there is not lived again. --batch-runs: how many uncovered runs
wait for a draw, at most for four weeks, by default as many as for any corpus; 1 draws from every
week's. --quick: four weeks. Seeds of the draws of batches are by chance, so figures vary. The
lexical judge alone is trained, and commands report to no event log.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd

from certify_assets.certificates.batch_draw import BatchCertificate
from certify_assets.certificates.batch_tables import error_limit
from certify_assets.cli import main as certify
from certify_assets.corpora.corpus import Corpus
from certify_assets.judges.families.lexical import LexicalJudge
from certify_assets.judges.judged import JudgedCorpus
from certify_assets.operations.batch_audit import BatchAudit, batch_audits
from certify_assets.operations.batches import batch_names, decided
from certify_assets.operations.decisions import load_decisions
from certify_assets.operations.deployment import Alarm, read_deployments
from certify_assets.operations.labels import label_table
from certify_assets.operations.monitoring import MonitorRecord
from certify_assets.storage.store import Store

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NAME = "year"
ALPHA = 0.2
# findings of a batch that say that its runs are unlike those of CAL
UNLIKE = {"changed_agents", "shifted"}
# words that a verdict puts at the end of a run, and how often
_WORDS, _TIMES = 40, 3
CORPORA = ("intercode_bash", "swebench_lite_acr", "taubench_retail")


@dataclass(frozen=True)
class Calendar:
    """When what happens, in weeks from 1."""

    weeks: int

    @property
    def careless(self) -> range:
        """The month of the reviewer who answers at random."""
        return range(self.weeks // 2 + 1, self.weeks // 2 + 5)

    @property
    def drift(self) -> range:
        """The month of wrong verdicts, the second."""
        return range(5, 9)

    @property
    def tampered(self) -> int:
        return 3 * self.weeks // 4

    @property
    def labelled(self) -> list[int]:
        """Weeks with a labelled delivery."""
        return [round(self.weeks * part / 4) for part in (1, 2, 3)]


@dataclass(frozen=True, eq=False)
class Source:
    """A published corpus, cut into a start, weekly runs and labelled deliveries."""

    start: pd.DataFrame
    weekly: list[pd.DataFrame]  # by week, from 1 at index 0
    labelled: dict[int, pd.DataFrame]
    outcome: dict[str, int]

    @classmethod
    def read(cls, data: Path, name: str, calendar: Calendar, seed: int) -> Source:
        # tests load this file as a module, without its folder on the path
        from published import read_published

        frame = read_published(data / name)
        frame = frame[frame["outcome"].notna()].reset_index(drop=True)
        rng = np.random.default_rng(seed)
        tasks = rng.permutation(np.unique(frame["task_id"].to_numpy(str)))
        known = set(tasks[: tasks.size // 2])
        extra = np.array_split(tasks[-3 * min(10, tasks.size // 12) :], 3)
        counts = frame["agent"].value_counts()
        order = sorted(counts.index, key=lambda agent: (-counts[agent], agent))
        first_agents = 1 if counts.iloc[0] > tasks.size else 3
        rank = frame["agent"].map({agent: place for place, agent in enumerate(order)}).to_numpy()
        later = frame["task_id"].isin({task for part in extra for task in part}).to_numpy()
        first = frame["task_id"].isin(known).to_numpy() & (rank < first_agents)
        # one agent after the other, each beginning before the one before has ended, task by task
        place = np.flatnonzero(~later & ~first)
        number = np.unique(frame["task_id"].to_numpy(str), return_inverse=True)[1]
        delay = rng.uniform(0, 1.3, (len(order), tasks.size))
        place = place[np.argsort((rank + delay[rank, number])[place], kind="stable")]
        weekly = np.array_split(place, calendar.weeks)
        arrival = {
            number: next(
                week for week, rows in enumerate(weekly, 1) if (rank[rows] == number).any()
            )
            for number in range(len(order))
        }
        arrives = np.array([arrival[number] for number in rank])
        labelled = {
            week: frame[frame["task_id"].isin(set(part)).to_numpy() & (arrives <= week)]
            for week, part in zip(calendar.labelled, extra, strict=True)
        }
        return cls(
            start=frame[first],
            weekly=[frame.iloc[np.sort(rows)] for rows in weekly],
            labelled=labelled,
            outcome=dict(zip(frame["trajectory_id"], frame["outcome"].astype(int), strict=True)),
        )


def write_runs(
    path: Path, frame: pd.DataFrame, *, labels: bool, words: tuple[str, str] = ("", "")
) -> Path:
    """Write runs as JSON lines, the last observation with the words of failed or successful ones."""
    with path.open("w", encoding="utf-8") as stream:
        for row in frame.itertuples():
            steps = [dict(step) for step in row.steps]
            if (said := words[int(row.outcome)]) and steps:
                steps[-1]["observation"] = f"{steps[-1]['observation']}\n{said}"
            document = {
                "trajectory_id": row.trajectory_id,
                "task_id": row.task_id,
                "agent": row.agent,
                "attempt": int(row.attempt),
                "instruction": row.instruction,
                "steps": steps,
            }
            if labels:
                document["outcome"] = int(row.outcome)
            stream.write(json.dumps(document) + "\n")
    return path


class Platform:
    """A data root that is used through the commands, in this process."""

    def __init__(self, root: Path) -> None:
        os.environ["CERTIFY_ROOT"] = str(root / "data")
        os.environ["DAGSTER_HOME"] = str(root / "dagster")
        self.folder = root
        self.cursors: dict[str, str | None] = {}
        (root / "events").mkdir()
        (root / "events" / "dagster.yaml").touch()
        self.instance = dg.DagsterInstance.local_temp(str(root / "events"))

    def call(self, *words: object, refused: bool = False) -> tuple[int, str, str]:
        """Call a command; exit codes 0 and 3 are answers, 2 only where it is to be refused."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                certify([str(word) for word in words])
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        # without a home that is there, a command reports to no event log
        shutil.rmtree(os.environ["DAGSTER_HOME"], ignore_errors=True)
        if code not in ({0, 2, 3} if refused else {0, 3}):
            said = " ".join(map(str, words))
            raise SystemExit(f"certify {said}: exit {code}\n{err.getvalue()}{out.getvalue()}")
        return code, out.getvalue(), err.getvalue()

    def tick(self, name: str) -> None:
        """Evaluate a sensor or schedule as the daemon does, and execute what it requests."""
        from dagster._core.definitions.partitions.context import partition_loading_context

        from certify_assets.defs.execution import execute, failures
        from certify_assets.defs.names import CORPORA
        from certify_assets.defs.platform import platform_definitions
        from certify_assets.defs.project import Project
        from certify_assets.defs.resources import DataRoot

        defs = platform_definitions(Project.of(judges=["lexical"]))
        repository = defs.get_repository_def()
        given: dict[str, Any] = {
            "repository_def": repository,
            "resources": {"data_root": DataRoot(root=os.environ["CERTIFY_ROOT"])},
        }
        output = redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO())
        instance = self.instance
        instance.add_dynamic_partitions(CORPORA, [NAME])
        with output[0], output[1]:
            with partition_loading_context(dynamic_partitions_store=instance):
                if repository.has_sensor_def(name):
                    source: Any = repository.get_sensor_def(name)
                    context: Any = dg.build_sensor_context(
                        instance=instance, cursor=self.cursors.get(name), **given
                    )
                else:
                    source = repository.get_schedule_def(name)
                    context = dg.build_schedule_context(
                        instance=instance, scheduled_execution_time=datetime.now(UTC), **given
                    )
                with context:
                    made = source.evaluate_tick(context)
            self.cursors[name] = getattr(made, "cursor", None) or self.cursors.get(name)
            for request in made.run_requests or ():
                selection = set(request.asset_selection) if request.asset_selection else None
                done = execute(source.job_name, instance, request.partition_key, selection)
                if not done.success:
                    raise SystemExit(f"{name}: {failures(done.all_events)}")

    def corpus(self) -> Corpus:
        """Open the corpus as it is stored now."""
        return Corpus(Store(os.environ["CERTIFY_ROOT"]), NAME)


@dataclass
class Reviewers:
    """Reviewers who know the published outcomes; one of them answers at random for a month."""

    platform: Platform
    outcome: dict[str, int]
    rng: np.random.Generator
    capacity: int
    double: float
    labels: int = 0
    wrong: int = 0

    def work(self, week: int, *, careless: bool) -> int:
        """Read the queue up to the capacity of a week, a few runs at a time; return the labels."""
        said = 0
        while said < self.capacity:
            queue = self.platform.folder / "queue.csv"
            queue.unlink(missing_ok=True)
            self.platform.call("review", "export", NAME, queue, "--double", self.double)
            frame = pd.read_csv(queue, dtype=str, keep_default_na=False)
            frame = frame[frame["kind"] != "undecided"].head(min(24, self.capacity - said))
            if frame.empty:
                break
            rows = [
                (run, *self._answer(run, int(reviews), careless=careless))
                for run, reviews in zip(frame["trajectory_id"], frame["reviews"], strict=True)
            ]
            answers = self.platform.folder / f"labels-{week:02d}-{said:03d}.csv"
            pd.DataFrame(rows, columns=["trajectory_id", "outcome", "reviewer"]).to_csv(
                answers, index=False
            )
            self.platform.call("review", "import", NAME, answers)
            said += len(rows)
        self.labels += said
        return said

    def _answer(self, run: str, reviews: int, *, careless: bool) -> tuple[int, str]:
        truth = self.outcome[run]
        reviewer = ("ann", "ben", "cem", "dana")[reviews % 4]
        if careless and reviewer == "ann":
            answer = int(self.rng.random() < 0.5)
            self.wrong += answer != truth
            return answer, reviewer
        return truth, reviewer


@dataclass
class Week:
    """What was seen of one week while it was worked on."""

    week: int
    delivered: int
    batch: str
    labels: int = 0
    e_value: float = 1.0  # largest of the monitor's so far, for the certificates in use
    refused: str = ""  # why nothing was decided
    notes: list[str] = field(default_factory=list)


class Year:
    """The weeks, one after the other."""

    def __init__(
        self,
        platform: Platform,
        source: Source,
        calendar: Calendar,
        seed: int,
        *,
        alpha: float = ALPHA,
    ) -> None:
        self.platform, self.source, self.calendar = platform, source, calendar
        self.alpha = alpha
        self.reviewers = Reviewers(
            platform, source.outcome, np.random.default_rng(seed + 1), capacity=400, double=0.2
        )
        self.weeks: list[Week] = []
        self.alarms, self.deployed = 0, 1

    def start(self, batch_runs: int | None = None) -> None:
        """Import, certify and deploy the first agent's runs; a user does no more than this."""
        given = [] if batch_runs is None else ["--set", f"batch_runs={batch_runs}"]
        folder, call = self.platform.folder, self.platform.call
        path = write_runs(folder / "start.jsonl", self.source.start, labels=True)
        call(
            "corpus", "import", path, "--name", NAME, "--format", "table",
            "--set", "judge=lexical", "--set", "rl=false",
            "--set", f"alphas=[{self.alpha}]",
            "--set", "accept_structural_leak=this judge may read the length of a run",
            *given,
        )  # fmt: skip
        call("run", NAME, "--judge", "lexical")
        call("ops", "deploy", NAME, "lexical", "--audit-rate", 0.25, "--draw-seed", 7)
        if not read_deployments(self.platform.corpus()):
            raise SystemExit("the lexical judge is not deployed: nothing was certified")

    def run(self) -> None:
        """Work through all weeks."""
        for number in range(1, self.calendar.weeks + 1):
            self.one(number)

    def one(self, number: int) -> None:
        """Deliver a week, review, and let the sensors and the schedule act."""
        platform = self.platform
        words = self._words() if number in self.calendar.drift else ("", "")
        notes = [self._tamper()] if number == self.calendar.tampered else []
        runs = self.source.weekly[number - 1]
        path = write_runs(
            platform.folder / f"week-{number:02d}.jsonl", runs, labels=False, words=words
        )
        # no time passes here: what waits for a draw is four weeks old by then, as it may get
        drawn = ["--draw"] if number % 4 == 0 else []
        platform.call("ops", "ingest", NAME, path, *drawn)
        record = decided(platform.corpus(), batch_names(platform.corpus())[-1]).content
        week = Week(number, len(runs), record.batch, notes=notes)
        self.weeks.append(week)
        if record.refusal is not None:
            week.refused = record.refusal.code
        week.notes += [item["code"] for item in record.findings if item["code"] in UNLIKE]
        week.labels = self.reviewers.work(number, careless=number in self.calendar.careless)
        if number in self.source.labelled:
            added = self.source.labelled[number]
            path = write_runs(platform.folder / f"labelled-{number:02d}.jsonl", added, labels=True)
            platform.call("corpus", "import", path, "--name", NAME, "--add")
            platform.tick("new_versions")
            platform.call("ops", "deploy", NAME, "lexical")
            week.notes.append(f"{len(added)} labelled runs added")
        if number % 4 == 0:
            platform.tick("reviewed_labels")
        if number % 26 == 0:
            platform.tick("weekly_recertification")
        if number % 4 == 0:
            platform.call("ops", "recertify", NAME, "--deploy")
        self._note(week)

    def _note(self, week: Week) -> None:
        """Note alarms and deployments that the week has brought."""
        corpus = self.platform.corpus()
        alarms, deployed = len(corpus.events(Alarm)), len(read_deployments(corpus))
        judge = JudgedCorpus(corpus, "lexical")
        if judge.store.exists(judge.key("monitor.json")):
            for entry in MonitorRecord.from_dict(judge.read("monitor.json")).monitors:
                week.e_value = max(week.e_value, entry.result.e_process.largest)
        if alarms > self.alarms:
            week.notes.append("alarm")
        if deployed > self.deployed:
            made = read_deployments(corpus)[-1]
            kind = f"recertification {made.recertification}" if made.recertification else "CAL"
            week.notes.append(f"deployment {made.number} ({kind})")
        self.alarms, self.deployed = alarms, deployed

    def _words(self) -> tuple[str, str]:
        """Return the words that failed and successful runs end with in the month of the drift.

        Words of failure are those that lower the score of this judge most, and so on.
        """
        judge = JudgedCorpus(self.platform.corpus(), "lexical").load()
        assert isinstance(judge, LexicalJudge)
        order = np.argsort(judge.arrays["coefficients"], kind="stable")
        failure, success = (
            " ".join([judge.about.vocabulary[place] for place in part] * _TIMES)
            for part in (order[:_WORDS], order[-_WORDS:])
        )
        return success, failure

    def _tamper(self) -> str:
        """Alter a stored table of decisions, see that the next call refuses, and restore it."""
        corpus = self.platform.corpus()
        record = decided(corpus, self.weeks[-1].batch).content
        table = corpus.store.objects.path(record.objects["decisions"])
        kept = table.read_bytes()
        frame = pd.read_parquet(table)
        frame["decision"] = "release"
        frame.to_parquet(table, index=False)
        code, _, _ = self.platform.call("review", "queue", NAME, refused=True)
        if not code:
            raise SystemExit("an altered table of decisions was read")
        table.write_bytes(kept)
        return "altered table refused"


def outcome_table(year: Year) -> pd.DataFrame:
    """Return one row a week: what was decided by which promise, and what of it was wrong."""
    decided = load_decisions(year.platform.corpus())
    truth = decided["trajectory_id"].map(year.source.outcome).to_numpy()
    wrong = (decided["decision"] == "reject") & (truth == 1)
    wrong |= (decided["decision"] == "release") & (truth == 0)
    automatic = decided["decision"].isin(("reject", "release"))
    by_batch = automatic & (decided["reason"] == "batch_certificate")
    rows = []
    for week in year.weeks:
        mine = decided["batch"] == week.batch
        row: dict[str, object] = {"week": week.week, "runs": week.delivered, "labels": week.labels}
        for name, kind in (("corpus", automatic & ~by_batch), ("batch", by_batch)):
            row[name] = int((mine & kind).sum())
            row[f"{name}_wrong"] = int((mine & kind & wrong).sum())
        row["e_value"] = float(f"{week.e_value:.3g}")
        row["notes"] = "; ".join([*([week.refused] if week.refused else []), *week.notes])
        rows.append(row)
    return pd.DataFrame(rows)


def is_above(audit: BatchAudit, item: BatchCertificate, outcome: dict[str, int]) -> bool:
    """Whether a certified set holds more errors than it promises, by the withheld outcomes."""
    assert item.threshold is not None
    inside = audit.draw.batch.decided(item.side, item.threshold)
    truth = np.array([outcome[run] for run in audit.runs])[inside]
    wrong = truth == (1 if item.side == "reject" else 0)
    return bool(wrong.sum() >= error_limit(item.alpha, int(inside.sum())))


@dataclass(frozen=True)
class Summary:
    """What the year comes to; shares are of all delivered runs."""

    runs: int
    rows: int  # of decisions: one a run
    labels: int
    decided: float  # without reading
    corpus_error: float  # among those that the corpus certificate decided
    corpus_drift: int  # runs that it decided in the month of the drift
    corpus_drift_wrong: int
    drift_seen: int  # weeks of that month that were refused or found unlike CAL before any label
    certified: int  # sides of batches
    above: int  # of these, with more than ⌊αN⌋ errors among the N of the set, labelled or not
    batch_error: float
    alarms: int
    deployments: int
    disputed: int  # runs whose reviewers disagreed

    @classmethod
    def of(cls, year: Year, table: pd.DataFrame) -> Summary:
        drift = table["week"].isin(list(year.calendar.drift))
        by_batch = table[table["batch"] > 0]
        corpus = year.platform.corpus()
        exceeded = [
            is_above(audit, item, year.source.outcome)
            for audit in batch_audits(corpus)[0]
            if audit.state == "certified"
            for item in audit.certificates
            if item.certified
        ]

        def error(rows: pd.DataFrame, name: str) -> float:
            return float(rows[f"{name}_wrong"].sum() / max(1, rows[name].sum()))

        return cls(
            runs=int(table["runs"].sum()),
            rows=len(load_decisions(corpus)),
            labels=int(table["labels"].sum()),
            decided=float((table["corpus"] + table["batch"]).sum() / table["runs"].sum()),
            corpus_error=error(table[~drift], "corpus"),
            corpus_drift=int(table.loc[drift, "corpus"].sum()),
            corpus_drift_wrong=int(table.loc[drift, "corpus_wrong"].sum()),
            drift_seen=sum(
                bool(week.refused) or any(note in UNLIKE for note in week.notes)
                for week in year.weeks
                if week.week in year.calendar.drift
            ),
            certified=len(exceeded),
            above=sum(exceeded),
            batch_error=error(by_batch, "batch"),
            alarms=year.alarms,
            deployments=year.deployed,
            disputed=label_table(corpus).figures()["disputed"],
        )


def live(given: argparse.Namespace, seed: int) -> Summary:
    """Live through one year, and print what came of it."""
    calendar = Calendar(4 if given.quick else given.weeks)
    source = Source.read(given.data, given.corpus, calendar, seed)
    with tempfile.TemporaryDirectory() as folder:
        platform = Platform(Path(folder))
        year = Year(platform, source, calendar, seed, alpha=given.alpha)
        started, cpu = time.perf_counter(), time.process_time()
        year.start(given.batch_runs)
        year.run()
        table = outcome_table(year)
        print(table.to_string(index=False))
        summary = Summary.of(year, table)
        print("".join(f"{name}: {value:.4g}\n" for name, value in asdict(summary).items()))
        print(
            f"{time.perf_counter() - started:.0f} s, {time.process_time() - cpu:.0f} CPU-s",
            file=sys.stderr,
            flush=True,
        )
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            table.to_csv(given.out / f"year_{seed}.csv", index=False)
    return summary


def lived(given: argparse.Namespace) -> pd.DataFrame:
    """Return the summaries of the years by their seeds, of which the folder may have some."""
    path = given.out and given.out / "summaries.csv"
    found = pd.read_csv(path, index_col="seed") if path and path.exists() else pd.DataFrame()
    seeds = range(given.seed, given.seed + given.seeds)
    for seed in seeds:
        if seed in found.index:
            continue
        row = pd.DataFrame([asdict(live(given, seed))], index=pd.Index([seed], name="seed"))
        found = pd.concat([found, row])
        if path:
            found.to_csv(path)
    return found.loc[list(seeds)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--corpus", choices=CORPORA, default="swebench_lite_acr")
    parser.add_argument("--weeks", type=int, default=52)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alpha", type=float, default=ALPHA)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--batch-runs", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="Four weeks.")
    given = parser.parse_args(arguments)
    if not (given.data / given.corpus).is_dir():
        print(f"skipped: {given.data / given.corpus} is not here")
        return 0
    figures = lived(given)
    if len(figures) > 1:
        both = pd.DataFrame({"mean": figures.mean(), "standard error": figures.sem()})
        print(both.to_string(float_format="%.4g"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
