"""Partitions: one a corpus, added by a command or a sensor while the platform runs."""

from __future__ import annotations

import dagster as dg

__all__ = ["CORPORA", "corpora_partitions"]

CORPORA = "corpora"
corpora_partitions = dg.DynamicPartitionsDefinition(name=CORPORA)
