"""Judges: programs and models that read a trajectory and estimate the probability of success."""
