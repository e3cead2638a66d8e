"""Score tables, and how their scores were read."""
