"""One seed is one draw of the tasks: the same corpus split again and again, and how often each
certificate was true on TEST.

The paper reports one seed. Here every seed splits, trains, certifies and audits again; the user's
question, whether a certificate that was issued held on tasks it had not seen, becomes a frequency.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.splits import plan_splits
from certify_assets.errors import InputError
from certify_assets.evaluation.ledger import announce_study, record_result
from certify_assets.files import canonical_json, parse_json, sha256_bytes
from certify_assets.judges.record import columns, renderer
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, SIDES
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.rendering import Rendered


#: the paper's five on real scores, and ours next to them; betting takes its bets from the RL split
REAL_PROCEDURES = (
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "taskboot",
    "guarded_taskboot",
    "korn_graubard",
    "gaffke",
    "betting",
)


@dataclass(frozen=True)
class SeedPlan:
    """What is run, fixed before any TEST is read.

    Parameters
    ----------
    seeds : tuple of int
        Of the splits.
    profile : str
        Split profile; an empty one means the corpus's own.
    procedures : tuple of str
    """

    seeds: tuple[int, ...] = tuple(range(42, 62))
    profile: str = ""
    procedures: tuple[str, ...] = REAL_PROCEDURES

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise InputError(f"the seeds are {list(self.seeds)}; give at least one, each once.")


def run_seeds(
    corpus: Corpus,
    plan: SeedPlan | None = None,
    *,
    run_id: str = "cli",
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Split, train the lexical judge, certify and audit once a seed; store and return the
    document. A killed study resumes.

    Returns
    -------
    dict
        ``cells``, one a seed, side, budget and procedure; ``frequencies`` over seeds; ``aurocs`` on
        TEST, None where they are undefined; ``untrained``, the seeds whose SFT split has one
        outcome, of which no judge can learn.
    """
    plan = plan or SeedPlan()
    frame, config = corpus.trajectories, corpus.config
    corpus.require_leak_checks()
    frame = frame[frame["outcome"].notna()].reset_index(drop=True)
    fixed = {
        **{
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(plan).items()
        },
        "alphas": list(ALPHAS),
        "delta": DELTA,
        "grid": GRID,
        "sides": list(SIDES),
        "judge": "lexical",
    }
    entry = announce_study(corpus, reader="seed study", plan={"seeds": fixed}, run_id=run_id)
    journal = f"seeds/{corpus}.partial.jsonl"
    made = _finished(corpus.store, journal, entry.configuration)
    texts = _texts(frame)
    for number, seed in enumerate(plan.seeds, 1):
        if seed not in made:
            shares = replace(config, profile=plan.profile or config.profile, seed=seed)
            made[seed] = _one_seed(frame, texts, shares, plan)
            line = {"plan": entry.configuration, "seed": seed, "cells": made[seed]}
            text = json.dumps(line, allow_nan=False)
            corpus.store.append_line(journal, lambda _, text=text: text)  # type: ignore[misc]
        say(f"{corpus}: seed {seed}, {number} of {len(plan.seeds)}")
    cells = [{"seed": seed, **cell} for seed in plan.seeds for cell in made[seed]]
    document = {
        "corpus": corpus.name,
        "plan": fixed,
        "aurocs": [next(cell["auroc"] for cell in made[seed]) for seed in plan.seeds],
        "untrained": [
            seed for seed in plan.seeds if all(cell["verdict"] == "NONE" for cell in made[seed])
        ],
        "cells": cells,
        "frequencies": frequencies(cells),
    }
    corpus.store.write_json(f"seeds/{corpus}.json", document)
    record_result(corpus.store, entry, sha256_bytes(canonical_json(document)))
    corpus.store.delete(journal)
    return document


