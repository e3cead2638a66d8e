"""The plan, the draw and the labels of one batch, on the files that ``certify batch`` takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from certify_assets.certificates import (
    EVERY_PROCEDURE,
    Batch,
    BatchPlan,
    Certificate,
    History,
    plan_batch,
)
from certify_assets.certificates.batch import SCHEMA
from certify_assets.certificates.batch_sides import SCHEMA as SIDES_SCHEMA
from certify_assets.certificates.batch_sides import SidesDraw, SidesPlan, plan_sides, side_of
from certify_assets.certificates.certificate import check_range
from certify_assets.certificates.inputs import ScoreRange
from certify_assets.cli.documents import Choice, load_certificates
from certify_assets.cli.reading import labelled, read_scores, remedies, say_read_as
from certify_assets.errors import InputError
from certify_assets.files import (
    canonical_json,
    read_json,
    sha256_bytes,
    sha256_file,
    write_json_atomic,
)
from certify_assets.names import shared_names
from certify_assets.tables.reading import read_table
from certify_assets.tables.score_reading import IssuedReading, ReadingOptions, ScoreReading
from certify_assets.tables.score_table import ScoreTable, read_labels

COLUMNS: Final = ("order", "trajectory_id", "task_id", "seed", "batch_sha256", "level")
BOTH: Final = "both"
_DRAWS: Final = "certify_assets/draws/1"


@dataclass(frozen=True)
class BatchOptions:
    """Options that plan, draw and close share."""

    split: str | None
    history: Path | None
    threshold: float | None
    side: str | None
    alpha: float | None
    delta: float | None
    reading: ReadingOptions

    @property
    def one_side(self) -> str | None:
        """The side asked for, None where both are."""
        return None if self.side == BOTH else self.side

    @property
    def named(self) -> list[str]:
        """Options that a plan has fixed already."""
        names = ("history", "threshold", "side", "alpha", "delta")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


@dataclass(frozen=True)
class Planned:
    """What is certified of a batch: one side, or both together."""

    sides: SidesPlan
    both: bool
    # how the scores of the batch are read, and those of the certificate
    reading: ScoreReading = field(default_factory=ScoreReading)
    scores: ScoreRange | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan file."""
        both = {"schema": SIDES_SCHEMA, **self.sides.to_dict()}
        plan = both if self.both else self.sides.plans[0].to_dict()
        about = {"score_range": self.scores, "scores": self.reading.provenance()}
        return plan | {name: value for name, value in about.items() if value}

    def issued(self, path: Path) -> IssuedReading:
        """Return how the scores of a table of this plan are read."""
        return IssuedReading(str(path), self.reading, self.scores)


@dataclass(frozen=True)
class Drawn:
    """The draw of a batch, of one side or of both together."""

    sides: SidesDraw
    both: bool
    # how its labels are read
    reading: ReadingOptions

    @property
    def rows(self) -> list[tuple[int | str, ...]]:
        """Rows of the draw file: a run in the terms of its side, the sides in turns."""
        places = {
            name: (draw, place)
            for draw, names in zip(self.sides.sides, self.sides.orders, strict=True)
            for name, place in zip(names, draw.order.tolist(), strict=True)
        }
        found: list[tuple[int | str, ...]] = []
        for number, name in enumerate(self.sides.order, 1):
            draw, place = places[name]
            task, level = draw.batch.tasks[place], int(draw.levels[place])
            found.append((number, name, task, draw.seed, draw.batch_sha256, level))
        return found


