"""Judges: whatever reads a rendered trajectory and says how likely it is a success."""
