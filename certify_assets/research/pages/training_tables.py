"""Tables of the study site on training: arms, law, transfer, cost and harvests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from certify_assets.certificates.procedures import DEFAULT
from certify_assets.evaluation.agent_folds import agent_folds_key
from certify_assets.evaluation.comparison import Comparison, Cost, comparison_key
from certify_assets.judges.families.endpoint import EndpointSpec
from certify_assets.judges.harvest.rows import HarvestDocument, HarvestRow, LoopRow, MeasuredRow
from certify_assets.judges.judged import judge_file
from certify_assets.judges.specs import TRANSFER_JUDGES, judges
from certify_assets.reports.comparison_page import agent_table
from certify_assets.reports.harvest_table import control_rows, loop_rows
from certify_assets.reports.wording import DASH, count
from certify_assets.research import paper
from certify_assets.research.certifiability import (
    BASE,
    CERTIFIABILITY_KEY,
    CERTIFIABILITY_SCHEMA,
    Certifiability,
)
from certify_assets.research.harvest_study import harvests_key
from certify_assets.research.law import FormFit, LawPoint, fit_law
from certify_assets.research.pages.law_page import law_figure
from certify_assets.research.pages.result_tables import (
    HOSTED,
    NOT_RUN,
    OURS,
    PAPER,
    Reader,
    StudyTable,
    as_stored,
    number,
    numbers,
)
from certify_assets.research.study import RUN_KEY, StudyRun

#: what the other tables call a corpus of the law's points
_NAMES = {"ARB": "Web-A"}
#: of human review a run, the paper's
_MINUTES = 6


def _arms_key(corpus: str) -> str:
    return judge_file("grpo", corpus, "arms_audit.json")


def arms_table(reader: Reader) -> StudyTable:
    """Every arm of GRPO: what CAL certifies, and what its threshold covers on TEST."""
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_arms_key, "arms", as_stored):
        for place, cell in enumerate(document["plan"]["cells"]):
            for candidate in cell["candidates"]:
                name = candidate["name"]
                audit = document["results"][name]["audits"][place]
                role = "chosen on CAL" if name == cell["chosen"] else DASH
                shares = (candidate["coverage"], audit["coverage"], audit["realized_error"])
                where = (cell["side"], f"{cell['alpha']:g}", name)
                rows.append((OURS, corpus, *where, *numbers(shares), role))
    names = ("SFT", "accuracy (λ=μ=1)", "reject μ=3", "reject μ=5", "release λ=5")
    for corpus, *found, pick in paper.table("arms"):
        for name, text in zip(names, found, strict=True):
            share, _, cal = text.partition(" ")
            picked = pick in name or (pick == "μ=1" and "accuracy" in name)
            shown = (cal.strip("()") or DASH, share, DASH, f"CAL picks {pick}" if picked else DASH)
            rows.append((PAPER, corpus, "reject", "0.1", name, *shown))
    return reader.table("arms", rows)


def frontier_table(reader: Reader) -> StudyTable:
    """Judges behind an endpoint, next to the paper's frontier judges."""
    rows: list[tuple[str, ...]] = []
    endpoints = {
        name: spec
        for name, spec in judges(reader.store.root).items()
        if isinstance(spec, EndpointSpec)
    }
    for corpus, scores in reader.real_scores() if endpoints else ():
        for name, spec in endpoints.items():
            judge = scores.judge(name)
            cell = judge and judge.cell("reject", 0.1, "taskboot")
            if judge and cell:
                shares = numbers((judge.auroc_test, cell.coverage, cell.test_coverage))
                rows.append((OURS, corpus, name, spec.endpoint.asking.mode, *shares))
            else:
                reader.note(
                    f"{corpus}, {name}: {NOT_RUN}; dagster job launch -j endpoint_judges, or see "
                    f"docs/endpoints.md"
                )
    if not endpoints:
        rows.append((OURS, "every corpus", "none", HOSTED, *[f"needs a {HOSTED} model"] * 3))
        reader.note(
            f"judges behind an endpoint: {NOT_RUN}, none is named in judges.yaml of the data "
            f"root; docs/endpoints.md says how to add one"
        )
    for name, elicitation, *found in paper.table("frontier"):
        for corpus, (area, share) in zip(("Web-A", "Tool"), (found[:2], found[2:]), strict=True):
            rows.append((PAPER, corpus, name, elicitation, area, DASH, share))
    return reader.table("frontier", rows)


def _certifiability(reader: Reader) -> Certifiability | None:
    found = reader.document(CERTIFIABILITY_KEY, _of_base)
    if found is None:
        reader.lacks("all", "law")
    return found


def _of_base(document: Mapping[str, Any]) -> Certifiability | None:
    # in documents of the schema before, A₀ could be that of a trained judge
    same = document["schema"] == CERTIFIABILITY_SCHEMA
    return Certifiability.from_dict(document) if same else None


