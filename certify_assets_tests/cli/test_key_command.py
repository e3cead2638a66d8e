"""``certify key``, --sign and --public-key: who signed a certificate, and which is nobody's."""

from pathlib import Path

import pytest

from certify_assets.storage.signature import VARIABLE
from certify_assets_tests.cli.calling import Call


def test_commands_make_a_key_sign_with_it_and_say_whose_it_is(
    call: Call, scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other, out = tmp_path / "team", tmp_path / "other", tmp_path / "certificate.json"
    made = call("key", "new", key, "--owner", "Evaluation team", "--json").json
    assert call("key", "new", other).code == 0 and call("key", "new", key).code == 2
    plain = call(f"certificate {scores} --json").out
    assert call(f"certificate {scores} --sign {key}").code == 2, "--sign without --out"
    assert call(f"certificate {scores} --out {out} --sign {key} --json").out == plain
    assert out.read_text("utf-8") == plain, "the document is that of an unsigned one"
    answer = call(f"verify {out} {scores} --public-key {key}.pub --json")
    assert answer.code == 0 and answer.json["verified"]
    assert answer.json["signed_by"] == {"key": made["key"], "owner": "Evaluation team"}
    assert "Signed by Evaluation team (SHA256:" in call(
        f"verify {out} {scores} --public-key {key}.pub"
    ).out.replace("\n", " ")
    assert "signed_by" not in call(f"verify {out} {scores} --json").json
    refused = call(f"verify {out} {scores} --public-key {other}.pub")
    assert refused.code == 3 and "none of those given" in refused.err
    # without --sign the environment decides; another certificate under the old signature
    signature = Path(f"{out}.sig").read_bytes()
    call(f"certificate {scores} --out {out} --alpha .2")
    assert Path(f"{out}.sig").read_bytes() == signature
    refused = call(f"verify {out} {scores} --public-key {key}.pub")
    assert refused.code == 3 and "altered after it was signed" in " ".join(refused.err.split())
    monkeypatch.setenv(VARIABLE, other.read_text("utf-8"))
    assert call(f"certificate {scores}").code in (0, 3), "without --out nothing is signed"
    call(f"certificate {scores} --out {out} --alpha .2")
    assert call(f"verify {out} {scores} --public-key {other}.pub").code == 0
    Path(f"{out}.sig").unlink()
    refused = call(f"verify {out} {scores} --public-key {other}.pub")
    assert refused.code == 3 and "nobody signed" in " ".join(refused.err.split())
