"""Tables of the study site on corpora, judges, procedures, seeds and simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.reports.comparison_page import Table
from certify_assets.reports.wording import DASH, count
from certify_assets.research import paper
from certify_assets.research.study import COMMANDS, Outcome, load_outcomes
from certify_assets.storage.store import Store

OURS, PAPER = "ours", "paper"
NOT_RUN = "not run"
HOSTED = "hosted"


@dataclass(frozen=True)
class StudyTable:
    """A table with what a reader needs beside it."""

    table: Table
    about: str
    sources: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    figure: str = ""


@dataclass
class Reader:
    """Reads the documents of one table and remembers them."""

    store: Store
    corpora: tuple[str, ...]
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    _missing: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, store: Store) -> Reader:
        """Return a reader of every registered corpus."""
        outcomes = {(item.corpus, item.stage): item for item in load_outcomes(store)}
        return cls(store, tuple(registered_corpora(store)), outcomes)

    def fresh(self) -> Reader:
        """Return a reader for another table."""
        return Reader(self.store, self.corpora, self.outcomes)

    def document(self, key: str) -> dict[str, Any] | None:
        """Return a stored document, and remember that a number was taken from it; None where there
        is none.
        """
        if not self.store.exists(key):
            return None
        self._sources[key] = self.store.sha256(key)
        found: dict[str, Any] = self.store.read_json(key)
        return found

    def of_corpora(self, pattern: str, stage: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the documents that a stage left on each corpus; corpora without one are said to
        be missing.
        """
        found = []
        for corpus in self.corpora:
            document = self.document(pattern.format(corpus))
            if document is None:
                self.lacks(corpus, stage)
            else:
                found.append((corpus, document))
        return found

    def lacks(self, corpus: str, stage: str, what: str = "") -> None:
        """Say that something was not run on a corpus, why where that is known, and which command
        runs it.
        """
        outcome = self.outcomes.get((corpus, stage))
        why = f" ({outcome.reason.rstrip('.')})" if outcome and outcome.reason else ""
        command = COMMANDS[stage].replace("CORPUS", corpus)
        sentence = f"{corpus}, {what or stage}: {NOT_RUN}{why}; {command}"
        if sentence not in self._missing:
            self._missing.append(sentence)

    def note(self, sentence: str) -> None:
        """Add a sentence to what is missing."""
        self._missing.append(sentence)

    def table(self, table: Table, about: str, figure: str = "") -> StudyTable:
        """Return the table with everything that was read for it."""
        return StudyTable(
            table, about, tuple(sorted(self._sources.items())), tuple(self._missing), figure
        )


Builder = Callable[[Reader], StudyTable]


def number(value: float | None, digits: int = 3) -> str:
    """Write a share as the paper does: .293; a dash where there is none."""
    from certify_assets.reports.wording import rate

    text = rate(value, digits)
    return text[1:] if text.startswith("0.") else text


def numbers(values: Sequence[float | None]) -> tuple[str, ...]:
    """Write several shares."""
    return tuple(number(value) for value in values)


_REAL = "real_scores/{}.json"
_BOTH = ("guarded_taskboot", "taskboot")
_TRAINED = ("base", "sft", "grpo")


def judge_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a judge's part of a document of real scores."""
    return next((item for item in document["judges"] if item["judge"] == name), None)


def cell_of(
    judge: Mapping[str, Any], side: str, alpha: float, procedure: str
) -> Mapping[str, Any] | None:
    """Return one cell of a judge."""
    wanted = (side, alpha, procedure)
    return next(
        (
            cell
            for cell in judge["cells"]
            if (cell["side"], cell["alpha"], cell["procedure"]) == wanted
        ),
        None,
    )


def corpora_table(reader: Reader) -> StudyTable:
    """Size and clustering of the TEST split of every corpus."""
    columns = ("whose", "corpus", "n", "G", "π", "ρ", "DEFF", "n_eff", "G of CAL")
    rows = []
    for corpus, document in reader.of_corpora("corpora/{}/profile.json", "splits"):
        test, cal = (document["splits"][split] for split in ("test", "cal"))
        clustering = (
            number(test["success_rate"], 2),
            number(test["icc"], 2),
            f"{test['deff']:.1f}",
            count(test["n_eff"]),
        )
        rows.append(
            (
                OURS,
                corpus,
                count(test["trajectories"]),
                count(test["tasks"]),
                *clustering,
                count(cal["tasks"]),
            )
        )
    for corpus, found in paper.corpora().items():
        clustering = (
            number(found.success_rate, 2),
            number(found.rho, 2),
            f"{found.deff:.1f}",
            str(found.n_eff),
        )
        rows.append((PAPER, corpus, count(found.rows), count(found.tasks), *clustering, DASH))
    about = (
        "n, G: runs and tasks of TEST; π: success rate; ρ: correlation of outcomes within a "
        "task; DEFF = 1 + (m̃ − 1)ρ; n_eff = n/DEFF."
    )
    return reader.table(Table("corpora", "Corpora", columns, tuple(rows)), about)


