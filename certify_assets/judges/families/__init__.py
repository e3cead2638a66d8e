"""Judge families: every module here registers one, and nothing else names it."""
