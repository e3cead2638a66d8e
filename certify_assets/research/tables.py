"""Tables of the study: the paper's printed rows, and ours from the stored documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

from certify_assets.certificates.gates import GateResult
from certify_assets.certificates.procedures import DEFAULT
from certify_assets.corpora.config import corpus_file, registered_corpora
from certify_assets.corpora.profile import CorpusProfile
from certify_assets.reports.page import PageTable, Remark, Section, home_of, render, store_page
from certify_assets.reports.wording import DASH, count, counted, rate
from certify_assets.research import paper
from certify_assets.research.real_scores import JudgeScores, RealScores, ScoreCell, real_scores_key
from certify_assets.research.simulation import PAPER_PROCEDURES, Simulation
from certify_assets.research.simulation_study import SIMULATION_KEY
from certify_assets.storage.store import Store

STUDY_PAGE = "study/study.html"
OURS, PAPER = "ours", "paper"
NOT_RUN = "not run"
_Document = TypeVar("_Document")
_Row = tuple[str, ...]
_BOTH = (DEFAULT, "taskboot")
_JUDGES = ("lexical", "base", "sft", "grpo")
_OWN_PROCEDURES = ("pseudo_task", "guarded_taskboot", "betting")


@dataclass(frozen=True)
class Outcome:
    """The result of one asset; ``corpus`` is empty for an asset over all corpora."""

    corpus: str
    asset: str
    # done, kept, skipped or failed; the last two have a reason
    status: str
    reason: str = ""


@dataclass(frozen=True)
class StudyTable:
    """A table with its text, and a list of what was not run."""

    table: PageTable
    about: str
    missing: tuple[str, ...]


@dataclass
class _Reader:
    """Reads the documents of one table and records what is missing."""

    store: Store
    corpora: tuple[str, ...]
    missing: dict[str, None] = field(default_factory=dict)

    def document(self, key: str, parse: Callable[[Any], _Document]) -> _Document | None:
        """Return a stored document, or None."""
        return parse(self.store.read_json(key)) if self.store.exists(key) else None

    def of_corpora(
        self, key: Callable[[str], str], what: str, parse: Callable[[Any], _Document]
    ) -> Iterator[tuple[str, _Document]]:
        """Yield the document of each corpus that has one; the others are missing."""
        for corpus in self.corpora:
            document = self.document(key(corpus), parse)
            if document is None:
                self.lacks(f"{corpus}, {what}", f"certify research study {corpus}")
            else:
                yield corpus, document

    def real_scores(self) -> Iterator[tuple[str, RealScores]]:
        """Yield every procedure on real scores, of each corpus."""
        return self.of_corpora(real_scores_key, "procedures on real scores", RealScores.from_dict)

    def lacks(self, what: str, command: str) -> None:
        """Say what was not run, and the command that runs it."""
        self.missing[f"{what}: {NOT_RUN}; {command}"] = None


_Rows = Callable[[_Reader], Iterator[_Row]]
#: name, title, columns and meaning of each table, and what yields its rows
_TABLES: list[tuple[str, str, tuple[str, ...], str, _Rows]] = []


def _table(name: str, title: str, columns: tuple[str, ...], about: str) -> Callable[[_Rows], _Rows]:
    def add(rows: _Rows) -> _Rows:
        _TABLES.append((name, title, columns, about, rows))
        return rows

    return add


def study_tables(store: Store) -> list[StudyTable]:
    """Build every table from the stored documents."""
    corpora, found = tuple(registered_corpora(store)), []
    for name, title, columns, about, build in _TABLES:
        reader = _Reader(store, corpora)
        rows = list(build(reader))
        ours = [place for place, row in enumerate(rows) if row[0] == OURS]
        table = PageTable(title, columns, rows, name=name, marked=ours)
        found.append(StudyTable(table, about, tuple(reader.missing)))
    return found


def table_key(name: str) -> str:
    """Return the key of a table."""
    return f"study/tables/{name}.csv"


def write_study(store: Store) -> str:
    """Write the page, and every table as CSV; return the key of the page."""
    tables = study_tables(store)
    for item in tables:
        store.write_bytes(table_key(item.table.name), item.table.csv().encode("utf-8"))
    page = render(
        "page.html",
        kind="Study",
        title="The paper's tables, with ours next to them",
        about="Rows called ours are of the corpora of this data root; rows called paper are the "
        "paper's own corpora, as it prints them.",
        home=home_of(STUDY_PAGE),
        sections=[_section(item) for item in tables],
        unfolded=True,
    )
    return store_page(store, STUDY_PAGE, page)


def _section(item: StudyTable) -> Section:
    from markupsafe import Markup

    table = item.table
    link = Markup('This table as <a href="tables/{}.csv">CSV</a>.').format(table.name)
    return Section(
        table.title,
        table.name,
        counted(len(table.rows), "row") if table.rows else "nothing",
        texts=[item.about],
        tables=[table] if table.rows else [],
        findings=[Remark(sentence) for sentence in item.missing],
        notes=[link],
    )


def number(value: float | None, digits: int = 3) -> str:
    """Write a share as the paper does: .293; a dash for a missing one."""
    text = rate(value, digits)
    return text[1:] if text.startswith("0.") else text


def numbers(values: Sequence[float | None]) -> tuple[str, ...]:
    """Write several shares."""
    return tuple(number(value) for value in values)


@_table(
    "corpora",
    "Corpora",
    ("whose", "corpus", "n", "G", "π", "ρ", "DEFF", "n_eff", "G of CAL"),
    "n, G: runs and tasks of TEST; π: success rate; ρ: correlation of outcomes within a task; "
    "DEFF = 1 + (m̃ − 1)ρ; n_eff = n/DEFF.",
)
def _corpora(reader: _Reader) -> Iterator[_Row]:
    for corpus, profile in reader.of_corpora(
        lambda corpus: corpus_file(corpus, "profile.json"), "profile", CorpusProfile.from_dict
    ):
        test, tasks = profile.splits["test"], count(profile.splits["cal"].tasks)
        size = (count(test.trajectories), count(test.tasks))
        rates = (number(test.success_rate, 2), number(test.icc, 2))
        yield (OURS, corpus, *size, *rates, f"{test.deff:.1f}", count(test.n_eff), tasks)
    for corpus, found in paper.corpora().items():
        size = (count(found.rows), count(found.tasks))
        rates = (number(found.success_rate, 2), number(found.rho, 2))
        yield (PAPER, corpus, *size, *rates, f"{found.deff:.1f}", str(found.n_eff), DASH)


@_table(
    "gates",
    "Three gates for when RL helps",
    ("whose", "corpus", "judge can learn", "SFT not saturated", "enough samples"),
    "Ours compare three numbers of CAL with thresholds fixed beforehand: the lower 95 % bound of "
    "A₀ (.6), the AUROC of the fine-tuned judge (.97) and n_eff (n_min at δ/40). The paper argues "
    "its gates after the fact.",
)
def _gates(reader: _Reader) -> Iterator[_Row]:
    for corpus, scores in reader.real_scores():
        yield (OURS, f"{corpus} (A₀ of {scores.gates.base})", *map(_gate, scores.gates.gates))
    yield from ((PAPER, *row) for row in paper.table("gates"))


def _gate(gate: GateResult) -> str:
    word = {True: "yes", False: "no", None: NOT_RUN}[gate.passed]
    if gate.value is None:
        return word
    return f"{word} ({number(gate.value) if gate.value <= 1 else count(gate.value)})"


@_table(
    "main",
    "Main result",
    (
        *("whose", "corpus", "procedure"),
        *(f"AUROC {name}" for name in _JUDGES),
        *(f"coverage {name}" for name in _JUDGES),
        *("gain by RL", "regime"),
    ),
    "Share of TEST that the threshold certified on CAL decides (reject side, α = .1, δ = .05), and "
    "AUROC on TEST. The paper's judges have 4 billion parameters. Ours are the lexical judge and a "
    "compact model of 1.8 million, on other corpora: compare within a row.",
)
def main_table(reader: _Reader) -> Iterator[_Row]:
    """Yield the rows of the paper's Table 2, and ours."""
    for corpus, scores in reader.real_scores():
        found = [scores.judge(name) for name in _JUDGES]
        for name, judge in zip(_JUDGES, found, strict=True):
            if judge is None:
                command = f"certify research study {corpus} --profile full"
                reader.lacks(f"{corpus}, judge {name}", command)
        areas = [NOT_RUN if judge is None else number(judge.auroc_test) for judge in found]
        regime = f"{scores.test.tasks} tasks"
        for procedure in _BOTH:
            shares = [_deployed(judge, procedure) for judge in found]
            shown = [NOT_RUN if share is None else number(share) for share in shares]
            yield (OURS, corpus, procedure, *areas, *shown, _gain(shares), regime)
    for corpus, aurocs, coverages, gain, regime in paper.table("main_rows"):
        shown = [DASH, *numbers(aurocs), DASH, *numbers(coverages)]
        yield (PAPER, corpus, "taskboot", *shown, gain or DASH, regime)


