"""The Dagster side: a folder a domain, thin assets that call one function of the library each."""

import warnings

import dagster as dg

# partitions on checks are marked as preview in Dagster 1.13; the versions are pinned as a pair, so
# the notice would only bury real ones
warnings.filterwarnings(
    "ignore", message="Specifying a partitions_def on an AssetCheckSpec", category=dg.PreviewWarning
)
