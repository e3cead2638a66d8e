"""Ask the advisory services about every pinned dependency.

    python tools/audit_dependencies.py [PIP_AUDIT]

Exit 0 with a count where every pin was audited and none has an advisory; 1 with the advisories; 0
with a sentence that begins with SKIPPED where no service answered. pip-audit calls a pin that its
service does not know "skipped" and ends well: here that is no pass.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
SERVICES = ("pypi", "osv")
SECONDS = 300


def asked(program: str, service: str, constraints: Path) -> tuple[list[dict[str, Any]], str]:
    """Return what a service says of every pin, and why it said nothing."""
    command = [
        program,
        "-s",
        service,
        "-r",
        str(constraints),
        "--no-deps",
        "--disable-pip",
        "-f",
        "json",
        "--progress-spinner",
        "off",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        return list(json.loads(done.stdout)["dependencies"]), ""
    except subprocess.TimeoutExpired:
        return [], f"no answer within {SECONDS} s"
    except FileNotFoundError:
        return [], f"{program} is not installed"
    except (ValueError, KeyError, TypeError):
        return [], (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]


def _fixed_in(pin: Mapping[str, Any]) -> list[str]:
    return [version for found in pin["vulns"] for version in found.get("fix_versions", ())]


def verdict_of(pins: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]) -> tuple[int, str]:
    """Return exit code and sentences for what the services said of all pins."""
    audited = [pin for pin in pins if "skip_reason" not in pin]
    bad = [pin for pin in audited if pin.get("vulns")]
    lines = [
        f"{pin['name']} {pin['version']}: {', '.join(str(found['id']) for found in pin['vulns'])} "
        f"(fixed in {', '.join(_fixed_in(pin)) or 'no release'})"
        for pin in bad
    ]
    if bad:
        return 1, "\n".join(
            [f"{len(bad)} of {len(pins)} pinned dependencies have advisories:", *lines]
        )
    if not audited:
        why = "; ".join(f"{service}: {reason}" for service, reason in reasons.items())
        return (
            0,
            f"SKIPPED: dependencies were not audited, no advisory service answered ({why}). This "
            "is no pass; run it where one is reachable.",
        )
    missing = [str(pin["name"]) for pin in pins if "skip_reason" in pin]
    if missing:
        return (
            0,
            f"SKIPPED in part: {len(audited)} of {len(pins)} pins audited, no advisory; not known "
            f"to the service: {', '.join(missing)}.",
        )
    return 0, f"{len(audited)} pinned dependencies audited, no advisory."


def main(arguments: Sequence[str]) -> int:
    """Ask one service after another until one knows the pins."""
    program = arguments[0] if arguments else str(Path(sys.executable).with_name("pip-audit"))
    reasons: dict[str, str] = {}
    best: list[dict[str, Any]] = []
    for service in SERVICES:
        pins, reason = asked(program, service, REPOSITORY / "constraints.txt")
        skipped = sum("skip_reason" in pin for pin in pins)
        reasons[service] = reason or f"knows {len(pins) - skipped} of {len(pins)} pins"
        if not best or sum("skip_reason" not in pin for pin in best) < len(pins) - skipped:
            best = pins
        if pins and not skipped:
            break
    code, sentence = verdict_of(best, reasons)
    print(sentence)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