def law_points_table(reader: Reader) -> StudyTable:
    """The points of the law, with its figure."""
    rows: list[tuple[str, ...]] = []
    found, figure, about = _certifiability(reader), "", "The paper's points alone."
    for item in found.measured if found else ():
        rows.append((OURS, *_point(item.point), item.best_judge or "nobody"))
    rows += [
        (PAPER, *_point(replace(point, corpus=_NAMES.get(point.corpus, point.corpus))), DASH)
        for point in paper.law_points()
    ]
    if found:
        for corpus, reason in found.left_out:
            reader.note(f"{corpus}: no point; {reason}")
        # the stored points are those that were fitted; their index follows from the other columns
        points = [replace(item.point, index=None) for item in found.measured]
        ours = fit_law(points) if found.law else None
        figure = law_figure(points, ours, fit_law(paper.law_points()), name="law")
        about = (
            f"Ours are read off CAL, A₀ being that of {BASE}. "
            f"{_unfitted(found) or _line(found)} The paper's line is 1.08 x − .05."
        )
    return reader.table("law_points", rows, about=about, figure=figure)


def _point(point: LawPoint) -> tuple[str, ...]:
    shares = numbers((point.success_rate, point.auroc, point.x, point.coverage))
    return (point.corpus, *shares, count(point.n_eff), count(point.tasks))


def _unfitted(found: Certifiability) -> str:
    return f"No line is fitted to ours: {found.reason}" if found.reason else ""


def _line(found: Certifiability) -> str:
    assert found.law is not None
    return (
        f"Our line is {found.law.slope:.2f} x {'+' if found.law.intercept >= 0 else '−'} "
        f"{abs(found.law.intercept):.2f} over {len(found.measured)} corpora."
    )


def law_forms_table(reader: Reader) -> StudyTable:
    """The forms of the law, fitted to our corpora, to the paper's points again, and as printed."""
    found, rows = _certifiability(reader), []
    for form in found.paper.forms if found else ():
        mine = found.law.form(form.form) if found and found.law else None
        printed = paper.law_forms().get(form.form, (None, None, None))
        rows.append((form.words, *numbers((*_fit(mine), *_fit(form), *printed))))
    about = "In-sample R², leave-one-corpus-out R² and its mean absolute error. " + (
        _unfitted(found) if found else ""
    )
    return reader.table("law_forms", rows, about=about.strip())


def _fit(form: FormFit | None) -> tuple[float | None, ...]:
    return (form.r2, form.loocv_r2, form.mae) if form else (None, None, None)


def transfer_table(reader: Reader) -> StudyTable:
    """Judges that never saw the target corpus."""
    rows: list[tuple[str, ...]] = []
    for corpus, scores in reader.real_scores():
        for name in ("lexical", *TRANSFER_JUDGES):
            judge = scores.judge(name)
            if judge is None:
                reader.lacks(corpus, name, f"judge {name}")
                continue
            cell = judge.cell("reject", 0.1, "taskboot")
            shares = (cell.coverage, cell.test_coverage, cell.test_error) if cell else [None] * 3
            about = f"{name} (in-domain, to compare)" if name == "lexical" else name
            rows.append((OURS, corpus, about, *numbers((judge.auroc_test, *shares))))
    rows += [
        (PAPER, target, f"without {out}", area, DASH, share, DASH)
        for target, out, area, share in paper.table("transfer")
    ]
    about = (
        "Reject side, α = .1, TaskBoot. transfer: trained on every other corpus; strict: on "
        "corpora of other domains alone. docs/transfer.md says what is kept apart."
    )
    return reader.table("transfer", rows, about=about)


def agents_table(reader: Reader) -> StudyTable:
    """Runs of agents that a judge has not seen."""
    key = partial(agent_folds_key, judge="lexical")
    documents = [
        {"corpus": corpus, "agent_disjoint": [found]}
        for corpus, found in reader.of_corpora(key, "agents", as_stored)
    ]
    made = agent_table(documents)
    return reader.table("agents", made.rows, title=made.title, columns=made.columns)


def cost_table(reader: Reader) -> StudyTable:
    """Reviewer-hours saved, and what a decision costs."""
    rows: list[tuple[str, ...]] = []
    for corpus, scores in reader.real_scores():
        compared: Comparison | None = reader.document(comparison_key(corpus), as_stored)
        costs = {row["judge"]: row["cost"] for row in compared["rows"]} if compared else {}
        for judge in scores.judges:
            price = _price(costs.get(judge.judge))
            for procedure in (DEFAULT, "taskboot"):
                cell = judge.cell("reject", 0.1, procedure)
                share = cell.test_coverage if cell else None
                hours = DASH if share is None else f"{1000 * share * _MINUTES / 60:.1f}"
                rows.append((OURS, corpus, judge.judge, procedure, number(share), hours, *price))
    for corpus, hours in paper.table("costs"):
        share = float(hours) / 100
        about = ("trained 4B", "taskboot", number(share), hours)
        rows.append((PAPER, corpus, *about, DASH, DASH, DASH))
    words = (
        f"Reviewer-hours that a thousand runs save at {_MINUTES} minutes of review each: 1000 c "
        f"t/60 for the share c of TEST that the judge rejects at α = .1. "
        "CPU time is that of this machine; tokens and money are of endpoint judges alone."
    )
    return reader.table("cost", rows, about=words)


