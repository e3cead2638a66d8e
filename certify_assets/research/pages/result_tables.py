"""Tables of the study site on corpora, judges, procedures, seeds and simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from certify_assets.certificates.gates import GateResult
from certify_assets.certificates.procedures import DEFAULT
from certify_assets.corpora.config import corpus_file, registered_corpora
from certify_assets.corpora.profile import CorpusProfile
from certify_assets.files import read_json
from certify_assets.reports.comparison_page import Table
from certify_assets.reports.wording import DASH, count, rate
from certify_assets.research import paper
from certify_assets.research.real_scores import JudgeScores, RealScores, ScoreCell, real_scores_key
from certify_assets.research.seed_study import SeedFrequency, SeedStudy, seeds_key
from certify_assets.research.simulation import Simulation
from certify_assets.research.simulation_study import SIMULATION_KEY
from certify_assets.research.study import COMMANDS, Outcome, load_outcomes
from certify_assets.storage.store import Store

OURS, PAPER = "ours", "paper"
NOT_RUN = "not run"
HOSTED = "hosted"
_Document = TypeVar("_Document")


@dataclass(frozen=True)
class StudyTable:
    """A table with what a reader needs next to it."""

    table: Table
    about: str
    sources: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    figure: str = ""

    @property
    def names(self) -> int:
        """Columns before the first number; numbers do not break."""
        first = site_words().first_numbers
        columns = self.table.columns
        return next((i for i, name in enumerate(columns) if name in first), len(columns))


def as_stored(document: Any) -> Any:
    """Return a document that is described by a TypedDict."""
    return document


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

    def document(self, key: str, parse: Callable[[Any], _Document]) -> _Document | None:
        """Return a stored document and note it as a source; None where there is none."""
        if not self.store.exists(key):
            return None
        self._sources[key] = self.store.sha256(key)
        return parse(self.store.read_json(key))

    def real_scores(self) -> list[tuple[str, RealScores]]:
        """Return every procedure on real scores, of each corpus."""
        return self.of_corpora(real_scores_key, "real_scores", RealScores.from_dict)

    def of_corpora(
        self, key: Callable[[str], str], stage: str, parse: Callable[[Any], _Document]
    ) -> list[tuple[str, _Document]]:
        """Return a stage's document of each corpus; corpora without one are missing."""
        found = []
        for corpus in self.corpora:
            document = self.document(key(corpus), parse)
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
        words = site_words().tables[name]
        table = Table(name, title or words.title, tuple(columns or words.columns), tuple(rows))
        sources = tuple(sorted(self._sources.items()))
        return StudyTable(table, about or words.about, sources, tuple(self._missing), figure)


@dataclass(frozen=True)
class TableWords:
    """Title and columns of a table, and what is said of it."""

    title: str
    columns: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True)
class StudyPage:
    """A page and its tables, in order."""

    href: str
    short: str
    title: str
    about: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class SiteWords:
    """The words of the site."""

    pages: tuple[StudyPage, ...]
    tables: dict[str, TableWords]
    # columns from which on a row holds numbers
    first_numbers: tuple[str, ...]
    limits: tuple[tuple[str, str], ...]


@cache
def site_words() -> SiteWords:
    """Return pages, titles, columns and the text above each table."""
    document = read_json(Path(paper.__file__).parent / "data" / "study_site.json")
    return SiteWords(
        pages=tuple(StudyPage(**page) for page in document["pages"]),
        tables={name: TableWords(**words) for name, words in document["tables"].items()},
        first_numbers=tuple(document["first_numbers"]),
        limits=tuple((strong, rest) for strong, rest in document["limits"]),
    )


def number(value: float | None, digits: int = 3) -> str:
    """Write a share as the paper does: .293; a dash where there is none."""
    text = rate(value, digits)
    return text[1:] if text.startswith("0.") else text


def numbers(values: Sequence[float | None]) -> tuple[str, ...]:
    """Write several shares."""
    return tuple(number(value) for value in values)


_BOTH = (DEFAULT, "taskboot")
_TRAINED = ("base", "sft", "grpo")


def corpora_table(reader: Reader) -> StudyTable:
    """Size and clustering of the TEST split of every corpus."""
    rows = []
    for corpus, profile in reader.of_corpora(
        lambda corpus: corpus_file(corpus, "profile.json"), "splits", CorpusProfile.from_dict
    ):
        test, tasks = profile.splits["test"], count(profile.splits["cal"].tasks)
        size = (count(test.trajectories), count(test.tasks))
        rates = (number(test.success_rate, 2), number(test.icc, 2))
        rows.append((OURS, corpus, *size, *rates, f"{test.deff:.1f}", count(test.n_eff), tasks))
    for corpus, found in paper.corpora().items():
        size = (count(found.rows), count(found.tasks))
        rates = (number(found.success_rate, 2), number(found.rho, 2))
        rows.append((PAPER, corpus, *size, *rates, f"{found.deff:.1f}", str(found.n_eff), DASH))
    return reader.table("corpora", rows)


