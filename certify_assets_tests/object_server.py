"""An S3 server of this machine: `python -m certify_assets_tests.object_server PORT [--unconditional]`."""

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


def main(port: int, *, unconditional: bool) -> None:
    """Serve S3 from memory; `unconditional` as servers were before they had conditional writes."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    served = DomainDispatcherApplication(create_backend_app)

    stumbled = set()

    def serve(environ: dict[str, Any], answer: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if unconditional:
            environ = {name: of for name, of in environ.items() if name not in _CONDITIONS}
        elif environ["REQUEST_METHOD"] == "PUT" and "/stumbling/" in path and path not in stumbled:
            # stored, and nobody learns it: the first answer is lost
            stumbled.add(path)
            list(served(environ, lambda *_: lambda _: None))
            answer("503 Slow Down", [])
            return []
        found: Iterable[bytes] = served(environ, answer)
        return found

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # one request at a time: moto asks whether a condition holds and stores in two steps
    run_simple(
        "127.0.0.1",
        port,
        serve,
        threaded=False,
        request_handler=MotoRequestHandler,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), unconditional="--unconditional" in sys.argv)
