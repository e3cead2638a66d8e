"""Definitions of corpora."""

import dagster as dg

from certify_assets.defs.corpora.assets import corpus_assets
from certify_assets.defs.corpora.checks import corpus_checks


def corpora_definitions() -> dg.Definitions:
    """Return assets and checks."""
    return dg.Definitions(assets=corpus_assets(), asset_checks=corpus_checks())