def gates_table(reader: Reader) -> StudyTable:
    """The three gates of every corpus."""
    columns = ("whose", "corpus", "judge can learn", "SFT not saturated", "enough samples")
    rows = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        gates = document["gates"]["gates"]
        rows.append(
            (
                OURS,
                f"{corpus} (A₀ of {document['gates']['base']})",
                *(_gate(gate) for gate in gates),
            )
        )
    rows += [(PAPER, *row) for row in paper.table("gates")]
    about = (
        "Ours compare the lower 95 % bound of A₀, the AUROC of the fine-tuned judge and n_eff of "
        "CAL with thresholds fixed beforehand (.6, .97, n_min at δ/40);"
        " the paper argues its gates after the fact."
    )
    return reader.table(
        Table("gates", "Three gates for when RL helps", columns, tuple(rows)), about
    )


def _gate(gate: Mapping[str, Any]) -> str:
    word = {True: "yes", False: "no", None: NOT_RUN}[gate["passed"]]
    if gate["value"] is None:
        return word
    return f"{word} ({number(gate['value']) if gate['value'] <= 1 else count(gate['value'])})"


def main_table(reader: Reader) -> StudyTable:
    """AUROC and coverage of base, SFT and GRPO: one row a corpus and procedure."""
    names = ("lexical", *_TRAINED)
    columns = (
        "whose", "corpus", "procedure", *(f"AUROC {name}" for name in names), *(f"coverage {name}" for name in names), "gain "
                                                                                                                       "by "
                                                                                                                       "RL", "regime",
    )  # fmt: skip
    rows = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        found = {name: judge_of(document, name) for name in names}
        for name in names:
            if found[name] is None:
                reader.lacks(corpus, name, f"judge {name}")
        areas = [
            NOT_RUN if judge is None else number(judge["auroc_test"]) for judge in found.values()
        ]
        for procedure in _BOTH:
            shares = [_deployed(judge, "reject", 0.1, procedure) for judge in found.values()]
            rows.append(
                (
                    OURS,
                    corpus,
                    procedure,
                    *areas,
                    *map(_share, shares),
                    _gain(shares),
                    f"{document['test']['tasks']} tasks",
                )
            )
    for corpus, aurocs, coverages, gain, regime in paper.table("main_rows"):
        rows.append(
            (
                PAPER,
                corpus,
                "taskboot",
                DASH,
                *numbers(aurocs),
                DASH,
                *numbers(coverages),
                gain or DASH,
                regime,
            )
        )
    about = (
        "Share of TEST that the threshold certified on CAL decides (reject side, α = .1, δ = "
        ".05), and AUROC on TEST. The paper's judges are of 4 billion "
        "parameters; ours are the lexical judge and a compact model of 1.8 million, on other "
        "corpora: the columns are read within a row."
    )
    return reader.table(Table("main", "Main result", columns, tuple(rows)), about)


def _deployed(
    judge: Mapping[str, Any] | None, side: str, alpha: float, procedure: str
) -> float | None:
    cell = None if judge is None else cell_of(judge, side, alpha, procedure)
    return None if cell is None else cell["test_coverage"]


def _share(value: float | None) -> str:
    return NOT_RUN if value is None else number(value)


def _gain(shares: list[float | None]) -> str:
    sft, grpo = shares[-2:]
    return (
        DASH
        if sft is None or grpo is None
        else f"{grpo - sft:+.3f}".replace("0.", ".").replace("-", "−")
    )


def alpha_20_table(reader: Reader) -> StudyTable:
    """Reject coverage at α = .2 of every judge."""
    rows = [
        *_side_rows(reader, "reject", (0.2,)),
        *(
            (PAPER, corpus, judge, "–", number(share), "–", "–", "–")
            for corpus, judge, share in paper.table("alpha_20")
        ),
    ]
    about = (
        "On CAL: certified coverage. TEST: share that CAL's threshold decides there, its "
        "error and the audit's verdict. The paper prints TEST alone."
    )
    return reader.table(Table("alpha_20", "Reject side at α = .2", _columns(), tuple(rows)), about)