def _price(cost: Cost | None) -> tuple[str, str, str]:
    if cost is None:
        return (NOT_RUN, DASH, DASH)
    each, tokens = cost["cpu_seconds_per_trajectory"], cost["tokens_per_decision"]
    money = cost["money_per_decision"]
    return (
        "not measured" if each is None else f"{1000 * each:.2f}",
        DASH if tokens is None else f"{tokens:.0f}",
        DASH if money is None else f"{money:.5f} {cost['currency']}".strip(),
    )


def stages_table(reader: Reader) -> StudyTable:
    """What became of every stage of the last run."""
    run = reader.document(RUN_KEY, StudyRun.from_dict)
    if run is None:
        reader.note(f"the study: {NOT_RUN}; certify research study --profile quick")
    rows = tuple(
        (item.corpus, item.stage, item.status, item.reason or DASH, item.command)
        for item in (run.stages if run else ())
    )
    about = f"Profile {run.profile}, the last run in this data root." if run else "No run yet."
    return reader.table("stages", rows, about=about)


_LEARNERS = {
    "lexical": "harvests",
    "combined": "harvests",
    "sft": "harvests_sft",
    "smollm2": "harvests_sft",
    "lexical_transfer": "harvests_transfer",
    "combined_transfer": "harvests_transfer",
    "sft_transfer": "harvests_transfer",
    "smollm2_transfer": "harvests_transfer",
}
_WHERE = ("profile", "side", "alpha")


def _documents(reader: Reader) -> Iterator[tuple[str, str, HarvestDocument]]:
    for learner, stage in _LEARNERS.items():
        for corpus, found in reader.of_corpora(
            partial(harvests_key, learner=learner), stage, as_stored
        ):
            yield corpus, learner, found


def _loops(reader: Reader) -> Iterator[tuple[str, str, LoopRow, tuple[str, ...]]]:
    """Corpus, learner, loop, and the cells that name a loop."""
    for corpus, learner, document in _documents(reader):
        for loop in document["loops"]:
            place = (loop["profile"], loop["side"], f"{loop['alpha']:g}", loop["gate"])
            yield corpus, learner, loop, place


def self_training_table(reader: Reader) -> StudyTable:
    """Coverage before and after each round, reject side, next to labels spent on training."""
    rows: list[tuple[str, ...]] = []
    for corpus, learner, document in _documents(reader):
        for loop in document["loops"]:
            if (
                loop["side"] == "reject"
                and loop["gate"] == document["loops"][0]["gate"]
                and loop["profile"] == document["loops"][0]["profile"]
            ):
                rows += [(OURS, corpus, *row) for row in _rounds(loop, learner)]
    rows += [
        (PAPER, target, judge, "taskboot", "0.1", DASH, share, DASH, harvest, labels)
        for target, judge, share, harvest, labels in paper.table("self_training")
    ]
    return reader.table("self_training", rows)


def _rounds(loop: LoopRow, learner: str) -> Iterator[tuple[str, ...]]:
    gate, alpha = loop["gate"], f"{loop['alpha']:g}"
    for row in loop["rounds"]:
        name = f"{learner}, round {row['round']}"
        harvest = _harvest(row["harvest"]) if "harvest" in row else DASH
        if "skipped" in row:
            yield (name, gate, alpha, "gate closed", DASH, DASH, harvest, "+0")
            continue
        labels = "+0"
        if row["round"] == 0:
            transfer = learner.endswith("_transfer")
            labels = "0 of the target" if transfer else str(row["trained_on"])
        yield (name, gate, alpha, *_coverages(row, gate), harvest, labels)
    for control in loop["controls"]:
        if "labels" in control:
            name = "labels of half A spent on training"
            yield (name, gate, alpha, *_coverages(control, gate), DASH, f"+{control['labels']}")


def _coverages(row: MeasuredRow, gate: str) -> tuple[str, ...]:
    cells = row["certificates"]
    # betting opens gates, and certifies no judge
    cell = cells.get(gate) or cells.get(DEFAULT) or cells["guarded_taskboot"]
    deployed = cell["test_coverage"] if cell["threshold"] is not None else 0.0
    return numbers((cell["half_b_coverage"], deployed, cell["test_own_coverage"]))


