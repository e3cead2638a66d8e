"""Documents that users write, damaged anywhere: each is read, or refused in words."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from certify_assets.certificates import certify
from certify_assets.certificates.certificate_files import load_certificates
from certify_assets.errors import CertifyError
from certify_assets.judges.specs import judge_problems, judges
from certify_assets.operations.notifications import read_notifications
from certify_assets.storage.store import Store
from certify_assets.tables.score_table import read_labels, read_score_table


def _certificate() -> bytes:
    scores = [(number * 37) % 80 / 80 for number in range(80)]
    outcomes = [int(score > 0.5) for score in scores]
    tasks = [number // 2 for number in range(80)]
    return certify(scores, outcomes, tasks, side="reject", procedure="taskboot").to_json()


_TABLE = b"trajectory_id,task_id,score,outcome\na/1,a,0.5,1\na/2,a,-1.25,0\nb/1,b,3,1\n"
_JUDGES = b"""judges:
  - {name: mine, url: 'http://127.0.0.1:1/v1', model: m}
  - {name: own, family: lexical, reading: {chars: whole}}
"""
_NOTIFIED = b"""targets:
  - {name: team, apprise: TEAM, events: [alarm]}
  - {name: chat, apprise: ON_CALL}
"""
#: by file of a data root, what it says and who reads it
DOCUMENTS: dict[str, tuple[bytes, Callable[[Path, Path], object]]] = {
    "scores.csv": (_TABLE, lambda root, path: read_score_table(path)),
    "labels.csv": (_TABLE, lambda root, path: read_labels(path)),
    "certificate.json": (_certificate(), lambda root, path: load_certificates(path)),
    "judges.yaml": (_JUDGES, lambda root, path: (judges(str(root)), judge_problems(str(root)))),
    "notifications.yaml": (_NOTIFIED, lambda root, path: read_notifications(Store(str(root)))),
}


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(place=st.floats(0, 1), junk=st.binary(max_size=8), cut=st.booleans())
@example(place=0.0, junk=b"1", cut=True)
def test_damage_is_read_or_refused_in_words(
    tmp_path: Path, name: str, place: float, junk: bytes, cut: bool
) -> None:
    content, read = DOCUMENTS[name]
    path = tmp_path / name
    path.write_bytes(content)
    read(tmp_path, path)
    begin = int(place * len(content))
    path.write_bytes(content[:begin] + junk + (b"" if cut else content[begin + len(junk) :]))
    try:
        read(tmp_path, path)
    except CertifyError as error:
        assert str(error).strip()
