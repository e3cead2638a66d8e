"""Profile of a corpus: size in tasks, clustering, copies, flips, and whether it can certify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from certify_assets.certificates.clustering import ClusterSummary, n_min, summarise_clusters
from certify_assets.corpora.config import CorpusConfig
from certify_assets.corpora.rendering import Outline, render_frame
from certify_assets.corpora.splits import SPLITS, SplitManifest, tasks_to_add, verify_manifest
from certify_assets.corpora.trajectory import instruction_sha256
from certify_assets.documents import Document
from certify_assets.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_DELTA = 0.05
#: share of tasks or runs that may be counted twice before the corpus is stopped
_MOST_SHARED = 0.05


@dataclass(frozen=True, slots=True)
class SplitGate:
    """Whether a split has enough tasks for a certificate, before any scoring."""

    split: str
    alpha: float
    delta: float
    tasks: int
    n_eff: float
    # covered tasks that the default procedure needs when errors come by whole tasks of equal size:
    # the smallest G with (1 − α)^G ≤ δ/3
    floor_tasks: int
    # tasks ≥ floor_tasks, and n_eff ≥ floor_tasks
    possible: bool
    enough_samples: bool
    # tasks to add to the corpus until as many certify as are needed
    tasks_to_add: int
    reason: str


@dataclass(frozen=True, slots=True)
class FlipRates:
    """Flips: attempts at one task with different outcomes."""

    # pairs of task and agent with at least two labelled attempts, those with both outcomes, and
    # their share; then the same of tasks over all agents
    cells: int
    flipped_cells: int
    cell_rate: float | None
    tasks: int
    flipped_tasks: int
    task_rate: float | None
    # trajectories whose text equals one with the other outcome, be it that labels are wrong or that
    # the text leaves out what decided; a flip alone is no label error
    contradicted: int


@dataclass(frozen=True, slots=True)
class TextLengths:
    """Lengths of uncut renderings in characters, and how many were cut."""

    shortest: int
    median: int
    longest: int
    # trajectories that lost characters
    cut: int


class CorpusProfile(Document):
    """Profile of a corpus, before any judge reads it."""

    TITLE = "profile of a corpus"
    SCHEMA = "certify_assets/profile/2"

    corpus: str
    # labelled trajectories and their tasks; the unlabelled are counted by agents, attempts and
    # duplicates alone
    trajectories: int
    tasks: int
    unlabelled: int
    agents: dict[str, int]
    # fewest and most trajectories of a task
    attempts: tuple[int, int]
    # None where no outcome is known
    success_rate: float | None
    mean_task_size: float
    icc: float
    deff: float
    n_eff: float
    # trajectories whose rendering equals an earlier one
    duplicates: int
    # groups of tasks that share an instruction
    same_instruction: tuple[tuple[str, ...], ...]
    dropped: dict[str, int]
    splits: dict[str, ClusterSummary]
    # of the splits that certify together (or of the whole corpus, where it is not split) and of
    # TEST, at every α
    gates: tuple[SplitGate, ...]
    # of everything but TEST
    flips: FlipRates
    lengths: TextLengths | None
    # of what it was measured on; empty where that is not stored
    manifest_sha256: str = ""
    trajectories_sha256: str = ""


@dataclass(frozen=True, slots=True)
class TaskOverlap:
    """Overlap between tasks of a corpus, which may be one task under several ids."""

    # tasks that have an instruction, and how many sets of instructions they have
    tasks: int
    instructions: int
    # runs with text, and those that repeat a run of an earlier task in text and outcome
    runs: int
    copies: int

    @classmethod
    def of(cls, runs: pd.DataFrame) -> TaskOverlap:
        """Compare the tasks of a table made by `deliveries.run_table`."""
        named = runs[runs["instruction"] != ""]
        sets = [frozenset(texts) for _, texts in named.groupby("task_id")["instruction"]]
        read = runs[runs["letters"] != ""]
        same = read.groupby(["letters", "outcome"], dropna=False)["task_id"]
        copies = int((read["task_id"] != same.transform("min")).sum())
        return cls(len(sets), len(set(sets)), len(read), copies)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Say why the corpus is refused, and which option resolves it."""
        found = []
        if self.tasks - self.instructions > _MOST_SHARED * self.tasks:
            found.append(
                f"{self.tasks} task ids share {self.instructions} instructions, so one task may "
                "be counted several times. Import with --option merge_same_instruction=true to "
                "count each instruction as one task."
            )
        if self.copies > _MOST_SHARED * self.runs:
            found.append(
                f"{self.copies} of {self.runs} runs repeat a run of another task in text and "
                "outcome. Import with --option drop_copies=true to leave them out."
            )
        return tuple(found)


