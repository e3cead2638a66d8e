"""The version; imports nothing, so that packaging and certificates read one number."""

from __future__ import annotations

__version__ = "0.2.0"
