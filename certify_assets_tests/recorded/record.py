"""Record what the product answers, to prove after a rebuild that no answer changed.

    python -m certify_assets_tests.recorded.record --out FILE [--compare FILE] [--data DIR]

The product is driven as users drive it: by commands with ``--json`` and by ``from certify_assets
import certify, …``. Recorded are numbers and codes that a user reads; times, hashes, places and
sentences are left out (see `canonical`). The names of commands are in `COMMANDS`, and where the
data root keeps things is known to the functions `stored_scores`, `stored_runs`, `stored_document`
and `stored_tables` alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certify_assets.storage.store import Store
from certify_assets_tests.doc_commands import execute, surroundings
from certify_assets_tests.paths import REPOSITORY, shared_data
from certify_assets_tests.recorded import calls
from certify_assets_tests.recorded.canonical import clean, codes, differences, picked, rounded

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COMMANDS", "Product", "main", "record_embedded", "record_published"]

COMMANDS = {
    "judges": "run {corpus}",
    # a judge of those that a corpus has for comparison alone
    "line": "run {corpus} --judge lexical_weighted",
    "import": "corpus import",
    "show": "corpus show {corpus}",
    "certificate": "certificate",
    "audit": "audit",
    "decide": "decide",
    "verify": "verify",
    "resample": "resample",
    "plan": "plan",
    "monitor": "monitor",
    "compare": "judge compare {corpus}",
    "ledger": "ledger status {corpus}",
    "deploy": "ops deploy {corpus} {judge}",
    "deployed": "ops status {corpus}",
    "ingest": "ops ingest {corpus}",
    "recertify": "ops recertify {corpus}",
    "lineage": "ops lineage",
    "queue": "review queue {corpus}",
    "labels": "review import {corpus} {file}",
    "study": "research study {corpus}",
    "law": "research law",
    "simulate": "research simulate",
}
EMBEDDED = ("miniwob_mixed", "miniwob_weak")
JUDGES = ("lexical", "lexical_weighted")
ALPHAS = ("0.1", "0.2")
#: folder of the published runs: the side that `certify plan` is asked about, and the script of
#: benchmarks/corpora that makes a table of them where there is no reader
PUBLISHED = {
    "taubench_retail": ("release", ""),
    "terminal_bench_core": ("reject", ""),
    "swebench_lite_acr": ("reject", "autocoderover"),
}
#: the corpus that a batch is delivered to, and that the study is of: both budgets certify there
OPERATED = "miniwob_weak"
# hours and machine times, and the commands that a stage is run by
_NO_FIGURES = ("cost", "stages")
_CERTIFICATE = (
    "certified threshold coverage selective_error tail level trajectories tasks covered_tasks "
    "covered_trajectories errors effective_tasks success_rate icc deff n_eff candidates "
    "findings"
)
_SIZES = "trajectories tasks unlabelled success_rate icc deff n_eff agents attempts duplicates"
_IMPORTED = f"{_SIZES} dropped gates files domain notes label_facts"
_BATCH = (
    "decided deployment judge rows tasks decisions reasons asked drawn_tasks runs new changed "
    "known dropped outcomes_left_out findings refusal"
)
_RECERTIFIED = "number delta tasks trajectories sides findings counted drawn new_tasks left_out"
#: so many spaces make a cell of a table a sentence
_SENTENCE = 6
_SECTION = Callable[[], Any]


def stored_scores(root: Path, corpus: str, judge: str) -> pd.DataFrame:
    """Return the score table of a judge: RL and CAL with their outcomes."""
    store = Store(str(root))
    table = store.read_table(f"judges/{judge}/{corpus}/scores.parquet")
    # as the table has it, split=cal is of all runs that certify
    manifest = store.read_json(f"corpora/{corpus}/splits/manifest.json")
    return table.assign(split=table["task_id"].map(manifest["assignment"]))


def stored_runs(root: Path, corpus: str) -> pd.DataFrame:
    """Return the runs of a corpus with tasks, steps and outcomes."""
    return Store(str(root)).read_table(f"corpora/{corpus}/trajectories.parquet")


def stored_document(root: Path, corpus: str, judge: str, name: str) -> Any:
    """Return a judge's certificates, audits or monitor on a corpus as they are stored."""
    return Store(str(root)).read_json(f"judges/{judge}/{corpus}/{name}.json")