def profile_corpus(
    frame: pd.DataFrame,
    manifest: SplitManifest | None = None,
    *,
    dropped: Mapping[str, int] | None = None,
    outlines: Sequence[Outline] | None = None,
    settings: CorpusConfig | None = None,
) -> CorpusProfile:
    """Profile a corpus, and its splits if there is a manifest."""
    if frame.empty:
        raise InputError("the corpus has no trajectory; import or generate some first.")
    settings = settings or CorpusConfig("corpus")
    whole, splits = cluster_summary(frame), dict[str, ClusterSummary]()
    judged, belongs = {"all": whole}, frame["task_id"].map({})
    if manifest is not None:
        verify_manifest(manifest, frame)
        belongs = frame["task_id"].map(manifest.assignment)
        splits = {
            name: cluster_summary(frame[belongs == name])
            for name in SPLITS
            if (belongs == name).any()
        }
        present = [name for name in settings.certifying if name in splits]
        judged = {" and ".join(present): cluster_summary(frame[belongs.isin(present)])}
        judged |= {name: summary for name, summary in splits.items() if name == "test"}
    if outlines is None:
        outlines = [item.outline() for item in render_frame(frame)]
    frame = frame.assign(text=[item.digest for item in outlines] or None)
    copies = len(outlines) - len({item.digest for item in outlines})
    # a flip is a matter of outcomes, and those of TEST are read through its ledger alone
    readable = (belongs != "test").to_numpy()
    add = partial(
        tasks_to_add,
        splits=settings.certifying,
        earlier=manifest,
        tasks=whole.tasks,
        profile=settings.profile,
        train_rl=settings.rl,
    )
    sizes = frame.groupby("task_id").size()
    known = asdict(whole) | {"success_rate": whole.success_rate if whole.trajectories else None}
    return CorpusProfile(
        corpus=str(frame["corpus"].iloc[0]),
        **known,
        unlabelled=int(frame["outcome"].isna().sum()),
        # largest first
        agents=dict(Counter(sorted(frame["agent"].tolist())).most_common()),
        attempts=(int(sizes.min()), int(sizes.max())),
        duplicates=copies,
        same_instruction=_same_instruction(frame),
        dropped=dict(dropped or {}),
        splits=splits,
        gates=tuple(
            certification_gate(summary, alpha, split=name, add=add)
            for name, summary in judged.items()
            for alpha in settings.alphas
        ),
        flips=flip_rates(frame[readable]),
        lengths=_text_lengths(outlines),
    )


def cluster_summary(frame: pd.DataFrame) -> ClusterSummary:
    """Summarise the labelled trajectories of a table by task."""
    labelled = frame.loc[frame["outcome"].notna(), ["task_id", "outcome"]]
    grouped = labelled.groupby("task_id")["outcome"]
    sizes = grouped.size().to_numpy(dtype=np.int64)
    return summarise_clusters(sizes, grouped.sum().to_numpy(dtype=np.int64))