def gates_table(reader: Reader) -> StudyTable:
    """The three gates of every corpus."""
    rows = [
        (OURS, f"{corpus} (A₀ of {scores.gates.base})", *map(_gate, scores.gates.gates))
        for corpus, scores in reader.real_scores()
    ]
    return reader.table("gates", [*rows, *((PAPER, *row) for row in paper.table("gates"))])


def _gate(gate: GateResult) -> str:
    word = {True: "yes", False: "no", None: NOT_RUN}[gate.passed]
    if gate.value is None:
        return word
    return f"{word} ({number(gate.value) if gate.value <= 1 else count(gate.value)})"


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
    rows: list[tuple[str, ...]] = []
    for corpus, scores in reader.real_scores():
        found = [scores.judge(name) for name in names]
        for name, judge in zip(names, found, strict=True):
            if judge is None:
                reader.lacks(corpus, name, f"judge {name}")
        areas = [NOT_RUN if judge is None else number(judge.auroc_test) for judge in found]
        regime = f"{scores.test.tasks} tasks"
        for procedure in _BOTH:
            shares = [_deployed(judge, procedure) for judge in found]
            shown = [NOT_RUN if share is None else number(share) for share in shares]
            rows.append((OURS, corpus, procedure, *areas, *shown, _gain(shares), regime))
    for corpus, aurocs, coverages, gain, regime in paper.table("main_rows"):
        shown = [DASH, *numbers(aurocs), DASH, *numbers(coverages)]
        rows.append((PAPER, corpus, "taskboot", *shown, gain or DASH, regime))
    return reader.table("main", rows, columns=columns)


def _deployed(judge: JudgeScores | None, procedure: str) -> float | None:
    cell = judge and judge.cell("reject", 0.1, procedure)
    return cell.test_coverage if cell else None


def _gain(shares: list[float | None]) -> str:
    sft, grpo = shares[-2:]
    if sft is None or grpo is None:
        return DASH
    return f"{grpo - sft:+.3f}".replace("0.", ".").replace("-", "−")


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
    rows = [
        *_side_rows(reader, "release", (0.1, 0.2)),
        *(
            (PAPER, corpus, judge, "–", f"{tenth} at .1, {fifth} at .2", "–", "–", "–")
            for corpus, judge, tenth, fifth in paper.table("release")
        ),
    ]
    return reader.table("release", rows)


def _side_rows(reader: Reader, side: str, alphas: tuple[float, ...]) -> Iterator[tuple[str, ...]]:
    for corpus, scores in reader.real_scores():
        for judge, alpha, procedure in product(scores.judges, alphas, _BOTH):
            if cell := judge.cell(side, alpha, procedure):
                shares = numbers((cell.coverage, cell.test_coverage, cell.test_error))
                about = (cell.verdict or DASH, f"{procedure} {alpha:g}")
                yield (OURS, corpus, judge.judge, *shares, *about)


def audits_table(reader: Reader) -> StudyTable:
    """Realised error on TEST of every threshold that CAL certified."""
    rows: list[tuple[str, ...]] = []
    for corpus, scores in reader.real_scores():
        for judge, procedure in product(scores.judges, _BOTH):
            cells = [judge.cell("reject", alpha, procedure) for alpha in (0.1, 0.2)]
            if any(cell and cell.certified for cell in cells):
                texts = [text for cell in cells for text in _audited(cell)]
                rows.append((OURS, corpus, judge.judge, procedure, *texts))
    rows += [
        (PAPER, corpus, judge, "taskboot", number(error), *[DASH] * 5)
        for corpus, judge, error in paper.table("audits")
    ]
    return reader.table("audits", rows)


def _audited(cell: ScoreCell | None) -> tuple[str, ...]:
    if cell is None or not cell.certified:
        return ("nothing", DASH, DASH)
    return (number(cell.test_error), number(cell.test_coverage), cell.verdict or DASH)


_PAPERS = ("naive", "deff", "one_per_task", "task_hoeffding", "taskboot")
_OURS = ("pseudo_task", "guarded_taskboot", "betting")


