"""Evaluation: score tables, the TEST ledger, certification, audits, parity and the comparison of judges."""
