"""CPU seconds of `certify run` on one corpus, as a multiple of scikit-learn alone.

    python benchmarks/pipeline.py [--data DIR] [--quick]

The corpus is the 1,054 runs of ten τ-bench retail files of one producer in DIR
(../shared/data/taubench_retail). Both sides are processes of their own, one after the other:
  alone    json reads the files; TF-IDF of words and pairs and a logistic regression of
           scikit-learn on the SFT tasks of the platform; scores of the rest; thresholds of both
           sides at both budgets by the paper's Algorithm 1 (2,000 resamples of tasks, 40 thresholds);
  first    `certify run` in a terminal until the first certificate is on the screen;
  run      all of `certify run`: import, splits, quality, leaks, two judges with folds, certificates,
           audits, comparison, pages, records in Dagster and MLflow.
--quick: 40 tasks with three attempts, made up in the layout of those files.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "taubench_retail"
ARCHIVE, FOLDER = "Madhav-Kanda+tau-bench.raw.tar.gz", "final_results/"
DRAWS, THRESHOLDS, DELTA = 2_000, 40, 0.05
#: what a run says when the first certificate is made
FIRST = "% of runs are decided", "Nothing is certified: every run"


def alone(folder: Path) -> None:
    """Train and certify by hand: what the platform is compared with."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    texts, outcomes, tasks = [], [], []
    for path in sorted(folder.iterdir()):
        for run in json.loads(path.read_text("utf-8")):
            if run.get("traj"):
                said = (str(message.get("content") or "") for message in run["traj"])
                texts.append("\n".join(said))
                outcomes.append(run["reward"] >= 1)
                tasks.append(run["task_id"])
    succeeded, (names, task) = np.array(outcomes), np.unique(tasks, return_inverse=True)
    order = np.random.default_rng(42).permutation(names.size)
    # the shares of the platform's splits
    part = order[task] / names.size
    train, certify = part < 0.25, (part >= 0.25) & (part < 0.75)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    features = vectorizer.fit_transform([texts[row] for row in np.flatnonzero(train)])
    model = LogisticRegression(C=10, max_iter=2000).fit(features, succeeded[train])
    scores = model.decision_function(vectorizer.transform(texts))[certify]
    won, own = succeeded[certify], np.unique(task[certify], return_inverse=True)[1]
    number = own.max() + 1
    weights = np.random.default_rng(0).multinomial(number, np.ones(number) / number, DRAWS)
    for side, values, wrong in (("reject", scores, won), ("release", -scores, ~won)):
        for alpha in (0.1, 0.2):
            best = 0.0
            for threshold in np.quantile(values, np.linspace(0.025, 1, THRESHOLDS)):
                inside = values <= threshold
                covered = np.bincount(own[inside], minlength=number)
                errors = np.bincount(own[inside & wrong], minlength=number)
                above = (weights @ errors >= alpha * (weights @ covered)).mean()
                best = max(best, inside.mean()) if above <= DELTA else best
            print(f"{side} at {alpha:g}: {best:.3f} of the runs")


def make_up(folder: Path) -> None:
    """Write runs in the layout of the published files."""
    rng = random.Random(0)
    for trial in range(3):
        runs = []
        for task in range(40):
            won = rng.random() < 0.6
            words = ["confirmed", "thanks"] if won else ["sorry", "cannot"]
            told = f"Order {task}: {rng.choice(words)} {rng.choice(words)} {rng.random():.6f}"
            messages = [
                {"role": "user", "content": f"Please change order {task} of customer {task * 7}."},
                {"role": "assistant", "content": told},
            ]
            runs.append({"task_id": task, "reward": float(won), "info": {}, "traj": messages})
        (folder / f"agent-{trial}-retail.json").write_text(json.dumps(runs), "utf-8")


def spent(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float | None]:
    """CPU seconds of a process in a terminal, and those until it said that a certificate is made."""
    before, first = resource.getrusage(resource.RUSAGE_CHILDREN), None
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=terminal
    ) as process:
        os.close(terminal)
        said = ""
        # reading a terminal that its process has left is an error
        with suppress(OSError):
            while part := os.read(screen, 1 << 16):
                said += part.decode(errors="replace")
                if first is None and any(words in said for words in FIRST):
                    first = spent(process.pid)
        os.close(screen)
    # 3 is an answer: nothing certified, or a gate is closed
    if process.returncode not in (0, 3):
        sys.exit(said)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, first


def compare(source: Path, root: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CERTIFY_ROOT": str(root)}
    environment |= {"TERM": "xterm", "COLUMNS": "120"}
    environment.pop("DAGSTER_HOME", None)
    # whoever uses the package compiles it once: the import below does
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    certify = [sys.executable, "-m", "certify_assets.cli"]
    imported = [*certify, "corpus", "import", str(source), "--name", "retail"]
    accepted = "this benchmark compares seconds"
    seconds([*imported, "--set", f"accept_structural_leak={accepted}"], environment)
    base, _ = seconds([sys.executable, __file__, "--alone", str(source)], environment)
    whole, first = seconds([*certify, "run", "retail"], environment)
    print(f"scikit-learn alone  {base:6.1f} CPU-s")
    for name, taken in (("first certificate", first), ("certify run", whole)):
        if taken is not None:
            print(f"{name:18}  {taken:6.1f} CPU-s, {taken / base:.1f} times")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.alone:
        alone(given.alone)
        return
    if not given.quick and not (given.data / ARCHIVE).is_file():
        print(f"skipped: {given.data / ARCHIVE} is not there")
        return
    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "runs"
        source.mkdir()
        if given.quick:
            make_up(source)
        else:
            with tarfile.open(given.data / ARCHIVE) as archive:
                for member in archive:
                    if member.isfile() and member.name.startswith(FOLDER):
                        member.name = Path(member.name).name
                        archive.extract(member, source, filter="data")
        compare(source, Path(work) / "root")


if __name__ == "__main__":
    main()