def release_table(reader: Reader) -> StudyTable:
    """Release coverage at both budgets."""
    rows = list(_side_rows(reader, "release", (0.1, 0.2)))
    rows += [
        (PAPER, corpus, judge, "–", f"{tenth} at .1, {fifth} at .2", "–", "–", "–")
        for corpus, judge, tenth, fifth in paper.table("release")
    ]
    about = (
        "Runs that are let through without a person. The paper certifies one cell of this "
        "side on all of its corpora."
    )
    return reader.table(Table("release", "Release side", _columns(), tuple(rows)), about)


def _columns() -> tuple[str, ...]:
    return (
        "whose",
        "corpus",
        "judge",
        "on CAL",
        "TEST",
        "error on TEST",
        "audit",
        "procedure and α",
    )


def _side_rows(reader: Reader, side: str, alphas: tuple[float, ...]) -> Iterator[tuple[str, ...]]:
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        for judge in document["judges"]:
            for alpha in alphas:
                for procedure in _BOTH:
                    cell = cell_of(judge, side, alpha, procedure)
                    if cell is not None:
                        shares = numbers(
                            (cell["coverage"], cell["test_coverage"], cell["test_error"])
                        )
                        yield (
                            OURS,
                            corpus,
                            judge["judge"],
                            *shares,
                            cell["verdict"] or DASH,
                            f"{procedure} {alpha:g}",
                        )


def audit_table(reader: Reader) -> StudyTable:
    """Realised error on TEST of every threshold that CAL certified."""
    columns = (
        "whose",
        "corpus",
        "judge",
        "procedure",
        "error at .1",
        "covered at .1",
        "audit at .1",
        "error at .2",
        "covered at .2",
        "audit at .2",
    )
    rows = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        for judge in document["judges"]:
            for procedure in _BOTH:
                cells = [cell_of(judge, "reject", alpha, procedure) for alpha in (0.1, 0.2)]
                if any(cell and cell["certified"] for cell in cells):
                    rows.append(
                        (
                            OURS,
                            corpus,
                            judge["judge"],
                            procedure,
                            *(text for cell in cells for text in _audited(cell)),
                        )
                    )
    rows += [
        (PAPER, corpus, judge, "taskboot", number(error), *[DASH] * 5)
        for corpus, judge, error in paper.table("audits")
    ]
    about = (
        "Thresholds of CAL, measured once on TEST: tasks that no threshold has seen. PASS and "
        "ERROR need evidence beyond chance, WARN is neither. Judges that "
        "certify nothing on CAL have no row. At .2 the paper's largest error is .116."
    )
    return reader.table(
        Table("audits", "CAL→TEST audits, reject side", columns, tuple(rows)), about
    )


def _audited(cell: Mapping[str, Any] | None) -> tuple[str, ...]:
    if cell is None or not cell["certified"]:
        return ("nothing", DASH, DASH)
    return (number(cell["test_error"]), number(cell["test_coverage"]), cell["verdict"])


_REAL_SCORES = "real_scores/{}.json"
_PAPERS = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")
_OURS = ("guarded_taskboot", "korn_graubard", "gaffke", "betting")


def procedures_table(reader: Reader) -> StudyTable:
    """The paper's five procedures and ours on the scores themselves."""
    columns = ("whose", "corpus", "judge", "scores", "G", "ρ", *_PAPERS, *_OURS)
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_REAL_SCORES, "real_scores"):
        for judge in document["judges"]:
            for split, key in (("TEST", "on_test"), ("CAL", "coverage")):
                size = document[split.lower()]
                cells = [cell_of(judge, "reject", 0.1, name) for name in (*_PAPERS, *_OURS)]
                values = numbers([None if cell is None else cell[key] for cell in cells])
                rows.append(
                    (
                        OURS,
                        corpus,
                        judge["judge"],
                        split,
                        count(size["tasks"]),
                        number(size["icc"], 2),
                        *values,
                    )
                )
    for corpus, name, shares in paper.table("real_rows"):
        place = (count(paper.corpora()[corpus].tasks), number(paper.corpora()[corpus].rho, 2))
        rows.append((PAPER, corpus, name, "TEST", *place, *numbers(shares), *[DASH] * len(_OURS)))
    about = (
        "Certified reject coverage at α = .1. The paper's table runs the procedures on TEST's own "
        "scores, a threshold that nobody deploys; the rows of CAL are "
        "those that certificates come from. gaffke and betting promise the error by task."
    )
    return reader.table(
        Table("procedures", "Procedures on real scores", columns, tuple(rows)), about
    )