def stored_tables(root: Path) -> list[Path]:
    """Return the CSV tables of the study."""
    return sorted((root / "pages" / "study" / "tables").glob("*.csv"))


@dataclass
class Answer:
    """How a command ended and the document that it printed, empty where it printed none."""

    code: int
    document: Any

    def figures(self, names: str | None = None) -> dict[str, Any]:
        """Return what is recorded of it."""
        part = clean(self.document) if names is None else picked(self.document, names)
        return {"exit": self.code, **part}


@dataclass
class Product:
    """The commands of the product, on a data root of their own in the folder ``work``."""

    work: Path

    @property
    def root(self) -> Path:
        """The data root."""
        return self.work / "root"

    def call(self, command: str, *arguments: object, rooted: bool = True, **names: str) -> Answer:
        """Call a command with ``--json``; `names` stand in the braces of its words."""
        words = [word.format(**names) for word in COMMANDS[command].split()]
        rest = ["--json", *(["--root", str(self.root)] if rooted else [])]
        words += [*map(str, arguments), *rest]
        with surroundings(self.work, self._settings()):
            code, printed = execute(shlex.join(["certify", *words]))
        return Answer(code, json.loads(printed) if printed.strip() else {})

    def python(self, scores: Path) -> Any:
        """Return what the calls of the Python interface give for a score table."""
        return json.loads(json.dumps(calls.answers(scores)))

    def _settings(self) -> dict[str, str]:
        return {
            "DAGSTER_HOME": str(self.work / "dagster"),
            "CERTIFY_ROOT": str(self.root),
            # nothing answers there: what MLflow makes of a run is no figure of the product's
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }


def record_embedded(product: Product) -> dict[str, Any]:
    """Record the embedded corpora, a delivered batch, the study of one corpus and the rest."""
    made: dict[str, Any] = {}
    for corpus in EMBEDDED:
        made[corpus] = _corpus(product, corpus)
    made["operation"] = _operation(product)
    made["study"] = _study(product)
    law = product.call("law", "--paper", rooted=False)
    made["law"] = law.figures()
    grid = ("--tasks", 20, "--rho", ".5", "--trials", 40)
    made["simulate"] = product.call("simulate", *grid, rooted=False).figures()
    return made


def record_published(product: Product, data: Path | None) -> dict[str, Any]:
    """Record published corpora: import, whole pipeline, certificates; or why one is left out."""
    made: dict[str, Any] = {}
    for corpus, (side, converter) in PUBLISHED.items():
        try:
            folder = shared_data(corpus) if data is None else data / corpus
            archives = sorted(folder.glob("*.tar.gz"))
        except pytest.skip.Exception as reason:
            made[corpus] = {"skipped": str(reason)}
            continue
        if not archives:
            made[corpus] = {"skipped": f"the data folder has no archives of {corpus}"}
            continue
        given: tuple[str, ...] = ()
        if converter:
            # a table does not say its domain
            given = ("--set", "domain=software")
            table = product.work / f"{corpus}.jsonl"
            script = REPOSITORY / "benchmarks" / "corpora" / f"{converter}.py"
            command = [sys.executable, script, *archives, "--out", table]
            subprocess.run(command, check=True, stdout=sys.stderr)
            archives = [table]
        imported = product.call("import", *archives, "--name", corpus, *given)
        made[corpus] = {"import": imported.figures(_IMPORTED), **_corpus(product, corpus, side)}
    return made


