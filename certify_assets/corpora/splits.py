"""Task-disjoint splits, and the manifest that records them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from certify_assets.corpora.embedded import pretraining_tasks
from certify_assets.documents import Document
from certify_assets.errors import InputError, ManifestError

if TYPE_CHECKING:
    import pandas as pd

SPLITS: tuple[str, ...] = ("sft", "rl", "cal", "test")
PROFILES: Mapping[str, Mapping[str, int]] = {
    "paper": {"sft": 40, "rl": 30, "cal": 15, "test": 15},
    "paper_miniwob": {"sft": 40, "rl": 20, "cal": 15, "test": 25},
    "certify": {"sft": 25, "rl": 10, "cal": 40, "test": 25},
}

_CAL_TASKS = 50
_CAL_TASKS_FROM = 100


class SplitManifest(Document):
    """Which task belongs to which split, and all that is needed to recompute it."""

    TITLE = "split manifest"
    SCHEMA = "certify_assets/split_manifest/1"
    REFUSAL = ManifestError

    corpus: str
    # a key of `PROFILES`
    profile: str
    seed: int
    shares: Mapping[str, int | float]
    # where RL is not trained, its share went to CAL
    train_rl: bool
    # fewest CAL tasks in a corpus of at least 100 tasks (0 = no minimum)
    minimum_cal_tasks: int
    # tasks that are in SFT for every seed: a judge was pretrained on them
    pinned_sft: tuple[str, ...]
    assignment: dict[str, str]
    # tasks that each delivery brought first, those that are gone included; empty where one
    # delivery brought all tasks
    deliveries: tuple[tuple[str, ...], ...] = ()

    @property
    def tasks(self) -> dict[str, tuple[str, ...]]:
        """Tasks of every split, sorted."""
        return {
            name: tuple(sorted(task for task, split in self.assignment.items() if split == name))
            for name in SPLITS
        }

    @property
    def delivered(self) -> tuple[tuple[str, ...], ...]:
        """Tasks that each delivery brought first, even if there was only one delivery."""
        return self.deliveries or (tuple(sorted(self.assignment)),)

    @property
    def assignment_so_far(self) -> dict[str, str]:
        """Split of every task that any delivery brought, including tasks that are gone."""
        assignment = _assign_deliveries(self, self.delivered)
        return {
            task: assignment[task] for task in sorted(task for of in self.delivered for task in of)
        }


def make_manifest(
    task_ids: Iterable[str],
    corpus: str,
    profile: str = "certify",
    seed: int = 42,
    *,
    train_rl: bool = True,
) -> SplitManifest:
    """Assign every task to one split."""
    # Tasks are put in the order of SHA-256(seed, task), which depends on nothing but the two, and
    # the splits are filled in the order SFT, RL, CAL, TEST up to sizes from the shares by the
    # largest-remainder rule.
    tasks = set(task_ids)
    # pinned tasks count towards the share of SFT; they are recorded where the seed alone would not
    # keep them there
    pinned = set(pretraining_tasks(corpus)) & tasks
    plan = _Plan(PROFILES[profile], train_rl, _CAL_TASKS if profile == "certify" else 0)
    assignment = _assign(tasks, pinned, seed, plan)
    if pinned and assignment == _assign(tasks, set(), seed, plan):
        pinned = set()
    return SplitManifest(
        corpus=corpus,
        profile=profile,
        seed=seed,
        shares=plan.shares,
        train_rl=train_rl,
        minimum_cal_tasks=plan.minimum_cal,
        pinned_sft=tuple(sorted(pinned)),
        assignment={task: assignment[task] for task in sorted(tasks)},
    )


def extend_manifest(earlier: SplitManifest, task_ids: Iterable[str]) -> SplitManifest:
    """Assign the tasks of a later delivery; refuse an earlier manifest that was altered."""
    # A task keeps its split for good, also while no delivery has runs of it. New tasks are put in
    # the order of SHA-256(seed, task) and fill the splits in the order SFT, RL, CAL, TEST by what
    # each lacks of its share of all tasks so far.
    _verify_assignment(earlier)
    tasks, before = set(task_ids), earlier.delivered
    new = tasks.difference(*before)
    deliveries = (*before, tuple(sorted(new))) if new else before
    assignment = _assign_deliveries(earlier, deliveries)
    if len(deliveries) == 1 and tasks == set(deliveries[0]):
        deliveries = ()
    return earlier.replace(
        assignment={task: assignment[task] for task in sorted(tasks)}, deliveries=deliveries
    )


def without_test(frame: pd.DataFrame, manifest: SplitManifest) -> pd.DataFrame:
    """Return the rows whose outcomes may be read at any time: all splits except TEST."""
    return frame[frame["task_id"].map(manifest.assignment) != "test"].reset_index(drop=True)


def verify_manifest(manifest: SplitManifest, frame: pd.DataFrame) -> None:
    """Refuse a manifest that was altered or belongs to other trajectories."""
    _verify_assignment(manifest)
    if strangers := sorted(set(frame["corpus"].unique()) - {manifest.corpus}):
        raise ManifestError(
            f"the split manifest belongs to corpus {manifest.corpus}, the trajectories to "
            f"{strangers[0]}; use its own manifest."
        )
    verify_pretraining(manifest, pretraining_tasks(manifest.corpus))
    present, assigned = set(frame["task_id"].unique()), set(manifest.assignment)
    for tasks, fault in (
        (present - assigned, f"of {manifest.corpus} is in no split"),
        (assigned - present, "of the split manifest has no trajectory"),
    ):
        if tasks:
            raise ManifestError(
                f"task {min(tasks)!r} {fault} ({len(tasks)} such tasks); make the splits again."
            )


def verify_pretraining(manifest: SplitManifest, tasks: Iterable[str]) -> None:
    """Refuse a manifest where a task of a judge's pretraining may certify or audit it."""
    if seen := sorted(task for task in set(tasks) if manifest.assignment.get(task, "sft") != "sft"):
        raise ManifestError(
            f"a judge was pretrained on task {seen[0]!r}, which is in split "
            f"{manifest.assignment[seen[0]]} of {manifest.corpus} ({len(seen)} such tasks): its "
            "certificate would prove nothing; make the splits again with these tasks pinned to "
            "SFT."
        )