def naive_audit_table(reader: Reader) -> StudyTable:
    """How often the error of the naive certificate exceeds α when tasks are resampled."""
    columns = (
        "whose",
        "corpus",
        "judge",
        "exceeds at .1",
        "coverage at .1",
        "exceeds at .2",
        "coverage at .2",
    )
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_REAL_SCORES, "real_scores"):
        for judge in document["judges"]:
            found = [
                text
                for audit in judge["naive_audit"]
                for text in (_exceedance(audit), number(audit["coverage"]))
            ]
            rows.append((OURS, corpus, judge["judge"], *found))
    rows += [
        (PAPER, corpus, judge, tenth, DASH, fifth, DASH)
        for corpus, judge, tenth, fifth in paper.table("naive_audit")
    ]
    about = (
        "The naive certificate picks its threshold on TEST's scores; 3,000 resamples of tasks "
        "count how often the error there is above α. Up to δ = .05 agrees "
        "with its promise. The resamples are of the data that picked the threshold: evidence "
        "against it, none for it."
    )
    return reader.table(
        Table(
            "naive_audit", "Task-resampling audit of the naive certificate", columns, tuple(rows)
        ),
        about,
    )


def _exceedance(audit: Mapping[str, Any]) -> str:
    return "nothing certified" if audit["exceedance"] is None else number(audit["exceedance"])


def seeds_table(reader: Reader) -> StudyTable:
    """How often each certificate was issued and valid over split seeds."""
    columns = (
        "corpus",
        "side",
        "α",
        "procedure",
        "certified",
        "mean coverage",
        "sd",
        "valid on TEST",
        "issued, above α",
        "above α beyond chance",
        "mean error",
    )
    rows = []
    for corpus, document in reader.of_corpora("seeds/{}.json", "seeds"):
        for found in document["frequencies"]:
            shares = (number(found["coverage"]), number(found["coverage_sd"]))
            valid = f"{found['valid']} of {found['certified']}" if found["certified"] else DASH
            beyond = f"{found['beyond_chance']}" if found["certified"] else DASH
            place = (corpus, found["side"], f"{found['alpha']:g}", found["procedure"])
            above = f"{found['certified'] - found['valid']} of {found['seeds']}"
            rows.append(
                (
                    *place,
                    f"{found['certified']} of {found['seeds']}",
                    *shares,
                    valid,
                    above,
                    beyond,
                    number(found["error"]),
                )
            )
    about = (
        "The paper has one split seed. Here each seed splits, trains the lexical judge, certifies "
        "on CAL and reads TEST anew. Valid: the error on TEST "
        "is at most α; TEST is finite, so a certificate whose true error is just below α is above "
        "it on about half of the TEST splits. Beyond chance: the "
        "audit's task-level bound is above α. δ bounds what is issued and above α among all "
        "draws, not among those that were issued. Seeds share runs, so the "
        "counts are not independent trials."
    )
    return reader.table(Table("seeds", "Validity over split seeds", columns, tuple(rows)), about)


def simulation_table(reader: Reader) -> StudyTable:
    """Violation and coverage where the truth is known, beside the paper's."""
    columns = (
        "design",
        "G",
        "ρ",
        "procedure",
        "violation",
        "its upper bound",
        "coverage",
        "paper's violation",
        "paper's coverage",
    )
    rows: list[tuple[str, ...]] = []
    document = reader.document("study/simulation.json")
    if document is None:
        reader.lacks("all", "simulation")
    for cell in document["cells"] if document else ():
        for found in cell["procedures"]:
            printed = found["paper"] or {}
            papers = (printed.get("violation_conditional"), printed.get("coverage"))
            place = (
                cell["design"],
                str(cell["tasks"]),
                DASH if cell["rho"] is None else f"{cell['rho']:g}",
                found["procedure"],
            )
            rows.append(
                (
                    *place,
                    number(found["violation"]),
                    number(found["violation_upper"]),
                    number(found["coverage"]),
                    *numbers(papers),
                )
            )
    trials = f"{document['trials']} trials a design (the paper: 300)" if document else "no trial"
    about = (
        f"Violation: share of all trials whose true error is above α = .1, with its upper 95 % "
        f"bound; {trials}. In the designs called fooled a few "
        "tasks are wrong in every run."
    )
    return reader.table(
        Table("simulation", "Simulation where the truth is known", columns, tuple(rows)), about
    )
