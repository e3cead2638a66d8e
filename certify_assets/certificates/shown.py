"""Showing a value in a message, whatever it is."""

from __future__ import annotations

__all__ = ["shown"]


def shown(value: object, length: int = 80) -> str:
    """Return a value as ASCII text of limited length, also when Python itself will not print it."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        # an integer of thousands of digits, or nesting as deep as the stack
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= length else f"{text[: length - 3]}..."
