import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certify_assets.corpora import splits
from certify_assets.corpora.embedded import PRETRAINING_TASKS, load_embedded
from certify_assets.corpora.schema import to_frame
from certify_assets.corpora.splits import (
    PROFILES,
    SPLITS,
    SplitManifest,
    make_manifest,
    select,
    verify_manifest,
    verify_pretraining,
)
from certify_assets.errors import InputError, ManifestError
from certify_assets_tests.corpora.builders import corpus, trajectory

FRAME = corpus(tasks=30, attempts=2)
MANIFEST = make_manifest(FRAME["task_id"], "made")


def sizes(tasks: int, profile: str = "certify", **options: Any) -> dict[str, int]:
    manifest = make_manifest((f"t{number}" for number in range(tasks)), "c", profile, **options)
    return dict(Counter(manifest.assignment.values()))


@settings(deadline=None, max_examples=60)
@given(
    st.sets(st.text(min_size=1, max_size=8), min_size=12, max_size=160),
    st.integers(0, 2**31),
    st.sampled_from(sorted(PROFILES)),
    st.randoms(),
)
def test_splits_are_disjoint_complete_and_independent_of_order(
    tasks: set[str], seed: int, profile: str, random: Any
) -> None:
    manifest = make_manifest(sorted(tasks), "c", profile, seed)
    shuffled = [*tasks, *tasks]
    random.shuffle(shuffled)
    assert make_manifest(shuffled, "c", profile, seed) == manifest
    assert sorted(task for name in SPLITS for task in manifest.tasks[name]) == sorted(tasks)
    if len(tasks) < 100 or profile != "certify":
        for name, share in PROFILES[profile].items():
            assert abs(len(manifest.tasks[name]) - len(tasks) * share / 100) < 1
    assert SplitManifest.from_dict(json.loads(json.dumps(manifest.to_dict()))) == manifest


def test_sizes_of_the_profiles() -> None:
    assert sizes(100, "paper") == {"sft": 40, "rl": 30, "cal": 15, "test": 15}
    assert sizes(100, "paper_miniwob") == {"sft": 40, "rl": 20, "cal": 15, "test": 25}
    assert sizes(125) == {"sft": 31, "rl": 13, "cal": 50, "test": 31}
    assert sizes(125, train_rl=False) == {"sft": 31, "cal": 63, "test": 31}
    assert sizes(99)["cal"] == 39


def test_the_assignment_is_pinned() -> None:
    manifest = make_manifest("abcdefgh", "c", seed=7)
    splits = ["sft", "test", "sft", "rl", "cal", "cal", "cal", "test"]
    assert manifest.assignment == dict(zip("abcdefgh", splits, strict=True))
    assert make_manifest("abcdefgh", "other", seed=7).assignment == manifest.assignment
    assert make_manifest("abcdefgh", "c", seed=8).assignment != manifest.assignment


def pin(monkeypatch: pytest.MonkeyPatch, pinned: Sequence[str]) -> None:
    monkeypatch.setattr(splits, "pretraining_tasks", lambda corpus: pinned)


def test_pinned_tasks_are_in_sft_for_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [f"t{number}" for number in range(40)]
    pin(monkeypatch, tasks[:20])
    for seed in range(5):
        manifest = make_manifest(tasks, "c", seed=seed)
        assert set(manifest.tasks["sft"]) == set(tasks[:20])
        assert [len(manifest.tasks[name]) for name in ("rl", "cal", "test")] == [3, 11, 6]
    pin(monkeypatch, tasks[:3])
    few = make_manifest(tasks, "c")
    assert set(tasks[:3]) < set(few.tasks["sft"]) and len(few.tasks["sft"]) == 10
    pin(monkeypatch, tasks[:39])
    with pytest.raises(InputError, match="too few"):
        make_manifest(tasks, "c")


def test_pretraining_tasks_leave_the_manifest_of_seed_42_as_it_was() -> None:
    tasks = load_embedded("miniwob_weak")["task_id"].unique()
    manifest = make_manifest(tasks, "miniwob_weak")
    assert set(PRETRAINING_TASKS) == set(manifest.tasks["sft"]) and manifest.pinned_sft == ()
    assert manifest.sha256.startswith("619f5d392a142fae")
    assert make_manifest(tasks, "miniwob_weak", seed=7).pinned_sft == PRETRAINING_TASKS
    assert make_manifest(tasks, "elsewhere", seed=7).pinned_sft == ()


def test_a_pretraining_task_that_certifies_or_audits_is_refused() -> None:
    frame = load_embedded("miniwob_weak")
    with pytest.MonkeyPatch.context() as monkeypatch:
        pin(monkeypatch, ())
        unpinned = make_manifest(frame["task_id"], "miniwob_weak", seed=7)
    with pytest.raises(ManifestError, match="a judge was pretrained on task"):
        verify_manifest(unpinned, frame)
    for split in ("rl", "cal", "test"):
        first = MANIFEST.tasks[split][0]
        with pytest.raises(ManifestError, match=f"task {first!r}, which is in split {split}"):
            verify_pretraining(MANIFEST, MANIFEST.tasks[split])
    verify_pretraining(MANIFEST, (*MANIFEST.tasks["sft"], "elsewhere"))


def test_trajectories_follow_their_task() -> None:
    parts = {name: select(FRAME, MANIFEST, name) for name in SPLITS}
    assert sum(map(len, parts.values())) == len(FRAME)
    assert all(set(part["task_id"]) == set(MANIFEST.tasks[name]) for name, part in parts.items())
    with pytest.raises(InputError, match="no split 'dev'"):
        select(FRAME, MANIFEST, "dev")


def test_an_altered_manifest_is_refused() -> None:
    task, split = next(iter(MANIFEST.assignment.items()))
    moved = {**MANIFEST.assignment, task: "test" if split == "cal" else "cal"}
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"assignment": moved}, "the assignment was altered"),
        ({"seed": 43}, "the assignment was altered"),
        ({"shares": {"cal": 50, "test": 50}}, "the assignment was altered"),
        ({"pinned_sft": tuple(MANIFEST.assignment)}, "its seed and shares|was altered"),
        ({"corpus": "other"}, "belongs to corpus other"),
    )
    for change, words in changes:
        with pytest.raises(ManifestError, match=words):
            verify_manifest(MANIFEST.replace(**change), FRAME)


def test_a_manifest_of_other_tasks_is_refused() -> None:
    with pytest.raises(ManifestError, match="is in no split"):
        verify_manifest(MANIFEST, corpus(tasks=31, attempts=2))
    fewer = FRAME[FRAME["task_id"] != "t003"]
    with pytest.raises(ManifestError, match="'t003' of the split manifest has no trajectory"):
        verify_manifest(MANIFEST, fewer)
    with pytest.raises(ManifestError, match="trajectories to small"):
        verify_manifest(MANIFEST, to_frame([trajectory()]))
