"""Tables of the study site on training: arms, law, transfer, cost and harvests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certify_assets.judges.families.endpoint import EndpointSpec
from certify_assets.judges.specs import TRANSFER_JUDGES, judges
from certify_assets.reports.comparison_page import agent_table
from certify_assets.reports.harvest_table import control_rows, loop_rows
from certify_assets.reports.wording import DASH, count
from certify_assets.research import paper
from certify_assets.research.pages.result_tables import (
    HOSTED,
    NOT_RUN,
    OURS,
    PAPER,
    Reader,
    StudyTable,
    cell_of,
    judge_of,
    number,
    numbers,
)

_REAL = "real_scores/{}.json"
#: what the other tables call a corpus of the law's points
_NAMES = {"ARB": "Web-A"}
#: of human review a run, the paper's
_MINUTES = 6


def arms_table(reader: Reader) -> StudyTable:
    """Every arm of GRPO: what CAL certifies, and what its threshold covers on TEST."""
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora("judges/grpo/{}/arms_audit.json", "arms"):
        for place, cell in enumerate(document["plan"]["cells"]):
            for candidate in cell["candidates"]:
                audit = document["results"][candidate["name"]]["audits"][place]
                role = "chosen on CAL" if candidate["name"] == cell["chosen"] else DASH
                shares = numbers(
                    (candidate["coverage"], audit["coverage"], audit["realized_error"])
                )
                rows.append(
                    (
                        OURS,
                        corpus,
                        cell["side"],
                        f"{cell['alpha']:g}",
                        candidate["name"],
                        *shares,
                        role,
                    )
                )
    names = ("SFT", "accuracy (λ=μ=1)", "reject μ=3", "reject μ=5", "release λ=5")
    for corpus, *found, pick in paper.table("arms"):
        for name, text in zip(names, found, strict=True):
            share, _, cal = text.partition(" ")
            role = (
                f"CAL picks {pick}"
                if pick in name or (pick == "μ=1" and "accuracy" in name)
                else DASH
            )
            rows.append(
                (PAPER, corpus, "reject", "0.1", name, cal.strip("()") or DASH, share, DASH, role)
            )
    return reader.table("arms", rows)


def frontier_table(reader: Reader) -> StudyTable:
    """Judges behind an endpoint, next to the paper's frontier judges."""
    rows: list[tuple[str, ...]] = []
    endpoints = {
        name: spec
        for name, spec in judges(reader.store.root).items()
        if isinstance(spec, EndpointSpec)
    }
    for corpus, document in reader.of_corpora(_REAL, "real_scores") if endpoints else ():
        for name, spec in endpoints.items():
            judge = judge_of(document, name)
            cell = judge and cell_of(judge, "reject", 0.1, "taskboot")
            mode = spec.endpoint.asking.mode
            if judge and cell:
                rows.append(
                    (
                        OURS,
                        corpus,
                        name,
                        mode,
                        number(judge["auroc_test"]),
                        *numbers((cell["coverage"], cell["test_coverage"])),
                    )
                )
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


def law_points_table(reader: Reader) -> StudyTable:
    """The points of the law, with its figure."""
    rows: list[tuple[str, ...]] = []
    document, figure = reader.document("study/certifiability.json"), ""
    if document is None:
        reader.lacks("all", "law")
    for item in document["points"] if document else ():
        rows.append((OURS, *_point(item), item["best_judge"] or "nobody"))
    rows += [
        (PAPER, *_point(point.to_dict() | {"corpus": _NAMES.get(point.corpus, point.corpus)}), DASH)
        for point in paper.law_points()
    ]
    for item in document["left_out"] if document else ():
        reader.note(f"{item['corpus']}: no point; {item['reason']}")
    if document:
        figure = _figure(document)
        about = (
            f"Ours are read off CAL, A₀ being that of {_base(document)}. "
            f"{_unfitted(document) or _line(document)} The paper's line is 1.08 x − .05."
        )
    else:
        about = "The paper's points alone."
    return reader.table("law_points", rows, about=about, figure=figure)