def _verify_assignment(manifest: SplitManifest) -> None:
    try:
        declared = _assign_deliveries(manifest, manifest.delivered)
    except InputError as error:
        raise ManifestError(
            f"the split manifest of {manifest.corpus} cannot be what its seed and shares "
            f"give: {error}"
        ) from None
    for task, split in sorted(manifest.assignment.items()):
        if declared.get(task) != split:
            raise ManifestError(
                f"task {task!r} is in split {split} of {manifest.corpus}, seed {manifest.seed} "
                f"and its shares put it in {declared.get(task, 'none')}: "
                "the assignment was altered; make the splits again."
            )


def select(frame: pd.DataFrame, manifest: SplitManifest, split: str) -> pd.DataFrame:
    """Return the trajectories of one split, after verifying the manifest against all of them."""
    if split not in SPLITS:
        raise InputError(f"there is no split {split!r}; name one of {', '.join(SPLITS)}.")
    verify_manifest(manifest, frame)
    return frame[frame["task_id"].map(manifest.assignment) == split].reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class _Plan:
    shares: Mapping[str, float]
    train_rl: bool
    minimum_cal: int


def _plan(manifest: SplitManifest) -> _Plan:
    return _Plan(manifest.shares, manifest.train_rl, manifest.minimum_cal_tasks)


def _assign(tasks: set[str], pinned: set[str], seed: int, plan: _Plan) -> dict[str, str]:
    sizes = _sizes(len(tasks), len(pinned), plan)
    sizes["sft"] -= len(pinned)
    return dict.fromkeys(pinned, "sft") | _fill(tasks - pinned, seed, sizes)


