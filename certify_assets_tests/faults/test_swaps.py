"""Files that another process replaces, and second writers, under `certify ops ingest`."""

from collections import Counter
from pathlib import Path

import pytest

from certify_assets_tests.faults.swaps import WRITERS, Worlds, table

# all places take eight minutes: `python -m certify_assets_tests.faults.swaps`
_STRIDE = 13


@pytest.mark.slow
def test_no_change_under_a_call_gives_a_mixed_decision(_operated: Path, tmp_path: Path) -> None:
    worlds = Worlds.prepare(tmp_path, _operated)
    folders = {key.partition("/")[0] for _, key in worlds.accesses}
    assert folders == {"corpora", "judges", "ledger", "leases", "operations"}
    assert {how for how, _ in worlds.accesses} >= {"look", "read", "write"}
    places = [call() for call in worlds.every_place(_STRIDE)]
    print("\n".join(table(places)))
    assert not [one for one in places if one.result.startswith(("MIXED", "LOST"))]
    found = Counter((one.disturbance, one.result) for one in places)
    for name in ("swapped", "swapped and put back", *WRITERS):
        assert found[name, "undisturbed"], name
    for name in ("swapped", "swapped and put back", "labels that raise an alarm"):
        assert found[name, "refused"], name