def _corpus(product: Product, corpus: str, side: str = "reject") -> dict[str, Any]:
    """Record the whole pipeline of a corpus, and the commands that work on its score table."""
    _say(f"{corpus}: the whole pipeline")
    product.call("judges", corpus=corpus)
    line = product.call("line", corpus=corpus)
    shown = product.call("show", corpus=corpus).document
    made: dict[str, Any] = {
        "exit": line.code,
        "show": _show(shown),
        "splits": clean(shown.get("splits")),
        "ledger": _ledger(product.call("ledger", corpus=corpus)),
        "judges": {judge: _stored(product.root, corpus, judge) for judge in JUDGES},
        "compare": _compared(product.call("compare", corpus=corpus).document),
    }
    return made | _tables(product, corpus, side)


def _show(document: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of the corpus page; not which tasks resemble each other, which is long."""
    profile = dict(document.get("profile", {}))
    profile["same_instruction"] = len(profile.get("same_instruction", ()))
    controls = document.get("controls")
    return {"profile": clean(profile), "controls": clean(controls)}


def _ledger(answer: Answer) -> dict[str, Any]:
    """Registrations, and reads of TEST by kind."""
    document = answer.document
    one = document["corpora"][0] if document.get("corpora") else document
    reads = dict(sorted(Counter(item["kind"] for item in one.get("reads", ())).items()))
    return {"exit": answer.code, "registrations": len(one.get("registrations", ())), "reads": reads}


def _stored(root: Path, corpus: str, judge: str) -> dict[str, Any]:
    """Certificates and audits as the line stored them."""
    certificates = stored_document(root, corpus, judge, "certificates")
    audits = stored_document(root, corpus, judge, "audits")["audits"]
    return {
        "certificates": _certificates(_listed(certificates)),
        "audits": {f"{item['side']} {item['alpha']:g}": clean(item) for item in audits},
        "monitor": clean(_outcome(stored_document(root, corpus, judge, "monitor"))),
    }


def _listed(document: Any) -> list[Any]:
    return list(document["certificates"] if isinstance(document, dict) else document)


def _outcome(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in ("status", "alarm", "findings") if name in document}


def _compared(document: Mapping[str, Any]) -> Any:
    """Comparison of the judges, without what a run took."""
    kept = []
    for corpus in document.get("corpora", ()):
        rows = []
        for row in corpus["rows"]:
            quality = {name: row[name] for name in ("auroc", "within_task") if name in row}
            rows.append({"judge": row["judge"], **quality})
        # what a run takes is of the machine
        best = {item["what"]: item for item in corpus["best"] if "CPU" not in item["what"]}
        kept.append({"rows": rows, "best": best, "findings": codes(corpus["findings"])})
    return clean(kept)


def _certificates(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    named = {}
    for item in documents:
        name = f"{item['side']} {item['alpha']:g} {item['procedure']}"
        figures = picked({**item, "findings": codes(item["findings"])}, _CERTIFICATE)
        named[name] = {**figures, "rows": item["inputs"]["rows"]}
    return named


def _tables(product: Product, corpus: str, side: str) -> dict[str, Any]:
    """Record what the commands say of the lexical judge's score table."""
    _say(f"{corpus}: certificates by every procedure, audits, decisions")
    tables = _write_tables(product, corpus)
    pilot = ("--pilot", tables["pilot"]) if "pilot" in tables else ()
    pilot_set = ("--set", f"pilot={tables['pilot']}") if "pilot" in tables else ()
    made: dict[str, Any] = {"certificate": {}, "verify": {}}
    for alpha in ALPHAS:
        out = product.work / f"{corpus}_{alpha}.json"
        wanted = ("--procedure", "all", "--side", "both", "--alpha", alpha, "--out", out)
        issued = product.call("certificate", tables["cal"], *wanted, *pilot_set, rooted=False)
        certificates = _certificates(issued.document["certificates"])
        made["certificate"][alpha] = {"exit": issued.code, **certificates}
        checked = product.call("verify", out, tables["cal"], *pilot, rooted=False)
        other = product.call("verify", out, tables["odd"], *pilot, rooted=False)
        forged = product.call("verify", _forged(out), tables["cal"], *pilot, rooted=False)
        answers = {"true": checked, "other_scores": other, "forged": forged}
        for name, answer in answers.items():
            answered = answer.figures("verified certificates")
            made["verify"].setdefault(alpha, {})[name] = answered
    made["halves"] = _halves(product, tables, product.work / f"{corpus}_half.json")
    planned = ("--alpha", ".2", "--side", side)
    made["plan"] = product.call("plan", tables["cal"], *planned, rooted=False).figures()
    made["python"] = clean(product.python(tables["cal"]))
    return made


def _write_tables(product: Product, corpus: str) -> dict[str, Path]:
    """Write CAL, its tasks by turns as two halves, and the labelled rows of RL as a pilot."""
    frame = stored_scores(product.root, corpus, "lexical")
    names = ["task_id", "trajectory_id", "agent", "score", "outcome"]
    cal = frame.loc[frame["split"] == "cal", names].reset_index(drop=True)
    even = cal["task_id"].map({task: n for n, task in enumerate(sorted(set(cal["task_id"])))}) % 2
    pilot = frame[(frame["split"] == "rl") & frame["outcome"].notna()]
    parts = {"cal": cal, "even": cal[even == 0], "odd": cal[even == 1]}
    if len(pilot):
        parts["pilot"] = pilot[[*names, "split"]]
    paths = {name: product.work / f"{corpus}_{name}.parquet" for name in parts}
    for name, part in parts.items():
        part.to_parquet(paths[name], index=False)
    return paths


def _forged(path: Path) -> Path:
    """Write certificates anew with the coverage of the first one raised."""
    document = json.loads(path.read_text("utf-8"))
    document["certificates"][0]["coverage"] += 0.125
    forged = path.with_stem(f"{path.stem}_forged")
    forged.write_text(json.dumps(document), "utf-8")
    return forged


def _halves(product: Product, tables: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Certify on one half of CAL's tasks; audit, decide, monitor and resample on the other."""
    wanted = ("--procedure", "all", "--side", "both", "--alpha", ".2", "--out", out)
    issued = product.call("certificate", tables["even"], *wanted, rooted=False)
    made: dict[str, Any] = {"exit": issued.code}
    for item in issued.document["certificates"]:
        if not item["certified"]:
            continue
        side, procedure = item["side"], item["procedure"]
        choice = ("--side", side, "--procedure", procedure)
        audit = product.call("audit", out, tables["odd"], *choice, rooted=False)
        decided = product.call("decide", out, tables["odd"], *choice, rooted=False)
        made[f"{side} {procedure}"] = {
            **_certificates([item]),
            "audit": audit.figures(),
            "decide": decided.figures(),
        }
    choice = ("--procedure", "taskboot")
    both = product.call("decide", out, tables["odd"], *choice, rooted=False)
    made["decide"] = both.figures("reject release human reasons")
    for side in ("reject", "release"):
        if f"{side} naive" in made:
            watched = ("--side", side, "--procedure", "naive")
            monitor = product.call("monitor", out, tables["odd"], *watched, rooted=False)
            made[f"monitor {side}"] = monitor.figures()
        middle = _median(tables["odd"])
        drawn = ("--threshold", repr(middle), "--side", side, "--alpha", ".2", "--draws", 2000)
        resampled = product.call("resample", tables["odd"], *drawn, rooted=False)
        made[f"resample {side}"] = resampled.figures()
    return made


def _median(path: Path) -> float:
    import pandas as pd

    return float(pd.read_parquet(path, columns=["score"])["score"].median())


def _operation(product: Product) -> dict[str, Any]:
    """Deploy a judge, deliver new runs, follow them, label them, certify anew."""
    _say(f"{OPERATED}: deployed, a batch delivered, labelled, certified anew")
    names = {"corpus": OPERATED, "judge": "lexical"}
    runs, labels = _deliveries(product)
    before = product.call("deployed", **names)
    deployed = product.call(
        "deploy", "--audit-rate", ".3", "--draw-seed", 7, "--accept-choice", **names
    )
    table = product.work / "decisions.parquet"
    delivered = product.call("ingest", runs, "--new-tasks", "--decisions", table, **names)
    again = product.call("ingest", runs, **names)
    (batch,) = delivered.document["batches"]
    run = next(item for item in _rows(table) if item["decision"] != "human")
    followed = product.call("lineage", run["trajectory_id"])
    certificate = product.call("lineage", batch["certificates"][0][:16])
    queue = product.call("queue", "--limit", 0, **names)
    read = product.call("labels", "--reviewer", "one", file=str(labels), **names)
    stood = product.call("labels", "--reviewer", "one", file=str(labels), **names)
    spent = ("--schedule", "inverse_square", "--every", 2)
    preview = product.call("recertify", *spent, "--dry-run", **names)
    recertified = product.call("recertify", *spent, **names)
    return {
        "before": {"exit": before.code, "refusal": before.document["refusal"]["code"]},
        "deploy": deployed.figures("judge alpha sampling number findings decides"),
        "ingest": delivered.figures("runs new changed known files dropped"),
        "batch": _batch(batch),
        "decisions": _decisions(_rows(table)),
        "again": again.figures("runs new changed known"),
        "lineage": {"decision": _links(followed), "certificate": _links(certificate)},
        "queue": queue.figures("waiting budget"),
        "labels": read.figures("added stood_already without_outcome"),
        "labels_again": stood.figures("added stood_already without_outcome"),
        "preview": preview.figures(),
        "recertify": recertified.figures(_RECERTIFIED),
        "monitor": _monitored(product, table, labels),
        "after": product.call("deployed", **names).figures("decides"),
    }


def _deliveries(product: Product) -> tuple[Path, Path]:
    """Write runs of the corpus as those of new tasks, unlabelled, and the labels of all of them."""
    frame = stored_runs(product.root, OPERATED)
    # every third task: easy and hard ones, of all splits; under new names nothing knows them
    chosen = frame[frame["task_id"].isin(sorted(set(frame["task_id"]))[::3])]
    chosen = chosen[chosen["attempt"] < 2]
    lines, labels = [], ["trajectory_id,outcome"]
    for row in chosen.to_dict("records"):
        name = f"new/{row['trajectory_id']}"
        told = {key: row[key] for key in ("agent", "attempt", "instruction")}
        steps = [dict(step) for step in row["steps"]]
        about = {"task_id": f"new-{row['task_id']}", "trajectory_id": name, **told, "steps": steps}
        lines.append(json.dumps(about))
        labels.append(f"{name},{row['outcome']}")
    runs, table = product.work / "delivered.jsonl", product.work / "labels.csv"
    runs.write_text("\n".join(lines) + "\n", "utf-8")
    # a file that was written just now may still be growing
    os.utime(runs, (1, 1))
    table.write_text("\n".join(labels) + "\n", "utf-8")
    return runs, table


def _rows(path: Path) -> list[dict[str, Any]]:
    import pandas as pd

    return list(pd.read_parquet(path).to_dict("records"))


def _batch(document: Mapping[str, Any]) -> dict[str, Any]:
    return {**picked(document, _BATCH), "certificates": len(document["certificates"])}


def _decisions(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers and mean scores by decision, and the thresholds that decided."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row["decision"], []).append(row["score"])
    means = {}
    for name, found in sorted(scores.items()):
        means[name] = {"runs": len(found), "mean_score": rounded(sum(found) / len(found))}
    thresholds = {rounded(row["reject_threshold"]) for row in rows}
    return {**means, "reject_threshold": sorted(thresholds, key=str)}


def _links(answer: Answer) -> dict[str, Any]:
    """Kinds of links and whether they hold; not their names."""
    found: Counter[str] = Counter()

    def count(link: Mapping[str, Any]) -> None:
        found[f"{link['kind']} {link['status']}"] += 1
        for child in link.get("links", ()):
            count(child)

    for link in answer.document["lineage"]:
        count(link)
    return {**answer.figures("kind holds"), "links": dict(sorted(found.items()))}


def _monitored(product: Product, decisions: Path, labels: Path) -> dict[str, Any]:
    """Put the labelled audit sample to the monitor of each reject certificate of the judge."""
    rows = [row for row in _rows(decisions) if row["asked"] == "audit_sample"]
    with labels.open(encoding="utf-8", newline="") as stream:
        outcomes = {row["trajectory_id"]: row["outcome"] for row in csv.DictReader(stream)}
    lines = ["task_id,trajectory_id,score,outcome,audit_sample"]
    for row in rows:
        name = row["trajectory_id"]
        lines.append(f"{row['task_id']},{name},{row['score']!r},{outcomes[name]},True")
    sample = product.work / "audit_sample.csv"
    sample.write_text("\n".join(lines) + "\n", "utf-8")
    made = {}
    for item in _listed(stored_document(product.root, OPERATED, "lexical", "certificates")):
        if item["side"] != "reject" or item["procedure"] != "pseudo_task":
            continue
        path = product.work / "watched.json"
        path.write_text(json.dumps(item), "utf-8")
        answer = product.call("monitor", path, sample, rooted=False)
        made[f"{item['side']} {item['alpha']:g}"] = answer.figures()
    return made


def _study(product: Product) -> dict[str, Any]:
    """Tables of the quick study, in a data root of its own so that they are of one corpus."""
    _say(f"{OPERATED}: the quick study")
    work = product.work / "study"
    work.mkdir()
    alone = Product(work)
    answer = alone.call("study", "--profile", "quick", corpus=OPERATED)
    tables = {}
    for path in stored_tables(alone.root):
        if path.stem not in _NO_FIGURES:
            with path.open(encoding="utf-8", newline="") as stream:
                rows = [" | ".join(map(_cell, row)) for row in csv.reader(stream)]
            tables[path.stem] = rows
    return {"exit": answer.code, "counts": answer.document.get("counts"), "tables": tables}


def _cell(text: str) -> str:
    """Return a cell of a table; of a sentence, which may be written anew, its numbers."""
    return text if text.count(" ") < _SENTENCE else " ".join(re.findall(r"\d*\.?\d+", text))


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Print every difference of two records and return their number.

    What one of them skipped is named and not compared.
    """
    counted = 0
    for name in sorted({*before, *after} - {"schema"}):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            _say(f"{name}: recorded by one of the two alone, so it is not compared")
            continue
        skipped = {part for found in (one, other) for part in found if "skipped" in found[part]}
        for part in sorted(skipped):
            _say(f"{name}/{part}: skipped by one of the two, so it is not compared")
        kept = [{key: found[key] for key in found if key not in skipped} for found in (one, other)]
        for path, was, now in differences(*kept, name):
            print(f"{path}: {json.dumps(was)} → {json.dumps(now)}")
            counted += 1
    return counted


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, write and compare; return 1 where there is a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where the record is written")
    parser.add_argument("--compare", type=Path, help="an earlier record; exit 1 where one differs")
    parser.add_argument("--data", type=Path, help="folder of published runs [../shared/data]")
    parser.add_argument("--only", choices=("embedded", "published"), help="one of the two sets")
    given = parser.parse_args(arguments)
    made: dict[str, Any] = {"schema": "certify_assets_tests/recorded/1"}
    with tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder))
        data = None if given.data is None else given.data.resolve()
        sections: dict[str, _SECTION] = {
            "embedded": lambda: record_embedded(product),
            "published": lambda: record_published(product, data),
        }
        for name, section in sections.items():
            if given.only in (None, name):
                made[name] = section()
    text = json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"
    given.out.write_text(text, "utf-8")
    ours = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = sum(sum(resource.getrusage(who)[:2]) for who in ours)
    _say(f"{len(text)} characters; {used:.0f} CPU seconds")
    if given.compare is None:
        return 0
    before = json.loads(given.compare.read_text("utf-8"))
    different = compare(before, json.loads(text))
    _say(f"{different} differences" if different else "nothing differs")
    return 1 if different else 0


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
