"""Tables of the study that are about CertHarvest: self-training, every harvest, controls, skew, and whether CAL could have ranked the rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certify_assets.reports.comparison_tables import Table
from certify_assets.reports.harvest_table import control_rows, loop_rows
from certify_assets.reports.wording import DASH
from certify_assets.research import paper_tables
from certify_assets.research.pages.study_reader import (
    OURS,
    PAPER,
    Reader,
    StudyTable,
    number,
    numbers,
)

__all__ = [
    "closed_gates_table",
    "controls_table",
    "harvests_table",
    "ranking_table",
    "self_training_table",
    "skew_table",
]

_LEARNERS = {"lexical": "harvests", "sft": "harvests_sft", "lexical_transfer": "harvests_transfer"}
_WHERE = ("profile", "side", "alpha")


def _documents(reader: Reader) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for learner, stage in _LEARNERS.items():
        for corpus, document in reader.of_corpora(f"harvests/{{}}/{learner}.json", stage):
            yield corpus, learner, document


def self_training_table(reader: Reader) -> StudyTable:
    """Coverage before and after each round, reject side, beside labels spent on training instead."""
    columns = (
        "whose",
        "target",
        "judge",
        "gate",
        "α",
        "half B",
        "TEST deployed",
        "TEST's own",
        "harvest (wrong)",
        "target labels",
    )
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
        for target, judge, share, harvest, labels in paper_tables.SELF_TRAINING
    ]
    about = (
        "Reject side, our gate, the first split profile; every loop is in the next table. Half A of CAL sets the threshold of the harvest, half B "
        "certifies the "
        "judge of every round, TEST audits it. Labels of the pool are withheld and only say how many pseudo-labels are wrong."
    )
    return reader.table(
        Table("self_training", "Certificate-gated self-training", columns, tuple(rows)), about
    )


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
    columns = (
        "whose",
        "target",
        "start",
        "profile",
        "side",
        "α",
        "gate",
        "round",
        "harvest",
        "wrong",
        "audit",
        "half B before",
        "after",
        "TEST before",
        "after",
    )
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
        for target, start, harvest, wrong, share in paper_tables.HARVEST_ROWS
    ]
    about = (
        f"Ours: {counts['harvests']} harvests, {counts['within_budget']} within their budget, {counts['beyond_chance']} above it beyond chance, "
        f"{counts['gates_closed']} "
        "gates closed. Harvests of one corpus share its runs and are no independent trials. The bound is on runs like those of CAL below the "
        "threshold, not on the finite pool. Coverage is that of the gate's procedure, of guarded TaskBoot where the gate bets."
    )
    return reader.table(Table("harvests", "All harvests", columns, tuple(rows)), about)


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
    about = "Where half A certifies nothing there is no harvest and no new judge."
    return reader.table(
        Table(
            "closed_gates",
            "Closed gates",
            ("target", "start", "profile", "side", "α", "gate", "round", "why"),
            rows,
        ),
        about,
    )


def controls_table(reader: Reader) -> StudyTable:
    """What the gate buys: the same training without a certificate."""
    columns = (
        "target",
        "start",
        "profile",
        "side",
        "α",
        "control",
        "taken",
        "wrong",
        "half B",
        "TEST own",
        "TEST deployed",
        "TEST error",
    )
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
    about = (
        "verdict: every run that the judge calls so; confidence: those it is sure of by its own probability; lowest or highest: a share of the pool, or as "
        "many "
        "as the certificate let through; labels_of_half_a: the labels spent on training instead of on a threshold."
    )
    return reader.table(Table("controls", "Controls without a certificate", columns, rows), about)


def skew_table(reader: Reader) -> StudyTable:
    """How far each harvest is from its pool."""
    columns = (
        "target",
        "start",
        "profile",
        "side",
        "α",
        "gate",
        "round",
        "agents",
        "tasks",
        "tasks in it",
        "effective tasks",
        "length distance",
        "length ratio",
    )
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
    about = (
        "What the bound on wrong pseudo-labels does not cover. agents, tasks: total variation distance between harvest and pool (0 alike, 1 disjoint); length: "
        "Kolmogorov-Smirnov distance of lengths and ratio of their means."
    )
    return reader.table(Table("skew", "Skew of the harvests", columns, tuple(rows)), about)


def ranking_table(reader: Reader) -> StudyTable:
    """Whether half B puts the rounds in the order that TEST has them in."""
    columns = (
        "whose",
        "target",
        "start",
        "profile",
        "side",
        "α",
        "gate",
        "certified by",
        "half B by round",
        "TEST by round",
        "same order",
    )
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
    target, cal, test = paper_tables.RANKING
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
    about = (
        "Rounds 0, 1, 2: coverage on half B of CAL and coverage that TEST's own scores certify. The number of rounds is fixed beforehand; nothing "
        "here chooses."
    )
    return reader.table(
        Table("ranking", "Could CAL have ranked the rounds?", columns, tuple(rows)), about
    )
