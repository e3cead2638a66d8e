"""The seed study: a corpus split again and again, and how often each certificate held on TEST.

Every certificate is of RL's and CAL's labels, as that of a judge trained on SFT alone, and again of
CAL's, where RL is the pilot of betting. The pool of `pseudo_task` is every task that does not
certify, SFT scored out of fold; no outcome of it is read.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from certify_assets.certificates import Settings, evaluate, measure_threshold, observe
from certify_assets.certificates.pool import as_pool
from certify_assets.corpora import CERTIFYING
from certify_assets.corpora.corpus import Corpus
from certify_assets.corpora.rendering import render_frame
from certify_assets.corpora.splits import SPLITS, plan_splits
from certify_assets.errors import InputError
from certify_assets.evaluation.ledger import announce_study, record_result
from certify_assets.evaluation.pool import takes_pool
from certify_assets.files import canonical_json, sha256_bytes, significant
from certify_assets.judges.base import judge_auroc, score_table
from certify_assets.judges.lexical import LexicalJudge
from certify_assets.judges.reading import LEXICAL
from certify_assets.judges.record import columns
from certify_assets.judges.specs import ALPHAS, DELTA, GRID, SIDES
from certify_assets.judges.task_folds import deal_tasks
from certify_assets.storage.journal import kept_lines
from certify_assets.storage.store import Store

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from certify_assets.certificates import Evaluation, Observations
    from certify_assets.certificates.pool import Pool
    from certify_assets.corpora.rendering import Rendered
    from certify_assets.corpora.splits import SplitManifest


#: the paper's five on real scores, and ours next to them; betting takes its bets from the RL split
REAL_PROCEDURES = (
    "pseudo_task",
    "naive",
    "deff",
    "one_per_task",
    "task_hoeffding",
    "taskboot",
    "guarded_taskboot",
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
    # splits whose labels certify
    calibrations: tuple[tuple[str, ...], ...] = (CERTIFYING, ("cal",))
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
    # the splits whose labels certify, as in a certificate
    rows: str = "cal"
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
    rows: str = "cal"
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

    @property
    def deciding(self) -> tuple[SeedFrequency, ...]:
        """Of the first procedure and rows of the plan, on which a deployment would decide."""
        mine = {(item.procedure, item.rows) for item in self.frequencies[:1]}
        return tuple(item for item in self.frequencies if (item.procedure, item.rows) in mine)

    @classmethod
    def from_dict(cls, document: object) -> SeedStudy:
        """Read a stored study."""
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_python(document)


def seeds_key(corpus: str) -> str:
    """Return where the study of a corpus is stored."""
    return f"seeds/{corpus}.json"


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
    texts = list(render_frame(frame, LEXICAL.renderer))
    for number, seed in enumerate(plan.seeds, 1):
        if seed not in made:
            shares = replace(config, profile=plan.profile or config.profile, seed=seed)
            manifest = plan_splits(shares, frame["task_id"].unique())
            made[seed] = certify_splits(frame, texts, manifest, plan)
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
    corpus.store.write_json(seeds_key(corpus.name), document)
    record_result(corpus.store, entry, sha256_bytes(canonical_json(document)))
    corpus.store.delete(journal)
    return study


def frequencies(cells: Sequence[SeedCell]) -> tuple[SeedFrequency, ...]:
    """Count by side, budget, procedure and rows how often it certified and was valid on TEST."""
    groups: dict[tuple[str, float, str, str], list[SeedCell]] = {}
    for cell in cells:
        groups.setdefault((cell.side, cell.alpha, cell.procedure, cell.rows), []).append(cell)
    return tuple(_frequency(group) for group in groups.values())


def _frequency(cells: Sequence[SeedCell]) -> SeedFrequency:
    first, covered = cells[0], [cell.coverage for cell in cells]
    # a threshold that covers nothing on TEST has made no error there
    errors = [cell.error or 0.0 for cell in cells if cell.certified]
    return SeedFrequency(
        side=first.side,
        alpha=first.alpha,
        procedure=first.procedure,
        rows=first.rows,
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


def certify_splits(
    frame: pd.DataFrame, texts: Sequence[Rendered], manifest: SplitManifest, plan: SeedPlan
) -> list[SeedCell]:
    """Train on SFT, certify and read TEST once: a cell a certificate that the plan asks for."""
    import numpy as np
    import pandas as pd

    split = frame["task_id"].map(manifest.assignment).to_numpy()
    places = {name: np.flatnonzero(split == name) for name in SPLITS if (split == name).any()}
    judge = _judge(frame, texts, places["sft"], manifest.seed)
    if judge is None:
        return [
            SeedCell(seed=manifest.seed, side=side, alpha=alpha, procedure=name, rows=rows)
            for rows, side, alpha, name in _asked(plan, places)
        ]
    tables = {
        name: _scored(judge, frame, texts, rows) for name, rows in places.items() if name != "sft"
    }
    folds = list(_out_of_fold(frame, texts, places["sft"], manifest.seed))
    if folds:
        tables["sft"] = pd.concat(folds)
    return list(_cells(tables, plan, manifest.seed))


def _asked(plan: SeedPlan, splits: Collection[str]) -> Iterator[tuple[str, str, float, str]]:
    """Rows, side, budget and procedure of every certificate."""
    found = dict.fromkeys(
        tuple(name for name in rows if name in splits) for rows in plan.calibrations
    )
    for rows, alpha, side, name in product(found, plan.alphas, plan.sides, plan.procedures):
        # the bets are of RL
        if name != "betting" or ("rl" in splits and "rl" not in rows):
            yield " and ".join(rows), side, alpha, name


def _judge(
    frame: pd.DataFrame, texts: Sequence[Rendered], rows: NDArray[np.intp], seed: int
) -> LexicalJudge | None:
    """Train on some rows; None where they have one outcome."""
    outcomes = frame["outcome"].iloc[rows].to_numpy("int8")
    if len(set(outcomes.tolist())) < 2:
        return None
    known = [texts[place].text for place in rows]
    return LexicalJudge.train(known, outcomes, seed=seed, renderer_sha256=LEXICAL.renderer.sha256)


def _scored(
    judge: LexicalJudge, frame: pd.DataFrame, texts: Sequence[Rendered], rows: NDArray[np.intp]
) -> pd.DataFrame:
    rendered = [texts[place] for place in rows]
    return score_table(judge, frame.iloc[rows], LEXICAL.renderer, rendered=rendered)


def _out_of_fold(
    frame: pd.DataFrame, texts: Sequence[Rendered], rows: NDArray[np.intp], seed: int
) -> Iterator[pd.DataFrame]:
    """Score SFT by judges that saw no run of the task, as the platform deals them."""
    tasks = frame["task_id"].iloc[rows]
    for held in deal_tasks(sorted(set(tasks)), seed):
        mine = tasks.isin(held).to_numpy()
        judge = _judge(frame, texts, rows[~mine], seed)
        # runs without a score count for no size
        if judge is not None:
            yield _scored(judge, frame, texts, rows[mine])


@dataclass(frozen=True, eq=False)
class Certifying:
    """A table that certifies, the pilot of betting and a pool: each brought in order once."""

    table: Observations
    pilot: Observations | None
    pool: Pool | None

    @classmethod
    def of(
        cls, table: pd.DataFrame, pilot: pd.DataFrame | None, others: Sequence[pd.DataFrame]
    ) -> Certifying:
        """Take score tables; the pool is the other ones without their outcomes."""
        import pandas as pd

        return cls(
            observe(*columns(table)),
            None if pilot is None or pilot.empty else observe(*columns(pilot)),
            as_pool(columns(pd.concat(others))[::2]) if others else None,
        )

    def evaluate(self, settings: Settings) -> Evaluation:
        """Put every threshold to a procedure; the findings of a certificate would cost more."""
        pilot, pooled = settings.method.pilot, settings.method.calibrated
        return evaluate(
            self.table, settings, self.pilot if pilot else None, self.pool if pooled else None
        )


def study_settings(name: str, side: str, alpha: float, *, delta: float, grid: int) -> Settings:
    """Return the settings of a procedure; one that takes a pool has a grid of its own."""
    own = None if takes_pool(name) else grid
    return Settings(alpha=alpha, delta=delta, side=side, grid=own, procedure=name)


def _cells(tables: Mapping[str, pd.DataFrame], plan: SeedPlan, seed: int) -> Iterator[SeedCell]:
    import pandas as pd

    area, test = judge_auroc(tables["test"]), observe(*columns(tables["test"]))
    certifying = {}
    for rows in dict.fromkeys(rows for rows, *_ in _asked(plan, tables)):
        mine = rows.split(" and ")
        others = [table for split, table in tables.items() if split not in mine]
        certifying[rows] = Certifying.of(
            pd.concat(tables[split] for split in mine), tables.get("rl"), others
        )
    for rows, side, alpha, name in _asked(plan, tables):
        settings = study_settings(name, side, alpha, delta=plan.delta, grid=plan.grid)
        found = certifying[rows].evaluate(settings)
        audit = measure_threshold(test, settings, found.threshold)
        yield SeedCell(
            seed=seed,
            side=side,
            alpha=alpha,
            procedure=name,
            rows=rows,
            certified=found.threshold is not None,
            coverage=significant(found.chosen_coverage),
            error=audit.realized_error,
            test_coverage=audit.coverage,
            verdict=audit.verdict,
            auroc=area,
        )