def _assign_deliveries(
    manifest: SplitManifest, deliveries: Sequence[Sequence[str]]
) -> dict[str, str]:
    plan, pinned = _plan(manifest), set(manifest.pinned_sft)
    assignment = _assign(set(deliveries[0]), pinned, manifest.seed, plan)
    for tasks in deliveries[1:]:
        sizes = _added_sizes(Counter(assignment.values()), len(tasks), len(pinned), plan)
        assignment |= _fill(set(tasks), manifest.seed, sizes)
    return assignment


def _added_sizes(have: Counter[str], tasks: int, pinned: int, plan: _Plan) -> dict[str, int]:
    """Return how many tasks of a delivery each split gets."""
    wanted = _sizes(have.total() + tasks, pinned, plan)
    lacking = {name: max(0, wanted[name] - have[name]) for name in SPLITS}
    return _largest_remainder(tasks, lacking)


def tasks_to_add(
    lacking: int,
    splits: Collection[str],
    earlier: SplitManifest | None,
    *,
    tasks: int = 0,
    profile: str = "certify",
    train_rl: bool = True,
) -> int:
    """Return how many tasks to add to a corpus so that some splits get the tasks that they lack.

    Parameters
    ----------
    lacking : int
        Tasks that the splits lack together.
    splits : collection of str
    earlier : SplitManifest or None
        Splits of the tasks so far; None if they are too few for splits.
    tasks, profile, train_rl
        Settings of a corpus without splits.
    """
    have, pinned, plan = Counter[str](), 0, _Plan(PROFILES[profile], train_rl, 0)
    if earlier is not None:
        have = Counter(_assign_deliveries(earlier, earlier.delivered).values())
        pinned, plan = len(earlier.pinned_sft), _plan(earlier)
    for number in count(lacking):
        with suppress(InputError):
            sizes = _added_sizes(have, number, pinned, plan)
            if sum(sizes[name] for name in splits) >= lacking:
                return number - (tasks if earlier is None else 0)
    raise AssertionError("unreachable")


def _fill(tasks: set[str], seed: int, sizes: Mapping[str, int]) -> dict[str, str]:
    order = sorted(tasks, key=lambda task: hashlib.sha256(f"{seed}\0{task}".encode()).digest())
    splits = [name for name in SPLITS for _ in range(sizes[name])]
    return dict(zip(order, splits, strict=True))


def _sizes(tasks: int, pinned: int, plan: _Plan) -> dict[str, int]:
    """Return the size of each split: minimum of CAL and pinned tasks first, the rest by share."""
    shares = {name: float(plan.shares.get(name, 0.0)) for name in SPLITS}
    if not plan.train_rl:
        shares |= {"cal": shares["cal"] + shares["rl"], "rl": 0.0}
    fixed: dict[str, int] = {}
    sizes = _largest_remainder(tasks, shares)
    cal = plan.minimum_cal if tasks >= _CAL_TASKS_FROM else 0
    for split, least in (("cal", cal), ("sft", pinned)):
        if sizes[split] < least:
            fixed[split] = least
            left = tasks - sum(fixed.values())
            if left < 0:
                raise InputError(
                    f"{tasks} tasks are too few for the {tasks - left} that are pinned or needed "
                    "in CAL; pin fewer tasks."
                )
            rest = {name: 0.0 if name in fixed else share for name, share in shares.items()}
            sizes = _largest_remainder(left, rest) | fixed
    if empty := [name for name in SPLITS if shares[name] > 0 and sizes[name] < 1]:
        raise InputError(
            f"There are too few tasks ({tasks}) to give {empty[0].upper()} any. Bring more tasks "
            "or change the shares."
        )
    return sizes


def _largest_remainder(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Round shares of a total to whole numbers that add up to it; ties go to the earlier split."""
    whole = sum(shares.values())
    exact = {name: total * share / whole for name, share in shares.items()}
    sizes = {name: int(value) for name, value in exact.items()}
    # rounded, so that shares such as .1 + .2 do not decide a tie by their last bit
    for name in sorted(shares, key=lambda name: -round(exact[name] - sizes[name], 9))[
        : total - sum(sizes.values())
    ]:
        sizes[name] += 1
    return sizes
