"""The tables of a corpus page, from the documents of profile, controls and import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from certify_assets.reports.wording import DASH, count, counted, percent, rate

__all__ = [
    "ControlRow",
    "agent_rows",
    "control_rows",
    "flip_facts",
    "gate_rows",
    "label_rows",
    "length_facts",
    "phrase_rows",
    "profile_facts",
    "split_rows",
]

_MOST_AGENTS = 60
Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ControlRow:
    """One control as it is shown: name, AUROC, interval over tasks, threshold, width of its bar in percent, whether it is over."""

    name: str
    auroc: str
    interval: str
    threshold: str
    bar: str
    over: bool


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent: all its runs, those with an outcome outside TEST, their tasks, success rate in words and in percent."""

    name: str
    runs: str
    read: str
    tasks: str
    success_rate: str
    bar: str


def profile_facts(profile: Mapping[str, Any]) -> list[Fact]:
    """Return size and clustering of the corpus, each as what it is and its value."""
    fewest, most = profile["attempts"]
    return [
        ("labelled runs", count(profile["trajectories"])),
        ("without a label", count(profile["unlabelled"])),
        ("tasks", count(profile["tasks"])),
        ("agents", count(len(profile["agents"]))),
        ("runs a task", count(fewest) if fewest == most else f"{count(fewest)} to {count(most)}"),
        ("success rate π", percent(profile["success_rate"])),
        ("task ICC", rate(profile["icc"])),
        ("design effect DEFF", f"{profile['deff']:.2f}"),
        ("effective runs n_eff", f"{profile['n_eff']:,.1f}"),
    ]


def gate_rows(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the arithmetic of every split and budget."""
    return [
        {
            "split": gate["split"].upper(),
            "alpha": f"{gate['alpha']:g}",
            "tasks": count(gate["tasks"]),
            "floor": count(gate["floor_tasks"]),
            "n_eff": f"{gate['n_eff']:,.1f}",
            "n_min": f"{gate['n_min']} / {gate['n_min_grid']}",
            "possible": gate["possible"],
            "audits": gate["split"] == "test",
            "reason": gate["reason"],
        }
        for gate in profile["gates"]
    ]


def split_rows(profile: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the figures of every split."""
    return [
        (
            name.upper(),
            count(part["tasks"]),
            count(part["trajectories"]),
            percent(part["success_rate"]),
            rate(part["icc"]),
            f"{part['deff']:.2f}",
            f"{part['n_eff']:,.1f}",
        )
        for name, part in profile["splits"].items()
    ]


def control_rows(controls: Mapping[str, Any]) -> list[ControlRow]:
    """Return every control with its interval and threshold."""
    measured = {
        "length": controls["length_auroc"],
        "steps": controls["step_auroc"],
        "agent": controls["agent_auroc"],
    }
    measured |= {f"phrase {name}": value for name, value in controls["phrases"].items()}
    rows = []
    for name, value in measured.items():
        bound = controls["intervals"].get(name)
        limit = controls["thresholds"]["phrases" if name.startswith("phrase ") else name]
        interval = DASH if bound is None else f"{rate(bound[0])} to {rate(bound[1])}"
        rows.append(
            ControlRow(
                name,
                rate(value),
                interval,
                f"{limit:g}",
                f"{100 * (value or 0):.1f}",
                name in controls["over"],
            )
        )
    return rows


def agent_rows(profile: Mapping[str, Any], controls: Mapping[str, Any]) -> list[AgentRow]:
    """Return every agent (at most 60); success rates are of the runs outside TEST."""
    read = {item["agent"]: item for item in controls["evidence"]["agents"]}
    rows = []
    for name, runs in list(profile["agents"].items())[:_MOST_AGENTS]:
        item = read.get(name)
        if item is None:
            rows.append(AgentRow(name, count(runs), "0", "0", DASH, "0"))
            continue
        share = item["success_rate"]
        rows.append(
            AgentRow(
                name,
                count(runs),
                count(item["trajectories"]),
                count(item["tasks"]),
                percent(share),
                f"{100 * share:.1f}",
            )
        )
    return rows


def phrase_rows(controls: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every verdict phrase that occurs, with where."""
    return [
        {
            "name": item["name"],
            "runs": counted(item["trajectories"], "run"),
            "with": percent(item["success_rate_with"]),
            "without": percent(item["success_rate_without"]),
            "examples": [
                {"run": run, "step": step, "text": text} for run, step, text in item["examples"]
            ],
        }
        for item in controls["evidence"]["phrases"]
    ]


def flip_facts(flips: Mapping[str, Any]) -> list[Fact]:
    """Return the flip rates, of agents' attempts and of tasks, and what they leave to a judge."""
    return [
        (
            f"of {counted(flips['cells'], 'pair')} of task and agent flip",
            percent(flips["cell_rate"]),
        ),
        (f"of {counted(flips['tasks'], 'task')} flip", percent(flips["task_rate"])),
        (
            "accuracy at most, knowing task and agent without reading",
            percent(flips["unread_ceiling"]),
        ),
        ("accuracy at most, if equal texts get equal verdicts", percent(flips["label_ceiling"], 2)),
    ]


def label_rows(imported: Mapping[str, Any], flips: Mapping[str, Any]) -> list[Fact]:
    """Return where outcomes come from and what speaks of their disagreement."""
    facts = [
        (name.replace("_", " "), f"{value:,.4g}" if value % 1 else count(value))
        for name, value in imported["label_facts"].items()
    ]
    contradicted = counted(flips["contradicted"], "run")
    return [
        ("source of the outcomes", imported["label_source"] or "not recorded"),
        *facts,
        ("runs whose text has both outcomes", contradicted),
    ]


def length_facts(lengths: Mapping[str, Any] | None) -> list[Fact]:
    """Return the lengths of the uncut texts and what the renderer's budget takes from them."""
    if lengths is None:
        return []
    return [
        ("characters, median", count(lengths["median"])),
        ("95th percentile", count(lengths["p95"])),
        ("shortest", count(lengths["shortest"])),
        ("longest", count(lengths["longest"])),
        ("runs cut to the budget", count(lengths["cut"])),
        ("of all characters cut", percent(lengths["cut_share"])),
    ]
