"""Tables from files of every kind, and their cells read as scores, outcomes and names."""
