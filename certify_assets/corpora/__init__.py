"""Corpora: from published or incoming agent runs to rendered, checked, task-disjoint splits."""
