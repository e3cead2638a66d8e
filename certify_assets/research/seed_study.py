"""The seed study: a corpus split again and again, and how often each certificate held on TEST."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from certify_assets.certificates import audit_certificate, certify
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.splits import plan_splits
from certify_assets.errors import InputError
from certify_assets.evaluation.ledger import announce_study, record_result
from certify_assets.files import canonical_json, sha256_bytes
from certify_assets.judges.base import judge_auroc, score_table
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.record import columns, renderer
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, SIDES
from certify_assets.storage.journal import kept_lines
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.config import CorpusConfig
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
    """What is run, fixed before any TEST is read."""

    seeds: tuple[int, ...] = tuple(range(42, 62))
    # an empty one is the corpus's own
    profile: str = ""
    procedures: tuple[str, ...] = REAL_PROCEDURES
    alphas: tuple[float, ...] = ALPHAS
    delta: float = DELTA
    grid: int = GRID
    sides: tuple[str, ...] = SIDES
    judge: str = "lexical"

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise InputError(f"the seeds are {list(self.seeds)}; give at least one, each once.")


@dataclass(frozen=True, kw_only=True)
class SeedCell:
    """A certificate of one seed and its audit; ``auroc`` is the judge's on TEST."""

    seed: int
    side: str
    alpha: float
    procedure: str
    certified: bool = False
    coverage: float = 0.0
    error: float | None = None
    test_coverage: float = 0.0
    verdict: str = "NONE"
    auroc: float | None = None


@dataclass(frozen=True, kw_only=True)
class SeedFrequency:
    """How often a procedure certified over the seeds, and how often that was valid on TEST."""

    side: str
    alpha: float
    procedure: str
    seeds: int
    certified: int
    coverage: float
    coverage_sd: float | None
    valid: int
    beyond_chance: int
    error: float | None


@dataclass(frozen=True, kw_only=True)
class SeedStudy:
    """The stored study of a corpus."""

    corpus: str
    plan: SeedPlan
    # a seed each, on TEST; None where that has one outcome
    aurocs: tuple[float | None, ...]
    # seeds whose SFT split has one outcome, of which no judge can learn
    untrained: tuple[int, ...]
    cells: tuple[SeedCell, ...]
    frequencies: tuple[SeedFrequency, ...]

    @classmethod
    def from_dict(cls, document: object) -> SeedStudy:
        """Read a stored study."""
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_python(document)


def run_seeds(
    corpus: Corpus,
    plan: SeedPlan | None = None,
    *,
    run_id: str = "cli",
    say: Callable[[str], None] = lambda _: None,
) -> SeedStudy:
    """Split, train the lexical judge, certify and audit once a seed; a killed study resumes."""
    plan = plan or SeedPlan()
    frame, config = corpus.trajectories, corpus.config
    corpus.require_leak_checks()
    frame = frame[frame["outcome"].notna()].reset_index(drop=True)
    entry = announce_study(corpus, reader="seed study", plan={"seeds": asdict(plan)}, run_id=run_id)
    journal = f"seeds/{corpus}.partial.jsonl"
    made = _finished(corpus.store, journal, entry.configuration)
    texts = list(render_frame(frame, renderer()))
    for number, seed in enumerate(plan.seeds, 1):
        if seed not in made:
            shares = replace(config, profile=plan.profile or config.profile, seed=seed)
            made[seed] = _one_seed(frame, texts, shares, plan)
            cells = [asdict(cell) for cell in made[seed]]
            text = json.dumps(
                {"plan": entry.configuration, "seed": seed, "cells": cells}, allow_nan=False
            )
            corpus.store.append_line(journal, lambda _, text=text: text)  # type: ignore[misc]
        say(f"{corpus}: seed {seed}, {number} of {len(plan.seeds)}")
    found = tuple(cell for seed in plan.seeds for cell in made[seed])
    study = SeedStudy(
        corpus=corpus.name,
        plan=plan,
        aurocs=tuple(made[seed][0].auroc for seed in plan.seeds),
        untrained=tuple(
            seed for seed in plan.seeds if all(cell.verdict == "NONE" for cell in made[seed])
        ),
        cells=found,
        frequencies=frequencies(found),
    )
    document = asdict(study)
    corpus.store.write_json(f"seeds/{corpus}.json", document)
    record_result(corpus.store, entry, sha256_bytes(canonical_json(document)))
    corpus.store.delete(journal)
    return study