def _deployed(judge: JudgeScores | None, procedure: str) -> float | None:
    cell = judge and judge.cell("reject", 0.1, procedure)
    return cell.test_coverage if cell else None


def _gain(shares: list[float | None]) -> str:
    sft, grpo = shares[-2:]
    if sft is None or grpo is None:
        return DASH
    return f"{grpo - sft:+.3f}".replace("0.", ".").replace("-", "−")


_SIDE_COLUMNS = (
    *("whose", "corpus", "judge", "on CAL", "TEST", "error on TEST", "audit"),
    "procedure and α",
)


@_table(
    "alpha_20",
    "Reject side at α = .2",
    _SIDE_COLUMNS,
    "On CAL: certified coverage. TEST: the share that CAL's threshold decides there, its error and "
    "the audit's verdict. The paper prints TEST alone.",
)
def _alpha_20(reader: _Reader) -> Iterator[_Row]:
    yield from _side_rows(reader, "reject", (0.2,))
    for corpus, judge, share in paper.table("alpha_20"):
        yield (PAPER, corpus, judge, DASH, number(share), DASH, DASH, DASH)


@_table(
    "release",
    "Release side",
    _SIDE_COLUMNS,
    "Runs that pass without review. The paper certifies one cell of this side on all of its "
    "corpora.",
)
def _release(reader: _Reader) -> Iterator[_Row]:
    yield from _side_rows(reader, "release", (0.1, 0.2))
    for corpus, judge, tenth, fifth in paper.table("release"):
        yield (PAPER, corpus, judge, DASH, f"{tenth} at .1, {fifth} at .2", DASH, DASH, DASH)


