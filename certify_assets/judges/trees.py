"""Boosted trees as arrays: trained by scikit-learn, evaluated and explained by numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Features = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Complete binary trees of one depth d: the children of node i are 2i + 1 and 2i + 2.

    A branch that ends early goes on to the left, with equal values.

    Attributes
    ----------
    base : float
        Log-odds of a run before any tree.
    feature : ndarray of int32, shape (trees, 2**d - 1)
        Column that a node looks at.
    threshold : ndarray of float64, shape (trees, 2**d - 1)
        A run goes to the left where its feature is at most this.
    value : ndarray of float64, shape (trees, 2**(d + 1) - 1)
        What a leaf adds to the log-odds; of other nodes, the mean of the leaves below over the
        training runs.
    """

    base: float
    feature: NDArray[np.int32]
    threshold: _Floats
    value: _Floats

    @property
    def depth(self) -> int:
        """Splits in sequence."""
        return int(self.feature.shape[1] + 1).bit_length() - 1

    @classmethod
    def fitted(cls, model: Any) -> BoostedTrees:
        """Take the trees of a fitted binary `GradientBoostingClassifier`."""
        estimators, depth = [row[0].tree_ for row in model.estimators_], int(model.max_depth)
        inner = 2**depth - 1
        shape = (len(estimators), inner)
        trees = cls(
            # log-odds of the training runs: a row of zeros before any tree
            base=float(model._raw_predict_init(np.zeros((1, model.n_features_in_)))[0, 0]),
            feature=np.zeros(shape, dtype=np.int32),
            threshold=np.full(shape, np.inf),
            value=np.zeros((len(estimators), 2 * inner + 1)),
        )
        for number, tree in enumerate(estimators):
            trees._fill(number, tree, float(model.learning_rate), 0, 0)
        return trees

    def _fill(self, number: int, tree: Any, rate: float, place: int, node: int) -> float:
        """Copy a node and all below; return its value."""
        left, right = int(tree.children_left[node]), int(tree.children_right[node])
        if left == right:
            value = rate * float(tree.value[node, 0, 0])
            self._copy_down(number, place, value)
            return value
        self.feature[number, place] = tree.feature[node]
        self.threshold[number, place] = tree.threshold[node]
        weights = [float(tree.weighted_n_node_samples[child]) for child in (left, right)]
        values = [
            self._fill(number, tree, rate, 2 * place + side, child)
            for side, child in ((1, left), (2, right))
        ]
        value = float(np.average(values, weights=weights))
        self.value[number, place] = value
        return value

    def _copy_down(self, number: int, place: int, value: float) -> None:
        self.value[number, place] = value
        if place < self.feature.shape[1]:
            self._copy_down(number, 2 * place + 1, value)
            self._copy_down(number, 2 * place + 2, value)

    def decision(self, features: _Features) -> _Floats:
        """Return the log-odds of runs; each is summed in the order of the trees."""
        total = np.full(len(features), self.base)
        for number, places in enumerate(self._paths(features)[-1].T):
            total += self.value[number, places]
        return total

    def contributions(self, features: _Features) -> _Floats:
        """Divide the log-odds among the features.

        Each split on a run's path adds the change of the value from the node to its child to the
        feature that it looks at (Saabas, 2014).

        Returns
        -------
        ndarray of float64, shape (n, features)
            Rows sum to the log-odds less their mean over the training runs.
        """
        paths, trees = self._paths(features), np.arange(len(self.value))
        found = np.zeros(features.shape)
        rows = np.arange(len(features))[:, None]
        for here, there in pairwise(paths):
            change = self.value[trees, there] - self.value[trees, here]
            np.add.at(found, (rows, self.feature[trees, here]), change)
        return found

    def _paths(self, features: _Features) -> list[NDArray[np.int64]]:
        """Return the node of each run in each tree, level by level: arrays (runs, trees)."""
        trees = np.arange(len(self.value))
        rows = np.arange(len(features))[:, None]
        levels = [np.zeros((len(features), len(trees)), dtype=np.int64)]
        for _ in range(self.depth):
            here = levels[-1]
            right = features[rows, self.feature[trees, here]] > self.threshold[trees, here]
            levels.append(2 * here + 1 + right)
        return levels

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays as they are stored."""
        return {
            "base": np.array([self.base]),
            "feature": self.feature,
            "threshold": self.threshold,
            "value": self.value,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> BoostedTrees:
        """Read stored arrays."""
        fields = ("feature", "threshold", "value")
        return cls(float(arrays["base"][0]), *(arrays[name] for name in fields))