def certification_gate(
    summary: ClusterSummary,
    alpha: float,
    split: str = "all",
    add: Callable[[int], int] = int,
) -> SplitGate:
    """Return whether this number of tasks can be certified by the default procedure.

    `add` maps a number of missing certifying tasks to the tasks to add to the corpus.
    """
    # Where errors come by whole tasks of equal size, data without an error have probability
    # (1 − α)^G at an error of α, and the default accepts them when that is at most δ/3: 39 tasks
    # at α = .1 and 19 at α = .2 for δ = .05. Fewer tasks can pass where errors are spread over
    # tasks, which is unknown before scoring.
    from certify_assets.certificates.pseudo_task import WHOLE_SHARE

    floor = n_min(alpha, _DELTA / WHOLE_SHARE)
    # tasks that are in no split yet certify nothing
    certify = 0 if split == "all" else summary.tasks
    lacking = max(0, floor - certify)
    possible, enough = lacking == 0, summary.n_eff >= floor
    more = 0 if possible or split == "test" else add(lacking)
    names = "no split yet" if split == "all" else split.upper().replace("AND", "and")
    reason = (
        f"{certify} tasks are available to certify ({names}); {floor} are needed at α = {alpha:g}"
    )
    if split == "test":
        reason = f"{summary.tasks} tasks audit; a certificate of them would need {floor}."
    elif not possible:
        plural = "s" * (more > 1)
        reason += f". Bring {more} more task{plural} to the corpus: {lacking} of them will certify."
    elif not enough:
        reason += (
            f": enough. The effective sample size {summary.n_eff:.1f} is below {floor}, so only a "
            "good judge will certify."
        )
    else:
        reason += f": enough. Effective sample size {summary.n_eff:.1f}, needed {floor}."
    return SplitGate(
        split=split,
        alpha=alpha,
        delta=_DELTA,
        tasks=summary.tasks,
        n_eff=summary.n_eff,
        floor_tasks=floor,
        possible=possible,
        enough_samples=enough,
        tasks_to_add=more,
        reason=reason,
    )


def _same_instruction(frame: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    asked = frame[["task_id", "instruction"]].drop_duplicates()
    words = asked["instruction"].map(instruction_sha256)
    groups = asked[words != ""].groupby(words)["task_id"].unique()
    return tuple(sorted({tuple(sorted(tasks)) for tasks in groups if len(tasks) > 1}))


def flip_rates(frame: pd.DataFrame) -> FlipRates:
    """Count flips among labelled runs, by task_id, agent, outcome, and text (a hash, if given)."""
    rows = frame[frame["outcome"].notna()].astype({"outcome": "int64"})
    cells, flipped_cells = _flipped(rows, ["task_id", "agent"])
    tasks, flipped_tasks = _flipped(rows, ["task_id"])
    outcomes = rows.groupby("text")["outcome"].transform("nunique")
    return FlipRates(
        cells=cells,
        flipped_cells=flipped_cells,
        cell_rate=flipped_cells / cells if cells else None,
        tasks=tasks,
        flipped_tasks=flipped_tasks,
        task_rate=flipped_tasks / tasks if tasks else None,
        contradicted=int((outcomes > 1).sum()),
    )


def _text_lengths(outlines: Sequence[Outline]) -> TextLengths | None:
    if not outlines:
        return None
    lengths = np.array([item.length for item in outlines], dtype=np.int64)
    # a quantile that is one of the lengths, so that the figure exists
    median = int(np.quantile(lengths, 0.5, method="lower"))
    cut = sum(item.cut_chars > 0 for item in outlines)
    return TextLengths(int(lengths.min()), median, int(lengths.max()), cut)


def _flipped(rows: pd.DataFrame, by: list[str]) -> tuple[int, int]:
    """Return the number of groups of several attempts, and of groups with both outcomes."""
    if rows.empty:
        return 0, 0
    grouped = rows.groupby(by)["outcome"].agg(["size", "nunique"])
    several = grouped["size"] > 1
    return int(several.sum()), int((grouped["nunique"] > 1).sum())
