"""The Dagster side: a folder a domain, thin assets that call one function of the library each."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

# partitions on checks are marked as preview in Dagster 1.13; the versions are pinned as a pair, so
# the notice would only bury real ones
warnings.filterwarnings(
    "ignore", message="Specifying a partitions_def on an AssetCheckSpec", category=dg.PreviewWarning
)
# partitions of two dimensions, and their mapping to one, are marked as beta
warnings.filterwarnings(
    "ignore",
    message="Class `Multi(PartitionsDefinition|ToSingleDimensionPartitionMapping)`",
    category=dg.BetaWarning,
)


@contextmanager
def without_collector() -> Iterator[None]:
    """Leave cyclic garbage where it is for a block that makes many objects and drops few."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            # the next object would have the collector walk all of them: it finds them among the old
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
