"""Tables of the study site on corpora, judges, procedures, seeds and simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from certify_assets.corpora.config import registered_corpora
from certify_assets.files import read_json
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
    """A table with what a reader needs next to it."""

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
        """Return a stored document and note it as a source; None where there is none."""
        if not self.store.exists(key):
            return None
        self._sources[key] = self.store.sha256(key)
        found: dict[str, Any] = self.store.read_json(key)
        return found

    def of_corpora(self, pattern: str, stage: str) -> list[tuple[str, dict[str, Any]]]:
        """Return a stage's document of each corpus; corpora without one are missing."""
        found = []
        for corpus in self.corpora:
            document = self.document(pattern.format(corpus))
            if document is None:
                self.lacks(corpus, stage)
            else:
                found.append((corpus, document))
        return found

    def lacks(self, corpus: str, stage: str, what: str = "") -> None:
        """Say what was not run on a corpus, why if known, and the command that runs it."""
        outcome = self.outcomes.get((corpus, stage))
        why = f" ({outcome.reason.rstrip('.')})" if outcome and outcome.reason else ""
        command = COMMANDS[stage].replace("CORPUS", corpus)
        sentence = f"{corpus}, {what or stage}: {NOT_RUN}{why}; {command}"
        if sentence not in self._missing:
            self._missing.append(sentence)

    def note(self, sentence: str) -> None:
        """Add a sentence to what is missing."""
        self._missing.append(sentence)

    def table(
        self,
        name: str,
        rows: Sequence[tuple[str, ...]],
        *,
        title: str = "",
        columns: Sequence[str] = (),
        about: str = "",
        figure: str = "",
    ) -> StudyTable:
        """Return a table with everything that was read for it; its words are in the data file."""
        words = site_data()["tables"][name]
        shown = tuple(columns or words["columns"])
        table = Table(name, title or words["title"], shown, tuple(rows))
        sources = tuple(sorted(self._sources.items()))
        return StudyTable(table, about or words["about"], sources, tuple(self._missing), figure)


@cache
def site_data() -> dict[str, Any]:
    """Return the words of the site: pages, titles, columns and what is said of each table."""
    document: dict[str, Any] = read_json(Path(paper.__file__).parent / "data" / "study_site.json")
    return document


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
    return reader.table("corpora", rows)


def gates_table(reader: Reader) -> StudyTable:
    """The three gates of every corpus."""
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
    return reader.table("gates", rows)


def _gate(gate: Mapping[str, Any]) -> str:
    word = {True: "yes", False: "no", None: NOT_RUN}[gate["passed"]]
    if gate["value"] is None:
        return word
    return f"{word} ({number(gate['value']) if gate['value'] <= 1 else count(gate['value'])})"


def main_table(reader: Reader) -> StudyTable:
    """AUROC and coverage of base, SFT and GRPO: one row a corpus and procedure."""
    names = ("lexical", *_TRAINED)
    columns = (
        "whose",
        "corpus",
        "procedure",
        *(f"AUROC {name}" for name in names),
        *(f"coverage {name}" for name in names),
        "gain by RL",
        "regime",
    )
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
    return reader.table("main", rows, columns=columns)


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
    return reader.table("alpha_20", rows)


def release_table(reader: Reader) -> StudyTable:
    """Release coverage at both budgets."""
    rows = list(_side_rows(reader, "release", (0.1, 0.2)))
    rows += [
        (PAPER, corpus, judge, "–", f"{tenth} at .1, {fifth} at .2", "–", "–", "–")
        for corpus, judge, tenth, fifth in paper.table("release")
    ]
    return reader.table("release", rows)


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


def audits_table(reader: Reader) -> StudyTable:
    """Realised error on TEST of every threshold that CAL certified."""
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
    return reader.table("audits", rows)


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
    return reader.table("procedures", rows, columns=columns)


def naive_audit_table(reader: Reader) -> StudyTable:
    """How often the error of the naive certificate exceeds α when tasks are resampled."""
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
    return reader.table("naive_audit", rows)


def _exceedance(audit: Mapping[str, Any]) -> str:
    return "nothing certified" if audit["exceedance"] is None else number(audit["exceedance"])


def seeds_table(reader: Reader) -> StudyTable:
    """How often each certificate was issued and valid over split seeds."""
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
    return reader.table("seeds", rows)


def simulation_table(reader: Reader) -> StudyTable:
    """Violation and coverage where the truth is known, next to the paper's."""
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
    return reader.table("simulation", rows, about=about)
