"""The history of a corpus in operation as a page and as the verdict of its asset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certify_assets._version import __version__
from certify_assets.operations.history import history_key
from certify_assets.reports.history_figure import coverage_history, error_history, spending_history
from certify_assets.reports.templating import environment
from certify_assets.reports.wording import DASH, compact, count, counted, percent

if TYPE_CHECKING:
    from certify_assets.storage.store import Store

COLUMNS = (
    "certificates",
    "made",
    "deployed",
    "side",
    "budget",
    "δ",
    "certified",
    "realised error",
    "interval",
    "tasks",
    "alarm",
)
_INLINE = 1000
_SHOWN = 6


def render_history(document: Mapping[str, Any]) -> str:
    """Render the page; the same text for the same document.

    Parameters
    ----------
    document : mapping
        Of :func:`certify_assets.operations.history.operation_history`.
    """
    state, heading, reason = _verdict(document)
    steps = document["steps"]
    panels = [
        {
            "heading": "Certified coverage",
            "markup": coverage_history(steps),
            "caption": "Share of the runs that each set of certificates lets the judge decide: circles reject, squares release; filled where it was deployed.",
        },
        {
            "heading": "Realised error",
            "markup": error_history(steps),
            "caption": "Error of what each set decided, over labelled tasks of the draw, with its confidence sequence (band); dashed the budget; a cross "
            "where the monitor raised an alarm.",
        },
        {
            "heading": "Confidence spent",
            "markup": spending_history(
                document["claims"], first=document["first_delta"], promised=document["promised"]
            ),
            "caption": "δ of the first certificate and of each recertification, added up, a side and budget; dashed the most that was declared.",
        },
    ]
    return (
        environment()
        .get_template("history.html")
        .render(
            version=__version__,
            title=document["corpus"],
            state=state,
            heading=heading,
            reason=reason,
            facts=[
                ("sets of certificates", count(len(steps))),
                ("recertifications begun", count(len(document["claims"]))),
                ("alarms", count(len(document["alarms"]))),
                ("δ spent by them", compact(document["spent"])),
            ],
            panels=panels,
            columns=COLUMNS,
            rows=history_rows(document),
            alarms=[
                f"{item['time'][:19]}: {item['judge']}, {item['side']} at {percent(item['alpha'])}, after {counted(item['at'], 'labelled task')}"
                for item in document["alarms"]
            ],
            joint=document["joint"],
            schedule=document["schedule"]
            or "No schedule is declared yet: the first recertification declares one.",
        )
    )


def history_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the cells of the table of certificates, under `COLUMNS`."""
    return [row for step in document["steps"] for row in _rows(step)]


def write_history_page(store: Store, document: Mapping[str, Any]) -> str:
    """Draw a history; return where the page is."""
    key = history_key(str(document["corpus"]), "history.html")
    store.write_bytes(key, render_history(document).encode("utf-8"))
    return store.locate(key)


def history_markdown(document: Mapping[str, Any]) -> str:
    """Write the verdict block of the asset: fewer than 1,000 characters of Markdown, without any text of the data."""
    _, heading, _ = _verdict(document)
    lines = [f"**{heading}**", "", "|set|side|α|certified|error|tasks|", "|-|-|-|-|-|-|"]
    cells = [_short(step, side) for step in document["steps"] for side in step["sides"]]
    lines += ["|" + "|".join(row) + "|" for row in cells[-_SHOWN:]]
    block = "\n".join(lines) + "\n"
    if len(block) >= _INLINE:
        raise RuntimeError(
            f"the verdict block has {len(block)} characters; it must stay under {_INLINE} to be shown inline"
        )
    return block


def history_metrics(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of the last set as numbers with a name."""
    metrics = {
        "delta_spent": float(document["spent"]),
        "delta_promised": float(document["promised"]),
        "alarms": float(len(document["alarms"])),
    }
    for side in document["steps"][-1]["sides"] if document["steps"] else []:
        metrics[f"coverage_{side['side']}"] = float(side["coverage"])
        if side["error"] is not None:
            metrics[f"error_{side['side']}"] = float(side["error"])
    return metrics


def _short(step: Mapping[str, Any], side: Mapping[str, Any]) -> list[str]:
    shares = [percent(side["coverage"]), percent(side["error"])]
    return [
        f"R{step['number']}" if step["number"] else "first",
        side["side"],
        f"{side['alpha']:g}",
        *shares,
        count(side["tasks"]),
    ]


def _verdict(document: Mapping[str, Any]) -> tuple[str, str, str]:
    steps = document["steps"]
    if not steps:
        return "nothing", "Nothing is in operation yet", "No judge was deployed on this corpus."
    deployed = [step for step in steps if step["deployed"]]
    last = max(deployed, key=lambda step: max(step["deployed"])) if deployed else None
    if last is None:
        return "nothing", "Recertified, and never deployed", "Its certificates decide nothing."
    told = f"{last['label']}, deployment {max(last['deployed'])}, made {last['time'][:10]}."
    if any(side["alarm"] for side in last["sides"]):
        return (
            "failed",
            "The certificates in use raised an alarm",
            f"{told} Nothing is decided until new ones are deployed.",
        )
    return "certified", "The certificates in use raised no alarm", told


def _rows(step: Mapping[str, Any]) -> list[list[str]]:
    deployed = ", ".join(map(str, step["deployed"])) or "never"
    about = [step["label"], step["time"][:10], deployed]
    if not step["sides"]:
        return [[*about, "nothing certified", *[DASH] * (len(COLUMNS) - 4)]]
    return [[*about, *_cells(side)] for side in step["sides"]]


def _cells(side: Mapping[str, Any]) -> list[str]:
    low, high = side["interval"]
    alarm = f"after {counted(side['alarm']['at'], 'task')}" if side["alarm"] else "none"
    figures = (
        [percent(side["error"]), f"{percent(low)} to {percent(high)}"]
        if side["tasks"]
        else [DASH, DASH]
    )
    return [
        side["side"],
        percent(side["alpha"]),
        compact(side["delta"]),
        percent(side["coverage"]),
        *figures,
        count(side["tasks"]),
        alarm,
    ]
