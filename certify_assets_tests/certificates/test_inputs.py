"""Task labels: one object a label, as readers of files give them, and an object a row are alike."""

import numpy as np
import pytest

from certify_assets.certificates.inputs import observe
from certify_assets.errors import InputError

ROWS = 20_000


def test_shared_and_separate_labels_are_one_table() -> None:
    rng = np.random.default_rng(0)
    names = np.array([*map("task-{}".format, range(900)), 7, True, 1, 1.0, "1"], dtype=object)
    shared = names[rng.integers(0, names.size, ROWS)]
    # one object a row, equal to another's
    separate = np.array(
        [f"{label} "[:-1] if type(label) is str else label for label in shared], object
    )
    scores, outcomes = rng.normal(size=ROWS), rng.integers(0, 2, ROWS)
    found = [observe(scores, outcomes, labels) for labels in (shared, shared.tolist(), separate)]
    assert len({item.sha256 for item in found}) == 1
    # True, 1, 1.0 and "1" are one task
    assert len(found[0].labels) == 900 + 2 and {"1", "7"} < set(found[0].labels)


def test_a_missing_label_among_many_is_named_by_its_row() -> None:
    labels = np.array(["a", "b"], dtype=object)[np.arange(ROWS) % 2]
    labels[ROWS - 5] = None
    with pytest.raises(InputError, match=f"task at row {ROWS - 5} "):
        observe(np.zeros(ROWS), np.zeros(ROWS), labels)
    labels[ROWS - 5] = []
    with pytest.raises(InputError, match="A task label is a list"):
        observe(np.zeros(ROWS), np.zeros(ROWS), labels)
