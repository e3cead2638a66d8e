"""The pool of what uses a language model."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from certify_assets.definitions import defs
from certify_assets.defs.policies import POOL
from certify_assets_tests.paths import REPOSITORY


def test_what_trains_or_scores_with_a_language_model_is_in_the_pool() -> None:
    def pools(judge: str, part: str) -> set[str]:
        node = defs.resolve_asset_graph().get(dg.AssetKey(["judges", judge, part]))
        return set(node.assets_def.node_def.pools)

    assert pools("sft", "scores") == pools("sft", "model") == {POOL}
    assert not pools("lexical", "scores") and not pools("lexical", "model")


@pytest.mark.slow
def test_where_a_judge_needs_a_gpu_its_decisions_ask_for_one(tmp_path: Path) -> None:
    code = (
        "from certify_assets.definitions import defs\n"
        "graph = defs.resolve_asset_graph()\n"
        "for name in ('decisions', 'recertification'):\n"
        "    (key,) = (key for key in graph.get_all_asset_keys() if key.path[-1] == name)\n"
        "    op = graph.get(key).assets_def.op\n"
        "    print(op.pool, op.tags.get('dagster-ray/config'))\n"
    )

    def settings() -> set[str]:
        environment = {
            **os.environ,
            "CERTIFY_ROOT": str(tmp_path),
            "PYTHONPATH": str(REPOSITORY),
        }
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return set(done.stdout.splitlines())

    assert settings() == {"None None"}, "two cores suffice for the platform's own models"
    (tmp_path / "judges.yaml").write_text(
        "judges: [{name: mine, family: base, model: org/large, revision: " + "a" * 40 + "}]",
        encoding="utf-8",
    )
    assert settings() == {f'{POOL} {{"num_cpus": 4, "num_gpus": 1}}'}
