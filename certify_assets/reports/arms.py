"""The candidates of GRPO in words and tables: CAL, TEST, and the controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.reports.wording import markdown_table, rate

if TYPE_CHECKING:
    from certify_assets.evaluation.arms_audit import ArmsAudit
    from certify_assets.judges.selection import ArmAudit, Bracket

#: column or word → what it means
MEANINGS = {
    "on CAL": (
        "certified coverage on CAL, every candidate at the level divided by their number: what "
        "the choice compares"
    ),
    "alone": (
        "the same as if there were no other candidate: the paper's number, no promise after a "
        "choice"
    ),
    "on TEST": "share of TEST that CAL's threshold decides: what is deployed",
    "TEST's own": "what TEST's own scores would certify: no threshold that is deployed",
    "error": "realised error among what is decided on TEST",
    "start": (
        "the judge that every arm was trained from; it is kept unless an arm certifies more on CAL"
    ),
    "control": (
        "weighted cross-entropy on the same rows, steps and optimizer; never deployed, so it "
        "costs no confidence"
    ),
    "oracle": (
        "the largest coverage on TEST, known only from TEST's outcomes: reported, never deployed"
    ),
    "worst": "the least coverage on TEST",
}
_NOISE = (
    "Differences of a few points on one TEST split are within what chance gives; no test of them "
    "was made."
)


@dataclass(frozen=True)
class ArmRow:
    """One candidate or control at one side and budget, as text."""

    name: str
    roles: str
    cal_auroc: str
    cal: str
    alone: str
    test_auroc: str
    test: str
    own: str
    error: str
    verdict: str


@dataclass(frozen=True)
class ArmCell:
    """The choice at one side and budget."""

    side: str
    alpha: float
    rows: tuple[ArmRow, ...]
    sentence: str
    gain: str
    regret: str

    @property
    def certified(self) -> bool:
        """Whether any candidate certifies anything on CAL."""
        return any(float(row.cal) > 0 for row in self.rows)


def arm_cells(document: ArmsAudit) -> list[ArmCell]:
    """Return the table of every side and budget of an audit of arms."""
    places = range(len(document["plan"]["cells"]))
    return [_cell(document, place) for place in places]


def improvement(cell: Mapping[str, Any], found: Bracket) -> str:
    """Say whether GRPO is an improvement: only if it beats the start and the control."""
    where = f"{cell['side']} side at α = {cell['alpha']:g}"
    if not any(row["coverage"] > 0 for row in cell["candidates"]):
        return (
            f"On the {where} no candidate certifies anything on CAL, so nothing is decided on TEST."
        )
    chosen, start, control = found["chosen"], found["baseline"], found["control"]
    numbers = (
        f"{chosen['name']} decides {rate(chosen['coverage'])} of TEST, the start "
        f"{rate(start['coverage'])}"
    )
    if control is not None:
        numbers += f", the control that CAL prefers ({control['name']}) {rate(control['coverage'])}"
    if chosen["name"] == start["name"]:
        return f"On the {where} the start was kept: GRPO is no improvement here. {numbers}."
    if not found["beats_baseline"]:
        return (
            f"On the {where} GRPO does not beat the judge it starts from, so it is no "
            f"improvement. {numbers}."
        )
    if found["beats_control"] is False:
        return (
            f"On the {where} GRPO does not beat the weighted cross-entropy, so it does not count "
            f"as an improvement. {numbers}."
        )
    other = (
        " and the weighted cross-entropy" if found["beats_control"] else "; no control was trained"
    )
    return f"On the {where} GRPO covers more than the start{other}. {numbers}. {_NOISE}"


def arms_markdown(document: ArmsAudit) -> str:
    """Return the bracket on TEST as a Markdown table, one row a side and budget."""
    rows = [
        (
            cell["side"],
            f"{cell['alpha']:g}",
            *(
                _named(arm)
                for arm in (
                    found["chosen"],
                    found["baseline"],
                    found["control"],
                    found["worst"],
                    found["oracle"],
                )
            ),
            f"{found['gain']:+.3f}",
            f"{found['regret']:.3f}",
        )
        for cell, found in zip(document["plan"]["cells"], document["brackets"], strict=True)
    ]
    columns = ("side", "α", "chosen", "start", "control", "worst", "oracle", "gain", "regret")
    return "\n".join(markdown_table(columns, rows))


def candidates_markdown(document: ArmsAudit) -> str:
    """Return every candidate and control as Markdown tables."""
    columns = (
        *("candidate", "AUROC on CAL", "on CAL", "alone"),
        *("AUROC on TEST", "on TEST", "TEST's own", "error", "audit"),
    )
    parts = []
    for cell in arm_cells(document):
        rows = [
            (f"{row.name} ({row.roles})" if row.roles else row.name, *astuple(row)[2:])
            for row in cell.rows
        ]
        table = markdown_table(columns, rows)
        parts.append(
            "\n".join([f"**{cell.side}, α = {cell.alpha:g}**", "", *table, "", cell.sentence])
        )
    return "\n\n".join(parts)


def arms_metrics(document: ArmsAudit) -> dict[str, float]:
    """Return gain over the start and regret against the oracle, as numbers with a name."""
    found: dict[str, float] = {}
    for cell, seen in zip(document["plan"]["cells"], document["brackets"], strict=True):
        where = f"{cell['side']}_at_{cell['alpha']:g}"
        found |= {f"gain_{where}": float(seen["gain"]), f"regret_{where}": float(seen["regret"])}
    return found


def _cell(document: Mapping[str, Any], place: int) -> ArmCell:
    cell, found = document["plan"]["cells"][place], document["brackets"][place]
    on_cal = {row["name"]: (row["coverage"], row["uncorrected"]) for row in cell["candidates"]}
    on_cal |= {name: (coverage, None) for name, coverage in cell["control_coverage"].items()}
    rows = []
    for name, (coverage, alone) in on_cal.items():
        result = document["results"][name]
        audit = result["audits"][place]
        certified = audit["threshold"] is not None
        rows.append(
            ArmRow(
                name=name,
                roles=", ".join(_roles(name, cell, found)),
                cal_auroc=rate(document["plan"]["auroc"][name]),
                cal=rate(coverage),
                alone=rate(alone),
                test_auroc=rate(result["auroc"]),
                test=rate(audit["coverage"]),
                own=rate(audit["own_coverage"]),
                error=rate(audit["realized_error"]),
                verdict=audit["verdict"] if certified else "nothing certified",
            )
        )
    return ArmCell(
        cell["side"],
        cell["alpha"],
        tuple(rows),
        improvement(cell, found),
        f"{found['gain']:+.3f}",
        f"{found['regret']:.3f}",
    )


def _roles(name: str, cell: Mapping[str, Any], found: Bracket) -> Sequence[str]:
    if name in cell["controls"]:
        return ["control, best on CAL" if name == cell["control"] else "control"]
    roles = ["chosen"] if name == cell["chosen"] else []
    if name == cell["cal_pick"] != cell["chosen"]:
        roles.append("best on CAL here")
    # where all are alike there is neither a best nor a worst
    if found["oracle"]["coverage"] > found["worst"]["coverage"]:
        roles += [role for role in ("oracle", "worst") if name == found[role]["name"]]
    return roles


def _named(arm: ArmAudit | None) -> str:
    return rate(None) if arm is None else f"{arm['name']} {rate(arm['coverage'])}"
