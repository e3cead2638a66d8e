"""From source runs to verified splits."""