def plan_of(certificate: Path, scores: Path, asked: BatchOptions) -> tuple[Planned, Batch]:
    """Return the plan of a batch, which CERTIFICATE may hold already, and the batch."""
    try:
        document = read_json(certificate) if certificate.is_file() else None
    except InputError:
        # which names a table as one
        load_certificates(certificate)
        raise
    if isinstance(document, dict) and (known := _read_plan(document)) is not None:
        asked = replace(asked, reading=asked.reading.under(known.issued(certificate)))
        frozen = _batch(scores, asked)
        if asked.named:
            raise InputError(
                f"{certificate} is a plan, which fixes {', '.join(asked.named)} already; leave "
                "these options out."
            )
        return known, frozen
    issued = load_certificates(certificate, Choice(asked.one_side))
    asked = replace(asked, reading=asked.reading.as_issued(certificate, issued))
    frozen = _batch(scores, asked)
    made = _planned(certificate, scores, frozen, asked, {item.side for item in issued})
    reading = ScoreReading.of_provenance(issued[0].provenance)
    return replace(made, reading=reading, scores=issued[0].inputs.get("scores")), frozen


def _planned(
    certificate: Path, scores: Path, frozen: Batch, asked: BatchOptions, held: set[str]
) -> Planned:
    if asked.side == BOTH or len(held) > 1:
        if asked.threshold is not None:
            raise InputError("--threshold is of one side; leave it out, or name the side.")
        items = {side: _one(certificate, replace(asked, side=side)) for side in sorted(held)}
        if asked.history is not None:
            return Planned(_plan_both(items, scores, frozen, asked), both=True)
        certified = [side for side, item in items.items() if item.certified]
        if len(certified) > 1:
            return Planned(_plan_certified(items, frozen, asked), both=True)
        if asked.side == BOTH:
            raise InputError(
                f"{certificate} does not certify both sides; give --history with labelled past "
                "runs, or name the side."
            )
        # what is not certified has no threshold to draw for
        asked = replace(asked, side=(certified or sorted(held))[0])
    return Planned(SidesPlan((_plan_one(certificate, frozen, asked),)), both=False)


def _read_plan(document: Mapping[str, Any]) -> Planned | None:
    if document.get("schema") not in (SCHEMA, SIDES_SCHEMA):
        return None
    said = document.get("scores", {})
    if not isinstance(said, dict) or not all(isinstance(words, str) for words in said.values()):
        raise InputError(
            "scores of the plan is no object of text; give the file as it was written."
        )
    if (scores := document.get("score_range")) is not None:
        check_range(scores)
    names = document.keys() - {"scores", "score_range"}
    rest = {name: document[name] for name in names}
    both = document["schema"] != SCHEMA
    sides = SidesPlan.from_dict(rest) if both else SidesPlan((BatchPlan.from_dict(rest),))
    return Planned(sides, both, ScoreReading.of_provenance(said), scores)


def _plan_one(certificate: Path, frozen: Batch, asked: BatchOptions) -> BatchPlan:
    item = _one(certificate, asked)
    history = None if asked.history is None else _history(asked.history, asked)
    threshold = asked.threshold
    if threshold is None and history is None:
        threshold = item.threshold
    return plan_batch(
        frozen,
        side=item.side,
        alpha=asked.alpha or item.alpha,
        delta=asked.delta or item.delta,
        threshold=threshold,
        predicted_error=item.selective_error if item.certified else None,
        history=history,
        certificate_sha256=item.sha256,
    )


def _plan_certified(
    items: Mapping[str, Certificate], frozen: Batch, asked: BatchOptions
) -> SidesPlan:
    """Plan the certified threshold of each side at half of δ; regions that meet are parted."""
    limits = {side: item.threshold for side, item in items.items()}
    low, high = limits["release"], limits["reject"]
    assert low is not None and high is not None
    cut = high
    if low <= high:
        cut = (low + high) / 2
        limits = {"reject": cut, "release": float(np.nextafter(cut, np.inf))}
    delta = asked.delta or min(item.delta for item in items.values())
    return SidesPlan(
        tuple(
            plan_batch(
                side_of(frozen, side, cut),
                side=side,
                alpha=asked.alpha or items[side].alpha,
                delta=delta / len(items),
                threshold=limits[side],
                predicted_error=items[side].selective_error,
                certificate_sha256=items[side].sha256,
            )
            for side in ("reject", "release")
        ),
        cut,
    )