def _side_rows(reader: _Reader, side: str, alphas: tuple[float, ...]) -> Iterator[_Row]:
    for corpus, scores in reader.real_scores():
        for judge, alpha, procedure in product(scores.judges, alphas, _BOTH):
            if cell := judge.cell(side, alpha, procedure):
                shares = numbers((cell.coverage, cell.test_coverage, cell.test_error))
                about = (cell.verdict or DASH, f"{procedure} {alpha:g}")
                yield (OURS, corpus, judge.judge, *shares, *about)


@_table(
    "procedures",
    "Procedures on real scores",
    ("whose", "corpus", "judge", "scores", "G", "ρ", *PAPER_PROCEDURES, *_OWN_PROCEDURES),
    "Certified reject coverage at α = .1. The paper runs the procedures on TEST's own scores, a "
    "threshold that is never deployed; certificates come from the rows of CAL. betting promises "
    "the error by task.",
)
def procedures_table(reader: _Reader) -> Iterator[_Row]:
    """Yield the rows of the paper's Table 6, cluster-valid baselines on real scores, and ours."""
    names = (*PAPER_PROCEDURES, *_OWN_PROCEDURES)
    for corpus, scores in reader.real_scores():
        for judge in scores.judges:
            cells = [judge.cell("reject", 0.1, name) for name in names]
            on_test = numbers([cell.on_test if cell else None for cell in cells])
            on_cal = numbers([cell.coverage if cell else None for cell in cells])
            for split, size, shares in (
                ("TEST", scores.test, on_test),
                ("CAL", scores.cal, on_cal),
            ):
                place = (judge.judge, split, count(size.tasks), number(size.icc, 2))
                yield (OURS, corpus, *place, *shares)
    for corpus, name, printed in paper.table("real_rows"):
        known = paper.corpora()[corpus]
        place = (name, "TEST", count(known.tasks), number(known.rho, 2))
        yield (PAPER, corpus, *place, *numbers(printed), *[DASH] * len(_OWN_PROCEDURES))