def _point(item: Mapping[str, Any]) -> tuple[str, ...]:
    shares = numbers((item["success_rate"], item["auroc"], item["index"], item["coverage"]))
    return (item["corpus"], *shares, count(item["n_eff"]), count(item["tasks"]))


def _base(document: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(item["base_judge"] for item in document["points"])) or "nobody"


def _unfitted(document: Mapping[str, Any]) -> str:
    return f"No line is fitted to ours: {document['reason']}" if document["reason"] else ""


def _line(document: Mapping[str, Any]) -> str:
    form = next(item for item in document["law"]["forms"] if item["form"] == "law")
    return (
        f"Our line is {form['slope']:.2f} x {'+' if form['intercept'] >= 0 else '−'} "
        f"{abs(form['intercept']):.2f} over {len(document['points'])} corpora."
    )


def _figure(document: Mapping[str, Any]) -> str:
    from certify_assets.research.law import LawPoint, fit_law
    from certify_assets.research.pages.law_page import law_figure

    names = ("corpus", "success_rate", "auroc", "coverage", "n_eff", "tasks")
    points = [LawPoint(**{name: item[name] for name in names}) for item in document["points"]]
    return law_figure(
        points,
        fit_law(points) if document["law"] else None,
        fit_law(paper.law_points()),
        name="law",
    )


def law_forms_table(reader: Reader) -> StudyTable:
    """The forms of the law, fitted to our corpora, to the paper's points again, and as printed."""
    document = reader.document("study/certifiability.json")
    if document is None:
        reader.lacks("all", "law")
    rows = []
    for form in document["paper"]["forms"] if document else ():
        ours = document["law"]["forms"] if document and document["law"] else []
        mine: dict[str, Any] = next((item for item in ours if item["form"] == form["form"]), {})
        keys = ("r2", "loocv_r2", "mae")
        printed = paper.law_forms().get(form["form"], (None, None, None))
        rows.append(
            (
                form["words"],
                *numbers([mine.get(key) for key in keys]),
                *numbers([form.get(key) for key in keys]),
                *numbers(printed),
            )
        )
    about = "In-sample R², leave-one-corpus-out R² and its mean absolute error. " + (
        _unfitted(document) if document else ""
    )
    return reader.table("law_forms", rows, about=about.strip())


def transfer_table(reader: Reader) -> StudyTable:
    """Judges that never saw the target corpus."""
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        for name in ("lexical", *TRANSFER_JUDGES):
            judge = judge_of(document, name)
            if judge is None:
                reader.lacks(corpus, name, f"judge {name}")
                continue
            cell = cell_of(judge, "reject", 0.1, "taskboot") or {
                "coverage": None,
                "test_coverage": None,
                "test_error": None,
            }
            about = f"{name} (in-domain, to compare)" if name == "lexical" else name
            shares = numbers((cell["coverage"], cell["test_coverage"], cell["test_error"]))
            rows.append((OURS, corpus, about, number(judge["auroc_test"]), *shares))
    rows += [
        (PAPER, target, f"without {out}", area, DASH, share, DASH)
        for target, out, area, share in paper.table("transfer")
    ]
    about = (
        "Reject side, α = .1, TaskBoot. transfer: trained on every other corpus; strict: on "
        "corpora of other domains alone. docs/transfer.md says "
        "what is kept apart."
    )
    return reader.table("transfer", rows, about=about)


def agents_table(reader: Reader) -> StudyTable:
    """Runs of agents that a judge has not seen."""
    documents = [
        {"corpus": corpus, "agent_disjoint": [found]}
        for corpus, found in reader.of_corpora(
            "comparison/{}/agent_disjoint_lexical.json", "agents"
        )
    ]
    made = agent_table(documents)
    return reader.table("agents", made.rows, title=made.title, columns=made.columns)


