"""Pretraining at a tiny scale: batches, losses, the same bytes twice, and going on after a kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.errors import InputError
from certify_assets.judges.lm.compact import pretrain as module
from certify_assets.judges.lm.compact.pretrain import (
    Example,
    Progress,
    new_model,
    plan_batches,
    pretrain,
)
from certify_assets.judges.lm.compact.settings import CompactSettings
from certify_assets.judges.lm.compact.shipped import build_compact

TINY = CompactSettings(
    layers=1,
    hidden=32,
    heads=1,
    key_value_heads=1,
    intermediate=32,
    vocabulary=60,
    batch_tokens=100,
    epochs=3,
    threads=1,
)
PREFIX = (5, 6, 7, 8)


def examples(rows: int = 12) -> list[Example]:
    generator = np.random.default_rng(0)
    made = []
    for row in range(rows):
        body = tuple(generator.integers(10, 40, 4 + row % 5).tolist())
        made.append(Example((*PREFIX, *body), len(PREFIX)))
    return made


def weights(model: Any) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in model.state_dict().items()}


def test_every_epoch_has_every_row_once_within_the_budget() -> None:
    lengths = np.random.default_rng(1).integers(5, 60, 300).tolist()
    settings = replace(TINY, batch_tokens=200, epochs=4)
    steps = plan_batches(lengths, settings)
    assert sorted(row for step in steps for row in step) == sorted(list(range(300)) * 4)
    assert all(max(lengths[row] for row in step) * len(step) <= 200 for step in steps)
    assert (
        steps == plan_batches(lengths, settings) != plan_batches(lengths, replace(settings, seed=1))
    )


def test_a_row_longer_than_the_budget_is_a_step_of_its_own() -> None:
    assert sorted(map(sorted, plan_batches([300, 5, 6], replace(TINY, epochs=1)))) == [[0], [1, 2]]


def test_the_shared_prefix_changes_no_loss_and_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model = new_model(TINY, 0, 2)
    found = []
    for shared in (len(PREFIX) - 1, 0):
        monkeypatch.setattr(module, "_shared_prefix", lambda _, shared=shared: shared)
        model.zero_grad()
        loss = module._loss(model, examples(), 0)
        loss.backward()
        found.append((loss.item(), model.model.embed_tokens.weight.grad.numpy().copy()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-6)


def test_the_loss_is_that_of_the_runs_tokens_in_a_full_forward_pass() -> None:
    import torch

    model = new_model(TINY, 0, 2)
    rows = examples(3)
    own = []
    for row in rows:
        losses = (
            -model(torch.tensor([row.ids]))
            .logits[0]
            .log_softmax(-1)[torch.arange(len(row.ids) - 1), torch.tensor(row.ids[1:])]
        )
        own += losses[row.start - 1 :].tolist()
    assert module._loss(model, rows, 0).item() == pytest.approx(np.mean(own), rel=1e-5)


def test_two_identical_pretrainings_are_bitwise_identical_and_learn() -> None:
    settings = replace(TINY, epochs=8, learning_rate=1e-2)
    first, curve = pretrain(examples(), settings, pad=0, end=2)
    second, again = pretrain(examples(), settings, pad=0, end=2)
    assert weights(first) == weights(second)
    assert [item.loss for item in curve] == [item.loss for item in again]
    assert curve[-1].loss < curve[0].loss - 0.5
    assert weights(first) != weights(
        pretrain(examples(), replace(settings, seed=1), pad=0, end=2)[0]
    )


def test_pretraining_leaves_torch_as_it_was() -> None:
    import torch

    before = (
        torch.get_rng_state(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    pretrain(examples(3), replace(TINY, epochs=1, threads=before[1] + 1), pad=0, end=2)
    after = (
        torch.get_rng_state(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_a_killed_pretraining_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, curve = pretrain(examples(), TINY, pad=0, end=2)
    monkeypatch.setattr(module, "_SAVE_EVERY_S", -1.0)

    def killed(item: Progress) -> None:
        if item.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(examples(), TINY, pad=0, end=2, folder=tmp_path, progress=killed)
    seen: list[int] = []
    resumed, second = pretrain(
        examples(),
        TINY,
        pad=0,
        end=2,
        folder=tmp_path,
        progress=lambda item: seen.append(item.step),
    )
    assert weights(resumed) == weights(whole) and seen[0] == 4
    assert [item.loss for item in second] == [item.loss for item in curve]
    # a checkpoint of other settings or examples is not gone on from
    seen.clear()
    pretrain(
        examples(),
        replace(TINY, learning_rate=1e-3),
        pad=0,
        end=2,
        folder=tmp_path,
        progress=lambda item: seen.append(item.step),
    )
    assert seen[0] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"heads": 3, "key_value_heads": 2}, "divisor"),
        ({"head_dim": 16}, "head_dim is 16"),
    ],
)
def test_settings_that_no_model_has_are_refused(change: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        CompactSettings(**change)


@pytest.mark.slow
def test_two_builds_are_the_same_files(tmp_path: Path) -> None:
    settings = CompactSettings(
        layers=1, hidden=32, heads=1, key_value_heads=1, intermediate=32, vocabulary=700, threads=2
    )
    built = [build_compact(tmp_path / name, settings, limit=40) for name in ("one", "two")]
    files = [{path.name: path.read_bytes() for path in item.folder.iterdir()} for item in built]
    assert files[0] == files[1]
    assert set(files[0]) >= {
        "config.json",
        "model.safetensors",
        "provenance.json",
        "tokenizer.json",
    }