def _harvest(found: HarvestRow) -> str:
    return f"{found['size']}/{found['pool']} ({number(found['contamination'])})"


def harvests_table(reader: Reader) -> StudyTable:
    """Every harvest that a gate let through: size, contamination, coverage before and after."""
    documents = list(_documents(reader))
    rows: list[tuple[str, ...]] = [
        (OURS, corpus, learner, *row)
        for corpus, learner, document in documents
        for loop in document["loops"]
        for row in _made(loop)
    ]
    found = [document for _, _, document in documents]
    counts = {
        "harvests": sum(one["harvests"] for one in found),
        "within_budget": sum(one["within_budget"] for one in found),
        "beyond_chance": sum(one["beyond_chance"] for one in found),
        "gates_closed": sum(one["gates_closed"] for one in found),
    }
    for target, start, harvest, wrong, share in paper.table("harvest_rows"):
        place = ("paper", "reject", "0.1", "taskboot", DASH)
        shown = (harvest, wrong, *[DASH] * 4, share)
        rows.append((PAPER, target, start, *place, *shown))
    about = (
        f"Ours: {counts['harvests']} harvests, {counts['within_budget']} within their budget, "
        f"{counts['beyond_chance']} above it beyond chance, "
        f"{counts['gates_closed']} "
        "gates closed. Harvests of one corpus share its runs and are no independent trials. The "
        "bound is on runs like those of CAL below the "
        "threshold, not on the finite pool. Coverage is that of the gate's procedure, of guarded "
        "TaskBoot where the gate bets."
    )
    return reader.table("harvests", rows, about=about)


def _made(loop: LoopRow) -> Iterator[tuple[str, ...]]:
    gate = loop["gate"]
    place = (loop["profile"], loop["side"], f"{loop['alpha']:g}", gate)
    before: tuple[str, ...] = ()
    for row in loop["rounds"]:
        if "harvest" not in row:
            before = _coverages(row, gate)
        elif "skipped" not in row:
            found, shares = row["harvest"], _coverages(row, gate)
            half_b, deployed, _ = zip(before, shares, strict=True)
            about = (f"{found['size']}/{found['pool']}", number(found["contamination"]))
            verdict = found["verdict"] or DASH
            yield (*place, str(row["round"]), *about, verdict, *half_b, *deployed)
            before = shares


def closed_gates_table(reader: Reader) -> StudyTable:
    """Loops that end at a closed gate, with the reason."""
    rows = tuple(
        (corpus, learner, *(row[name] for name in (*_WHERE, "gate", "round")), row["note"])
        for corpus, learner, document in _documents(reader)
        for row in loop_rows(document)
        if row["note"]
    )
    return reader.table("closed_gates", rows)


def controls_table(reader: Reader) -> StudyTable:
    """What the gate buys: the same training without a certificate."""
    rows = tuple(
        (
            corpus,
            learner,
            *(row[name] for name in (*_WHERE, "control", "harvest")),
            *(
                row[name] or DASH
                for name in ("wrong", "half B", "TEST own", "TEST deployed", "TEST error")
            ),
        )
        for corpus, learner, document in _documents(reader)
        for row in control_rows(document)
    )
    return reader.table("controls", rows)


def skew_table(reader: Reader) -> StudyTable:
    """How far each harvest is from its pool."""
    rows: list[tuple[str, ...]] = []
    for corpus, learner, loop, place in _loops(reader):
        for row in loop["rounds"]:
            found = row["harvest"]["skew"] if "harvest" in row else None
            if found:
                shown = (
                    *numbers((found["agents"], found["tasks"])),
                    f"{found['tasks_in_it']}/{found['tasks_in_pool']}",
                    f"{found['effective_tasks']:.1f}",
                    number(found["length_distance"]),
                    f"{found['length_ratio']:.2f}",
                )
                rows.append((corpus, learner, *place, str(row["round"]), *shown))
    return reader.table("skew", rows)


def ranking_table(reader: Reader) -> StudyTable:
    """Whether half B puts the rounds in the order that TEST has them in."""
    rows: list[tuple[str, ...]] = []
    for corpus, learner, loop, place in _loops(reader):
        for procedure, found in (loop["ranking"] or {}).items():
            half_b = " / ".join(number(item["half_b"]) for item in found["rounds"])
            test = " / ".join(number(item["test"]) for item in found["rounds"])
            agree = "yes" if found["agree"] else "no"
            rows.append((OURS, corpus, learner, *place, procedure, half_b, test, agree))
    target, *orders = paper.table("ranking")[0]
    place = ("paper", "reject", "0.1", "taskboot")
    shares = [" / ".join(numbers(order)) for order in orders]
    rows.append((PAPER, target, "transfer", *place, "taskboot", *shares, "no"))
    return reader.table("ranking", rows)