def _plan_both(
    items: Mapping[str, Certificate], scores: Path, frozen: Batch, asked: BatchOptions
) -> SidesPlan:
    """Plan both sides; one that has no certificate takes the budget of the other."""
    assert asked.history is not None
    other = next(iter(items.values()))
    alphas = {side: asked.alpha or items.get(side, other).alpha for side in ("reject", "release")}
    delta = asked.delta or min(item.delta for item in items.values())
    history = _history(asked.history, asked)
    plan = plan_sides(frozen, alphas=alphas, delta=delta, history=history)
    if not plan.plans:
        raise InputError(f"Labels are expected to save nothing of {scores} on either side.")
    named = [
        replace(item, certificate_sha256=items.get(item.side, other).sha256) for item in plan.plans
    ]
    return replace(plan, plans=tuple(named))


def _one(certificate: Path, asked: BatchOptions) -> Certificate:
    """Return the certificate of the side, at the budget where the document has one of it.

    Of several procedures, as in a document of the platform, the deciding one counts.
    """
    found = load_certificates(certificate, Choice(asked.side))
    for chosen in (
        [item for item in found if item.alpha == asked.alpha],
        [min(found, key=lambda item: EVERY_PROCEDURE.index(item.procedure))],
    ):
        found = [item for item in found if item in chosen] or found
    if len(found) > 1:
        held = ", ".join(f"{item.procedure} {item.side} at {item.alpha:g}" for item in found)
        raise InputError(f"{certificate} holds {held}; choose one by --side and --alpha.")
    return found[0]


def draw_of(certificate: Path, scores: Path, seed: int, asked: BatchOptions) -> Drawn:
    """Return the draw that a seed makes of a batch."""
    plan, frozen = plan_of(certificate, scores, asked)
    reading = asked.reading.under(plan.issued(certificate))
    return Drawn(SidesDraw(plan.sides, frozen, seed), plan.both, reading)


def read_draw(
    certificate: Path, scores: Path, drawn: Path, asked: BatchOptions
) -> tuple[Drawn, set[str]]:
    """Compute the draw of a file again, and return it with the runs of the file.

    A file that is not the draw is refused.
    """
    table = read_table(drawn, set(COLUMNS))
    if set(COLUMNS) - table.columns.keys():
        raise InputError(
            f"{drawn} has the columns {table.listed}; give the file as `certify batch draw` wrote "
            f"it, with {', '.join(COLUMNS)}."
        )
    written = list(zip(*(map(str, table.values(name)) for name in COLUMNS), strict=True))
    seeds = {row[3] for row in written}
    # longer than any seed that `draw` takes: a number of thousands of digits is no number
    if len(seeds) != 1 or not re.fullmatch("[0-9]{1,1000}", seed := next(iter(seeds))):
        raise InputError(f"{drawn} does not name one seed; give it as the draw was written.")
    found = draw_of(certificate, scores, int(seed), asked)
    if not {row[4] for row in written} <= {draw.batch_sha256 for draw in found.sides.sides}:
        raise InputError(
            f"{drawn} is of another batch or plan than {scores} under {certificate}; give the "
            "files that were drawn from, with the same options."
        )
    expected = [tuple(map(str, row)) for row in found.rows]
    for place, row in enumerate(written):
        if place >= len(expected) or row != expected[place]:
            raise InputError(
                f"{drawn}, {table.rows.name(place)} is not what the seed draws: the file was "
                "edited; give it as it was written."
            )
    return found, {row[1] for row in written}