@_table(
    "naive_audit",
    "Task-resampling audit of the naive certificate",
    (
        *("whose", "corpus", "judge"),
        *("exceeds at .1", "coverage at .1", "exceeds at .2", "coverage at .2"),
    ),
    "The naive certificate picks its threshold on TEST's scores; 3,000 resamples of tasks count "
    "how often the error there is above α. Up to δ = .05 agrees with its promise. The resamples "
    "are of the data that picked the threshold: evidence against it, none for it.",
)
def _naive_audit(reader: _Reader) -> Iterator[_Row]:
    for corpus, scores in reader.real_scores():
        for judge in scores.judges:
            found = []
            for audit in judge.naive_audit:
                exceeds = audit.exceedance
                found.append("nothing certified" if exceeds is None else number(exceeds))
                found.append(number(audit.coverage))
            yield (OURS, corpus, judge.judge, *found)
    for corpus, judge, tenth, fifth in paper.table("naive_audit"):
        yield (PAPER, corpus, judge, tenth, DASH, fifth, DASH)


@_table(
    "audits",
    "CAL→TEST audits, reject side",
    (
        *("whose", "corpus", "judge", "procedure"),
        *("error at .1", "covered at .1", "audit at .1"),
        *("error at .2", "covered at .2", "audit at .2"),
    ),
    "Thresholds of CAL, measured once on TEST, whose tasks no threshold has seen. PASS and ERROR "
    "need evidence beyond chance, WARN is neither. Judges that certify nothing on CAL have no row. "
    "At .2 the paper's largest error is .116.",
)
def _audits(reader: _Reader) -> Iterator[_Row]:
    for corpus, scores in reader.real_scores():
        for judge, procedure in product(scores.judges, _BOTH):
            cells = [judge.cell("reject", alpha, procedure) for alpha in (0.1, 0.2)]
            if any(cell and cell.certified for cell in cells):
                texts = [text for cell in cells for text in _audited(cell)]
                yield (OURS, corpus, judge.judge, procedure, *texts)
    for corpus, judge, error in paper.table("audits"):
        yield (PAPER, corpus, judge, "taskboot", number(error), *[DASH] * 5)


def _audited(cell: ScoreCell | None) -> _Row:
    if cell is None or not cell.certified:
        return ("nothing", DASH, DASH)
    return (number(cell.test_error), number(cell.test_coverage), cell.verdict or DASH)


@_table(
    "simulation",
    "Simulation where the truth is known",
    (
        *("design", "G", "ρ", "procedure", "violation", "its upper bound", "coverage"),
        *("paper's violation", "paper's coverage"),
    ),
    "Violation: share of all trials whose true error is above α = .1, with its upper 95 % bound. "
    "The paper has 300 trials a design. In the designs called fooled a few tasks are wrong in "
    "every run.",
)
def _simulation(reader: _Reader) -> Iterator[_Row]:
    study = reader.document(SIMULATION_KEY, Simulation.from_dict)
    if study is None:
        reader.lacks("simulation", "certify research study")
        return
    for cell in study.cells:
        place = (cell.design, str(cell.tasks), DASH if cell.rho is None else f"{cell.rho:g}")
        for found in cell.procedures:
            printed = found.paper or {}
            shares = numbers((found.violation, found.violation_upper, found.coverage))
            theirs = numbers((printed.get("violation_conditional"), printed.get("coverage")))
            yield (*place, found.procedure, *shares, *theirs)
