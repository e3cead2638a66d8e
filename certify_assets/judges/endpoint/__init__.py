"""Judges behind OpenAI-compatible servers.

Questions, replies, a client that keeps what was answered, and the bill.
"""
