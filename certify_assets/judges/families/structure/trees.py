"""Boosted trees as arrays: trained by scikit-learn, evaluated by numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Features = NDArray[np.float32]


class BoostedTrees(NamedTuple):
    """Binary trees: one row for each tree, one column for each node, node 0 the root.

    Attributes
    ----------
    base : ndarray of float64, shape (1,)
        Log-odds of a run before any tree.
    children : ndarray of int32, shape (2, trees, nodes)
        The left and the right child of a node; both children of a leaf are the leaf itself.
    feature : ndarray of int32, shape (trees, nodes)
        Feature column that a node tests.
    threshold : ndarray of float64, shape (trees, nodes)
        A run goes to the left where its feature is at most this.
    value : ndarray of float64, shape (trees, nodes)
        What a leaf adds to the log-odds; for other nodes, the mean of the leaves below over the
        training runs.
    """

    base: _Floats
    children: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: _Floats
    value: _Floats

    @classmethod
    def fitted(cls, model: Any) -> BoostedTrees:
        """Take the trees of a fitted binary `GradientBoostingClassifier`."""
        estimators = [row[0].tree_ for row in model.estimators_]
        shape = (len(estimators), max(tree.node_count for tree in estimators))
        trees = cls(
            # log-odds of the training runs: a row of zeros before any tree
            base=np.array([model._raw_predict_init(np.zeros((1, model.n_features_in_)))[0, 0]]),
            children=np.zeros((2, *shape), dtype=np.int32),
            feature=np.zeros(shape, dtype=np.int32),
            threshold=np.zeros(shape),
            value=np.zeros(shape),
        )
        for number, tree in enumerate(estimators):
            nodes = np.arange(tree.node_count)
            left, right = tree.children_left, tree.children_right
            inner, value = left >= 0, model.learning_rate * tree.value[:, 0, 0]
            trees.children[:, number, : len(nodes)] = np.where(inner, [left, right], nodes)
            trees.feature[number, : len(nodes)] = np.where(inner, tree.feature, 0)
            trees.threshold[number, : len(nodes)] = tree.threshold
            trees.value[number, : len(nodes)] = value
        return trees

    def decision(self, features: _Features) -> _Floats:
        """Return the log-odds of runs; each is summed in the order of the trees."""
        total = np.full(len(features), self.base[0])
        for number, leaves in enumerate(self._leaves(features).T):
            total += self.value[number, leaves]
        return total

    def _leaves(self, features: _Features) -> NDArray[np.int64]:
        """Return the leaf of each run in each tree: an array (runs, trees)."""
        trees, rows = np.arange(len(self.value)), np.arange(len(features))[:, None]
        here = np.zeros((len(features), len(trees)), dtype=np.int64)
        while True:
            right = features[rows, self.feature[trees, here]] > self.threshold[trees, here]
            there = self.children[right.astype(int), trees, here].astype(np.int64)
            if np.array_equal(there, here):
                return here
            here = there
