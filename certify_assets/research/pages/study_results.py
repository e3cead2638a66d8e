"""Tables of the study that are about judges: corpora, gates, main result, α = .2, release side, CAL→TEST audits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certify_assets.reports.comparison_tables import Table
from certify_assets.reports.wording import DASH, count
from certify_assets.research import paper_numbers, paper_tables
from certify_assets.research.pages.study_reader import (
    NOT_RUN,
    OURS,
    PAPER,
    Reader,
    StudyTable,
    number,
    numbers,
)

__all__ = [
    "alpha_20_table",
    "audit_table",
    "cell_of",
    "corpora_table",
    "gates_table",
    "judge_of",
    "main_table",
    "release_table",
]

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
    for corpus, found in paper_numbers.CORPORA.items():
        rho, effective = paper_tables.CLUSTERING[corpus]
        clustering = (
            number(found.success_rate, 2),
            number(rho, 2),
            f"{found.deff:.1f}",
            str(effective),
        )
        rows.append((PAPER, corpus, count(found.rows), count(found.tasks), *clustering, DASH))
    about = "n, G: runs and tasks of TEST; π: success rate; ρ: correlation of outcomes within a task; DEFF = 1 + (m̃ − 1)ρ; n_eff = n/DEFF."
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
    rows += [(PAPER, *row) for row in paper_tables.GATES]
    about = (
        "Ours compare the lower 95 % bound of A₀, the AUROC of the fine-tuned judge and n_eff of CAL with thresholds fixed beforehand (.6, .97, n_min at δ/40);"
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
        "whose", "corpus", "procedure", *(f"AUROC {name}" for name in names), *(f"coverage {name}" for name in names), "gain by RL", "regime",
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
    for row in paper_tables.MAIN_ROWS:
        rows.append(
            (
                PAPER,
                row.corpus,
                "taskboot",
                DASH,
                *numbers(row.aurocs),
                DASH,
                *numbers(row.coverages),
                row.gain or DASH,
                row.regime,
            )
        )
    about = (
        "Share of TEST that the threshold certified on CAL decides (reject side, α = .1, δ = .05), and AUROC on TEST. The paper's judges are of 4 billion "
        "parameters; ours are the lexical judge and a compact model of 1.8 million, on other corpora: the columns are read within a row."
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
            for corpus, judge, share in paper_tables.ALPHA_20
        ),
    ]
    about = "On CAL: certified coverage. TEST: share that CAL's threshold decides there, its error and the audit's verdict. The paper prints TEST alone."
    return reader.table(Table("alpha_20", "Reject side at α = .2", _columns(), tuple(rows)), about)


def release_table(reader: Reader) -> StudyTable:
    """Release coverage at both budgets."""
    rows = list(_side_rows(reader, "release", (0.1, 0.2)))
    rows += [
        (PAPER, corpus, judge, "–", f"{tenth} at .1, {fifth} at .2", "–", "–", "–")
        for corpus, judge, tenth, fifth in paper_tables.RELEASE
    ]
    about = "Runs that are let through without a person. The paper certifies one cell of this side on all of its corpora."
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
        for corpus, judge, error in paper_tables.AUDITS
    ]
    about = (
        "Thresholds of CAL, measured once on TEST: tasks that no threshold has seen. PASS and ERROR need evidence beyond chance, WARN is neither. Judges that "
        "certify nothing on CAL have no row. At .2 the paper's largest error is .116."
    )
    return reader.table(
        Table("audits", "CAL→TEST audits, reject side", columns, tuple(rows)), about
    )


def _audited(cell: Mapping[str, Any] | None) -> tuple[str, ...]:
    if cell is None or not cell["certified"]:
        return ("nothing", DASH, DASH)
    return (number(cell["test_error"]), number(cell["test_coverage"]), cell["verdict"])