def cost_table(reader: Reader) -> StudyTable:
    """Reviewer-hours saved, and what a decision costs."""
    rows: list[tuple[str, ...]] = []
    for corpus, document in reader.of_corpora(_REAL, "real_scores"):
        comparison = reader.document(f"comparison/{corpus}/comparison.json")
        costs = {row["judge"]: row["cost"] for row in comparison["rows"]} if comparison else {}
        for judge in document["judges"]:
            for procedure in ("guarded_taskboot", "taskboot"):
                cell = cell_of(judge, "reject", 0.1, procedure)
                share = cell["test_coverage"] if cell else None
                rows.append(
                    (
                        OURS,
                        corpus,
                        judge["judge"],
                        procedure,
                        number(share),
                        _hours(share),
                        *_price(costs.get(judge["judge"])),
                    )
                )
    rows += [
        (
            PAPER,
            corpus,
            "trained 4B",
            "taskboot",
            number(float(hours) / 100),
            hours,
            DASH,
            DASH,
            DASH,
        )
        for corpus, hours in paper.table("costs")
    ]
    about = (
        f"Reviewer-hours that a thousand runs save at {_MINUTES} minutes of review each: 1000 c "
        f"t/60 for the share c of TEST that the judge rejects at α = .1. "
        "CPU time is that of this machine; tokens and money are of endpoint judges alone."
    )
    return reader.table("cost", rows, about=about)


def _hours(share: float | None) -> str:
    return DASH if share is None else f"{1000 * share * _MINUTES / 60:.1f}"


def _price(cost: Mapping[str, Any] | None) -> tuple[str, str, str]:
    if cost is None:
        return (NOT_RUN, DASH, DASH)
    each, tokens, money = (
        cost[name]
        for name in ("cpu_seconds_per_trajectory", "tokens_per_decision", "money_per_decision")
    )
    return (
        "not measured" if each is None else f"{1000 * each:.2f}",
        DASH if tokens is None else f"{tokens:.0f}",
        DASH if money is None else f"{money:.5f} {cost['currency']}".strip(),
    )


def stages_table(reader: Reader) -> StudyTable:
    """What became of every stage of the last run."""
    document = reader.document("study/run.json")
    if document is None:
        reader.note(f"the study: {NOT_RUN}; certify research study --profile quick")
    rows = tuple(
        (item["corpus"], item["stage"], item["status"], item["reason"] or DASH, item["command"])
        for item in (document["stages"] if document else ())
    )
    about = (
        f"Profile {document['profile']}, the last run in this data root."
        if document
        else "No run yet."
    )
    return reader.table("stages", rows, about=about)


_LEARNERS = {"lexical": "harvests", "sft": "harvests_sft", "lexical_transfer": "harvests_transfer"}
_WHERE = ("profile", "side", "alpha")


def _documents(reader: Reader) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for learner, stage in _LEARNERS.items():
        for corpus, document in reader.of_corpora(f"harvests/{{}}/{learner}.json", stage):
            yield corpus, learner, document


def self_training_table(reader: Reader) -> StudyTable:
    """Coverage before and after each round, reject side, next to labels spent on training."""
    rows: list[tuple[str, ...]] = []
    for corpus, learner, document in _documents(reader):
        for loop in document["loops"]:
            if (
                loop["side"] == "reject"
                and loop["gate"] == "guarded_taskboot"
                and loop["profile"] == document["loops"][0]["profile"]
            ):
                rows += [(OURS, corpus, *row) for row in _rounds(loop, learner)]
    rows += [
        (PAPER, target, judge, "taskboot", "0.1", DASH, share, DASH, harvest, labels)
        for target, judge, share, harvest, labels in paper.table("self_training")
    ]
    return reader.table("self_training", rows)


def _rounds(loop: Mapping[str, Any], learner: str) -> Iterator[tuple[str, ...]]:
    gate = loop["gate"]
    for row in loop["rounds"]:
        name = f"{learner}, round {row['round']}"
        if "skipped" in row:
            yield (
                name,
                gate,
                f"{loop['alpha']:g}",
                "gate closed",
                DASH,
                DASH,
                _harvest(row["harvest"]),
                "+0",
            )
            continue
        labels = (
            str(row["trained_on"])
            if row["round"] == 0 and learner != "lexical_transfer"
            else "0 of the target"
            if row["round"] == 0
            else "+0"
        )
        yield (
            name,
            gate,
            f"{loop['alpha']:g}",
            *_coverages(row, gate),
            _harvest(row.get("harvest")),
            labels,
        )
    for control in loop["controls"]:
        if control["control"] == "labels_of_half_a":
            yield (
                "labels of half A spent on training",
                gate,
                f"{loop['alpha']:g}",
                *_coverages(control, gate),
                DASH,
                f"+{control['labels']}",
            )