def frequencies(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say by side, budget and procedure how often it certified and was valid on TEST."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault((cell["side"], cell["alpha"], cell["procedure"]), []).append(cell)
    return [
        {"side": side, "alpha": alpha, "procedure": name, **_frequency(rows, alpha)}
        for (side, alpha, name), rows in groups.items()
    ]


def _frequency(rows: Sequence[dict[str, Any]], alpha: float) -> dict[str, Any]:
    covered = [row["coverage"] for row in rows]
    # a threshold that covers nothing on TEST has made no error there
    errors = [row["error"] or 0.0 for row in rows if row["certified"]]
    return {
        "seeds": len(rows),
        "certified": len(errors),
        "coverage": statistics.fmean(covered),
        "coverage_sd": statistics.stdev(covered) if len(covered) > 1 else None,
        "valid": sum(error <= alpha for error in errors),
        "beyond_chance": sum(row["verdict"] == "ERROR" for row in rows if row["certified"]),
        "error": statistics.fmean(errors) if errors else None,
    }


def _texts(frame: pd.DataFrame) -> list[Rendered]:
    from certify_assets.corpora.rendering import render_frame

    return list(render_frame(frame, renderer()))


def _finished(store: Store, journal: str, plan: str) -> dict[int, list[dict[str, Any]]]:
    """Seeds that a killed study of the same plan has done; a torn line is passed over."""
    found = {}
    for line in (
        store.read_bytes(journal).decode("utf-8", "replace").splitlines()
        if store.exists(journal)
        else []
    ):
        try:
            entry = parse_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("plan") == plan:
            found[int(entry["seed"])] = list(entry["cells"])
    return found


def _one_seed(
    frame: pd.DataFrame, texts: list[Rendered], config: Any, plan: SeedPlan
) -> list[dict[str, Any]]:
    import numpy as np

    from certify_assets.certificates.auroc import auroc
    from certify_assets.judges.base import score_table
    from certify_assets.judges.lexical import LexicalJudge

    manifest = plan_splits(config, frame["task_id"].unique())
    split = frame["task_id"].map(manifest.assignment).to_numpy()
    rows = {name: np.flatnonzero(split == name) for name in ("sft", "rl", "cal", "test")}
    trained = [texts[place].text for place in rows["sft"]]
    outcomes = frame["outcome"].iloc[rows["sft"]].to_numpy(np.int8)
    if len(np.unique(outcomes)) < 2:
        return [{**cell, "auroc": None} for cell in _nothing(plan)]
    judge = LexicalJudge.train(
        trained, outcomes, seed=config.seed, renderer_sha256=renderer().sha256
    )
    tables = {
        name: score_table(
            judge,
            frame.iloc[rows[name]],
            renderer(),
            rendered=[texts[place] for place in rows[name]],
        )
        for name in ("rl", "cal", "test")
        if len(rows[name])
    }
    quality = auroc(*columns(tables["test"])[:2])
    return [
        {**cell, "auroc": quality if np.isfinite(quality) else None}
        for cell in _cells(tables, plan)
    ]


def _nothing(plan: SeedPlan) -> Iterator[dict[str, Any]]:
    """Cells of a seed whose SFT split has one outcome: nothing is certified."""
    unknown = {
        "certified": False,
        "coverage": 0.0,
        "error": None,
        "test_coverage": 0.0,
        "verdict": "NONE",
    }
    for alpha in ALPHAS:
        for side in SIDES:
            yield from (
                {"side": side, "alpha": alpha, "procedure": name, **unknown}
                for name in plan.procedures
            )


def _cells(tables: dict[str, pd.DataFrame], plan: SeedPlan) -> Iterator[dict[str, Any]]:
    from certify_assets.certificates import audit_certificate, certify

    pilot = columns(tables["rl"]) if "rl" in tables else None
    for alpha in ALPHAS:
        for side in SIDES:
            for name in plan.procedures:
                if name == "betting" and pilot is None:
                    continue
                certificate = certify(
                    *columns(tables["cal"]),
                    alpha=alpha,
                    delta=DELTA,
                    side=side,
                    grid=GRID,
                    procedure=name,
                    pilot=pilot if name == "betting" else None,
                )
                audit = audit_certificate(certificate, *columns(tables["test"]))
                yield {
                    "side": side,
                    "alpha": alpha,
                    "procedure": name,
                    "certified": certificate.certified,
                    "coverage": certificate.coverage,
                    "error": audit.realized_error,
                    "test_coverage": audit.coverage,
                    "verdict": audit.verdict,
                }
