"""The paper's laboratory: studies of a corpus, and tables over all corpora."""