def frequencies(cells: Sequence[SeedCell]) -> tuple[SeedFrequency, ...]:
    """Count by side, budget and procedure how often it certified and was valid on TEST."""
    groups: dict[tuple[str, float, str], list[SeedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.side, cell.alpha, cell.procedure), []).append(cell)
    return tuple(_frequency(group) for group in groups.values())


def _frequency(cells: Sequence[SeedCell]) -> SeedFrequency:
    first, covered = cells[0], [cell.coverage for cell in cells]
    # a threshold that covers nothing on TEST has made no error there
    errors = [cell.error or 0.0 for cell in cells if cell.certified]
    return SeedFrequency(
        side=first.side,
        alpha=first.alpha,
        procedure=first.procedure,
        seeds=len(cells),
        certified=len(errors),
        coverage=statistics.fmean(covered),
        coverage_sd=statistics.stdev(covered) if len(covered) > 1 else None,
        valid=sum(error <= first.alpha for error in errors),
        beyond_chance=sum(cell.certified and cell.verdict == "ERROR" for cell in cells),
        error=statistics.fmean(errors) if errors else None,
    )


def _finished(store: Store, journal: str, plan: str) -> dict[int, list[SeedCell]]:
    """Return the seeds that a killed study of the same plan has done."""
    return {
        int(entry["seed"]): [SeedCell(**{"seed": entry["seed"], **cell}) for cell in entry["cells"]]
        for entry in kept_lines(store.read_bytes(journal) if store.exists(journal) else b"")
        if isinstance(entry, dict) and entry.get("plan") == plan
    }


def _one_seed(
    frame: pd.DataFrame, texts: list[Rendered], config: CorpusConfig, plan: SeedPlan
) -> list[SeedCell]:
    import numpy as np

    manifest = plan_splits(config, frame["task_id"].unique())
    split = frame["task_id"].map(manifest.assignment).to_numpy()
    rows = {name: np.flatnonzero(split == name) for name in ("sft", "rl", "cal", "test")}
    trained = [texts[place].text for place in rows["sft"]]
    outcomes = frame["outcome"].iloc[rows["sft"]].to_numpy(np.int8)
    if len(np.unique(outcomes)) < 2:
        return [
            SeedCell(seed=config.seed, side=side, alpha=alpha, procedure=name)
            for alpha, side, name in product(plan.alphas, plan.sides, plan.procedures)
        ]
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
    return list(_cells(tables, plan, config.seed, judge_auroc(tables["test"])))


def _cells(
    tables: dict[str, pd.DataFrame], plan: SeedPlan, seed: int, area: float | None
) -> Iterator[SeedCell]:
    pilot = columns(tables["rl"]) if "rl" in tables else None
    for alpha, side, name in product(plan.alphas, plan.sides, plan.procedures):
        if name == "betting" and pilot is None:
            continue
        certificate = certify(
            *columns(tables["cal"]),
            alpha=alpha,
            delta=plan.delta,
            side=side,
            grid=plan.grid,
            procedure=name,
            pilot=pilot if name == "betting" else None,
        )
        audit = audit_certificate(certificate, *columns(tables["test"]))
        yield SeedCell(
            seed=seed,
            side=side,
            alpha=alpha,
            procedure=name,
            certified=certificate.certified,
            coverage=certificate.coverage,
            error=audit.realized_error,
            test_coverage=audit.coverage,
            verdict=audit.verdict,
            auroc=area,
        )
