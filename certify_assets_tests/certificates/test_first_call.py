"""The first certificate of an installation has nothing to compile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from certify_assets_tests.paths import REPOSITORY

TABLE = """
import numpy as np
rng = np.random.default_rng(0)
tasks = np.repeat(np.arange(150), 10)
outcomes = (rng.random(1500) < rng.beta(1, 1, 150)[tasks]).astype(int)
scores = 3.0 * outcomes + rng.normal(size=1500)
"""
CERTIFICATE = f"""{TABLE}
from certify_assets.certificates import certify, verify
for side in ("reject", "release"):
    for labels in (tasks, tasks.astype(str), tasks.tolist()):
        certificate = certify(scores, outcomes, labels, side=side)
    verify(certificate.to_dict(), scores, outcomes, tasks)
    certify(scores, outcomes, tasks, side=side, procedure="guarded_taskboot")
    certify(scores, outcomes, tasks, side=side, procedure="one_per_task")
"""
COMPILED = f"""{TABLE}
from numba.core import event
from certify_assets.certificates import certify, resample_audit
with event.install_recorder("numba:compile") as seen:
    certify(scores, outcomes, tasks, procedure="guarded_taskboot", engine="montecarlo")
    resample_audit(scores, outcomes, tasks, threshold=0.0, draws=500)
print(len(seen.buffer))
"""


def run(code: str, cache: Path) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_certificate_of_default_form_loads_no_compiler(tmp_path: Path) -> None:
    loaded = run(f"{CERTIFICATE}\nimport sys; print('numba' in sys.modules)", tmp_path)
    assert loaded.split() == ["False"]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_filled_cache_spares_every_later_process_the_compilation(tmp_path: Path) -> None:
    run("from certify_assets.certificates.compiled import compile_all; compile_all()", tmp_path)
    assert run(COMPILED, tmp_path).split() == ["0"]