def procedures_table(reader: Reader) -> StudyTable:
    """The paper's five procedures and ours on the scores themselves."""
    columns = ("whose", "corpus", "judge", "scores", "G", "ρ", *_PAPERS, *_OURS)
    rows: list[tuple[str, ...]] = []
    for corpus, scores in reader.real_scores():
        for judge in scores.judges:
            cells = [judge.cell("reject", 0.1, name) for name in (*_PAPERS, *_OURS)]
            for split, size in (("TEST", scores.test), ("CAL", scores.cal)):
                shares = [
                    None if cell is None else cell.on_test if split == "TEST" else cell.coverage
                    for cell in cells
                ]
                place = (judge.judge, split, count(size.tasks), number(size.icc, 2))
                rows.append((OURS, corpus, *place, *numbers(shares)))
    for corpus, name, printed in paper.table("real_rows"):
        known = paper.corpora()[corpus]
        place = (name, "TEST", count(known.tasks), number(known.rho, 2))
        rows.append((PAPER, corpus, *place, *numbers(printed), *[DASH] * len(_OURS)))
    return reader.table("procedures", rows, columns=columns)


def naive_audit_table(reader: Reader) -> StudyTable:
    """How often the error of the naive certificate exceeds α when tasks are resampled."""
    rows: list[tuple[str, ...]] = []
    for corpus, scores in reader.real_scores():
        for judge in scores.judges:
            found = []
            for audit in judge.naive_audit:
                exceeds = audit.exceedance
                found.append("nothing certified" if exceeds is None else number(exceeds))
                found.append(number(audit.coverage))
            rows.append((OURS, corpus, judge.judge, *found))
    rows += [
        (PAPER, corpus, judge, tenth, DASH, fifth, DASH)
        for corpus, judge, tenth, fifth in paper.table("naive_audit")
    ]
    return reader.table("naive_audit", rows)


def seeds_table(reader: Reader) -> StudyTable:
    """How often each certificate was issued and valid over split seeds."""
    rows = []
    for corpus, study in reader.of_corpora(seeds_key, "seeds", SeedStudy.from_dict):
        for found in study.frequencies:
            issued = found.certified
            rows.append(
                (
                    corpus,
                    found.side,
                    f"{found.alpha:g}",
                    found.procedure,
                    found.rows,
                    f"{issued} of {found.seeds}",
                    *numbers((found.coverage, found.coverage_sd)),
                    f"{found.valid} of {issued}" if issued else DASH,
                    f"{issued - found.valid} of {found.seeds}",
                    f"{found.beyond_chance}" if issued else DASH,
                    number(found.error),
                )
            )
    return reader.table("seeds", rows)


def seed_totals_table(reader: Reader) -> StudyTable:
    """Every procedure over all corpora, sides and budgets, next to the guard."""
    studies = reader.of_corpora(seeds_key, "seeds", SeedStudy.from_dict)
    groups: dict[tuple[str, str], list[SeedFrequency]] = {}
    for _, study in studies:
        for found in study.frequencies:
            groups.setdefault((found.procedure, found.rows), []).append(found)
    rows = []
    for (procedure, certified_on), cells in groups.items():
        issued, valid = (
            sum(getattr(one, name) for one in cells) for name in ("certified", "valid")
        )
        could = sum(one.seeds for one in cells)
        share = fmean(one.coverage for one in cells)
        guarded = (groups.get(("guarded_taskboot", on), []) for on in (certified_on, "cal"))
        rows.append(
            (
                procedure,
                certified_on,
                f"{issued} of {could}",
                f"{issued - valid}",
                f"{sum(one.beyond_chance for one in cells)}",
                number(max((one.certified - one.valid) / one.seeds for one in cells)),
                number(max(one.beyond_chance / one.seeds for one in cells)),
                number(share, 4),
                *(_times(share, [one.coverage for one in others]) for others in guarded),
            )
        )
    return reader.table("seed_totals", rows)


def _times(share: float, others: Sequence[float]) -> str:
    mean = fmean(others) if others else 0.0
    return f"{share / mean:.2f}" if mean else DASH


def simulation_table(reader: Reader) -> StudyTable:
    """Violation and coverage where the truth is known, next to the paper's."""
    rows: list[tuple[str, ...]] = []
    study = reader.document(SIMULATION_KEY, Simulation.from_dict)
    if study is None:
        reader.lacks("all", "simulation")
    for cell in study.cells if study else ():
        place = (cell.design, str(cell.tasks), DASH if cell.rho is None else f"{cell.rho:g}")
        for found in cell.procedures:
            printed = found.paper or {}
            shares = (
                found.violation,
                found.violation_upper,
                found.coverage,
                printed.get("violation_conditional"),
                printed.get("coverage"),
            )
            rows.append((*place, found.procedure, *numbers(shares)))
    trials = f"{study.trials} trials a design (the paper: 300)" if study else "no trial"
    about = (
        f"Violation: share of all trials whose true error is above α = .1, with its upper 95 % "
        f"bound; {trials}. In the designs called fooled a few tasks are wrong in every run."
    )
    return reader.table("simulation", rows, about=about)
