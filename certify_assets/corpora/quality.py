"""Data quality: one Great Expectations checkpoint over the runs of a corpus and their splits."""

# No step waits for these results: what has to stop the pipeline is checked without the library.
# It sees no text of a run, so no result can show one.

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.pseudo_task import WHOLE_SHARE
from certify_assets.corpora.schema import SMALL_COLUMNS, read_columns
from certify_assets.corpora.splits import SPLITS

if TYPE_CHECKING:
    import pandas as pd

    from certify_assets.corpora.corpus import Corpus

_DELTA = 0.05
_REQUIRED = ("corpus", "task_id", "trajectory_id", "agent", "attempt")
# unexpected values that are shown
_FEW = 3
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation of the suite, and the result of Great Expectations."""

    column: str
    expected: str
    met: bool
    # observed value, and a few that were not expected
    observed: str
    unexpected: str


def stored_runs(corpus: Corpus) -> pd.DataFrame:
    """Return a row for each run of each stored split, with a hash of its texts."""
    import pandas as pd

    tables = []
    for split in SPLITS:
        with corpus.store.as_file(corpus.split_key(split)) as path:
            tables.append(read_columns(path, SMALL_COLUMNS).assign(split=split))
    runs = pd.concat(tables, ignore_index=True)
    texts = corpus.runs.drop_duplicates("trajectory_id").set_index("trajectory_id")["letters"]
    return runs.assign(
        texts=runs["trajectory_id"].map(texts),
        splits_of_task=runs.groupby("task_id")["split"].transform("nunique"),
    )


def validate_runs(
    runs: pd.DataFrame, *, certifying: Sequence[str], alpha: float
) -> list[Expectation]:
    """Validate the table of `stored_runs` by one suite and one checkpoint.

    Parameters
    ----------
    runs : DataFrame
    certifying : sequence of str
        Splits that certify together.
    alpha : float
        Error budget for which the certifying splits must have enough tasks.

    Returns
    -------
    list of Expectation
        In the order of the suite.
    """
    with warnings.catch_warnings():
        # the library imports modules that Python deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        import great_expectations
        from great_expectations.data_context.types import base

    # the annotations of the library ask for more than it takes
    gx: Any = great_expectations
    config: Any = base
    context = gx.get_context(
        mode="ephemeral",
        project_config=config.DataContextConfig(
            analytics_enabled=False,
            progress_bars={"globally": False},
            store_backend_defaults=config.InMemoryStoreBackendDefaults(),
        ),
    )
    stated = _expectations(gx, certifying, alpha)
    suite = context.suites.add(gx.ExpectationSuite(name="runs", expectations=stated))
    batch = (
        context.data_sources.add_pandas("corpus")
        .add_dataframe_asset("runs")
        .add_batch_definition_whole_dataframe("runs")
    )
    validation = context.validation_definitions.add(
        gx.ValidationDefinition(name="runs", data=batch, suite=suite)
    )
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name="corpus",
            validation_definitions=[validation],
            result_format={"result_format": "BASIC", "partial_unexpected_count": _FEW},
        )
    )
    (found,) = checkpoint.run(batch_parameters={"dataframe": runs}).run_results.values()
    order = [(one.column, one.description) for one in stated]
    return sorted(
        map(_expectation, found.results), key=lambda one: order.index((one.column, one.expected))
    )


def _expectations(gx: Any, certifying: Sequence[str], alpha: float) -> list[Any]:
    from great_expectations.expectations.row_conditions import Column

    column: Any = Column
    make, needed = gx.expectations, n_min(alpha, _DELTA / WHOLE_SHARE)
    names = " and ".join(name.upper() for name in certifying)
    return [
        *(
            make.ExpectColumnValuesToNotBeNull(column=name, description="No value is missing.")
            for name in _REQUIRED
        ),
        make.ExpectColumnValuesToBeUnique(
            column="trajectory_id", description="Every run has an id of its own."
        ),
        make.ExpectColumnValuesToBeInSet(
            column="outcome", value_set=[0, 1], description="Every known outcome is 0 or 1."
        ),
        make.ExpectColumnValuesToBeUnique(
            column="texts", description="No two runs have the same texts."
        ),
        make.ExpectColumnValuesToBeInSet(
            column="splits_of_task", value_set=[1], description="Every task is in one split."
        ),
        make.ExpectColumnUniqueValueCountToBeBetween(
            column="task_id",
            min_value=needed,
            row_condition=column("split").is_in(list(certifying)),
            description=f"{names} together have the {needed} tasks that α = {alpha:g} needs.",
        ),
    ]


def _expectation(found: Any) -> Expectation:
    result, stated = found.result, found.expectation_config
    share = result.get("unexpected_percent")
    return Expectation(
        column=stated.kwargs["column"],
        expected=stated.description,
        met=bool(found.success),
        observed=str(result.get("observed_value", ""))
        if share is None
        else f"{share:.4g} % unexpected",
        unexpected=", ".join(
            str(value)[:_LONGEST] for value in result.get("partial_unexpected_list") or ()
        ),
    )
