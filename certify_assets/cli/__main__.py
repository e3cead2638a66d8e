"""``python -m certify_assets.cli``: the ``certify`` command where its script is not on the path."""

from __future__ import annotations

from certify_assets.cli.main import main

if __name__ == "__main__":
    main()