def _coverages(row: Mapping[str, Any], gate: str) -> tuple[str, ...]:
    cell = row["certificates"].get(gate) or row["certificates"]["guarded_taskboot"]
    return numbers(
        (
            cell["half_b_coverage"],
            cell["test_coverage"] if cell["threshold"] is not None else 0.0,
            cell["test_own_coverage"],
        )
    )


def _harvest(found: Mapping[str, Any] | None) -> str:
    return (
        DASH
        if found is None
        else f"{found['size']}/{found['pool']} ({number(found['contamination'])})"
    )


def harvests_table(reader: Reader) -> StudyTable:
    """Every harvest that a gate let through: size, contamination, coverage before and after."""
    rows: list[tuple[str, ...]] = []
    counts = dict.fromkeys(("harvests", "within_budget", "beyond_chance", "gates_closed"), 0)
    for corpus, learner, document in _documents(reader):
        counts = {name: value + document[name] for name, value in counts.items()}
        for loop in document["loops"]:
            rows += [(OURS, corpus, learner, *row) for row in _made(loop)]
    rows += [
        (
            PAPER,
            target,
            start,
            "paper",
            "reject",
            "0.1",
            "taskboot",
            DASH,
            harvest,
            wrong,
            DASH,
            DASH,
            DASH,
            DASH,
            share,
        )
        for target, start, harvest, wrong, share in paper.table("harvest_rows")
    ]
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


def _made(loop: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for before, row in zip(loop["rounds"], loop["rounds"][1:], strict=False):
        found = row["harvest"]
        if not found["size"] or "skipped" in row:
            continue
        pairs = zip(_coverages(before, loop["gate"]), _coverages(row, loop["gate"]), strict=True)
        half_b, deployed, _ = pairs
        place = (
            loop["profile"],
            loop["side"],
            f"{loop['alpha']:g}",
            loop["gate"],
            str(row["round"]),
        )
        yield (
            *place,
            f"{found['size']}/{found['pool']}",
            number(found["contamination"]),
            found["verdict"] or DASH,
            *half_b,
            *deployed,
        )


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
    rows = []
    for corpus, learner, document in _documents(reader):
        for loop in document["loops"]:
            place = (loop["profile"], loop["side"], f"{loop['alpha']:g}", loop["gate"])
            for row in loop["rounds"]:
                found = row.get("harvest", {}).get("skew")
                if found:
                    tasks = (
                        f"{found['tasks_in_it']}/{found['tasks_in_pool']}",
                        f"{found['effective_tasks']:.1f}",
                    )
                    lengths = (number(found["length_distance"]), f"{found['length_ratio']:.2f}")
                    rows.append(
                        (
                            corpus,
                            learner,
                            *place,
                            str(row["round"]),
                            *numbers((found["agents"], found["tasks"])),
                            *tasks,
                            *lengths,
                        )
                    )
    return reader.table("skew", rows)


def ranking_table(reader: Reader) -> StudyTable:
    """Whether half B puts the rounds in the order that TEST has them in."""
    rows: list[tuple[str, ...]] = []
    for corpus, learner, document in _documents(reader):
        for loop in document["loops"]:
            place = (loop["profile"], loop["side"], f"{loop['alpha']:g}", loop["gate"])
            for procedure, found in (loop["ranking"] or {}).items():
                shares = [
                    " / ".join(number(item[name]) for item in found["rounds"])
                    for name in ("half_b", "test")
                ]
                rows.append(
                    (
                        OURS,
                        corpus,
                        learner,
                        *place,
                        procedure,
                        *shares,
                        "yes" if found["agree"] else "no",
                    )
                )
    target, cal, test = paper.table("ranking")[0]
    rows.append(
        (
            PAPER,
            target,
            "transfer",
            "paper",
            "reject",
            "0.1",
            "taskboot",
            "taskboot",
            " / ".join(numbers(cal)),
            " / ".join(numbers(test)),
            "no",
        )
    )
    return reader.table("ranking", rows)
