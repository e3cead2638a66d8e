"""Tables as people write them: files of every kind, and their cells as scores, outcomes, names."""
