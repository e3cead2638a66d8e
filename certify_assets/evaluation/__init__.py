"""Evaluation: score tables, the TEST ledger, certification, audits, comparison."""