def require_first_draw(scores: Path, found: Drawn, seed: int) -> None:
    """Keep seed and plans of a batch next to its table; refuse another seed, or another plan."""
    batch, trace = found.sides.batch, scores.with_name(f"{scores.name}.draw.json")
    # to six digits: a table that a spreadsheet saved again is no other batch
    digits = [f"{score:.6g}" for score in batch.scores.tolist()]
    runs = sha256_bytes(canonical_json([batch.trajectories, batch.tasks, digits]))
    plans = {draw.plan.side: draw.batch_sha256 for draw in found.sides.sides}
    kept = {path: _draws(path) for path in sorted(scores.parent.glob("*.draw.json"))}
    for path, draws in kept.items():
        before = draws.get(runs, {"seed": seed, "plans": {}})
        other = None if before["seed"] == seed else f"with seed {before['seed']}"
        for side, sha256 in plans.items():
            if other is None and before["plans"].get(side, sha256) != sha256:
                other = f"under another plan ({side})"
        if other is not None:
            raise InputError(
                f"{scores} was drawn {other} at {before['time']}; give that one, since a draw that "
                "is repeated until it suits proves nothing. A second draw needs a share of δ of "
                f"its own: plan it with a smaller --delta, and move {path} away."
            )
    draws = kept.get(trace, {})
    time = datetime.now(UTC).isoformat(timespec="seconds")
    first = draws.get(runs, {"seed": seed, "time": time, "plans": {}})
    if not plans.keys() <= first["plans"].keys():
        draws[runs] = {**first, "plans": {**first["plans"], **plans}}
        write_json_atomic(trace, {"schema": _DRAWS, "draws": draws})


def _draws(path: Path) -> dict[str, Any]:
    """Read the draws that a file keeps, by the hash of what they draw from."""
    document = read_json(path)
    try:
        return {
            str(runs): {**draw, "plans": dict(draw["plans"]), "seed": draw["seed"]}
            for runs, draw in document["draws"].items()
            if document["schema"] == _DRAWS
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} does not keep a draw. Move it away, or restore it.") from None


def _batch(scores: Path, asked: BatchOptions) -> Batch:
    table = read_scores(scores, asked.reading).choose_split(asked.split, required=True)
    if table.trajectories is None:
        raise InputError(
            f"{scores} has no column trajectory_id, by which a draw names the runs. Name the one "
            "that it has with --columns id=NAME."
        )
    return Batch.of(_texts(table.trajectories), _texts(table.tasks), table.scores)


def _texts(values: Sequence[Any] | Any) -> list[str]:
    return [str(value) for value in values]


def _history(path: Path, asked: BatchOptions) -> History:
    table: ScoreTable = labelled(read_scores(path, asked.reading))
    keep = np.isfinite(table.scores)
    if not keep.any():
        raise InputError(f"{path} has no scored row; give labelled runs with scores.")
    return History(
        table.scores[keep],
        table.labels[keep].astype(np.int64),
        _texts(table.tasks[keep]),
        sha256_file(path),
        () if table.agents is None else _texts(table.agents[keep]),
    )


def labels_of(
    path: Path, drawn: Path, allowed: set[str], reading: ReadingOptions
) -> dict[str, int]:
    """Read the outcomes of drawn runs by trajectory_id; an empty one is no label yet."""
    with remedies():
        ids, outcomes, table = read_labels(path, reading)
    say_read_as(path, table.read_as)
    found: dict[str, int] = {}
    for place, (name, outcome) in enumerate(zip(ids.tolist(), outcomes.tolist(), strict=True)):
        if outcome >= 0 and found.setdefault(name, outcome) != outcome:
            raise InputError(
                f"{path}, {table.rows.name(place)} gives {name!r} another outcome than an earlier "
                "row; settle which one holds."
            )
    if strange := sorted(set(found) - allowed):
        if spelled := shared_names(strange, sorted(allowed)):
            raise InputError(
                f"{path} labels {spelled[0][0]!r}, which is {spelled[0][1]!r} in {drawn}. Write it "
                "as in the draw."
            )
        raise InputError(
            f"{path} labels {strange[0]!r}, which {drawn} does not have ({len(strange)} such "
            "labels); label the runs of the draw, in its order."
        )
    return found
