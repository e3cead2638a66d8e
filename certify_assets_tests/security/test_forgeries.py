"""Altered manifests, certificates, scores, audits and ledgers: every value of what a result rests on, each refused in a sentence."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from certify_assets.corpora.corpus import Corpus
from certify_assets.errors import CertifyError, IntegrityError
from certify_assets.operations import certifier
from certify_assets.operations.audit import audit_judge, load_audits
from certify_assets.operations.ledger import record_read, register
from certify_assets.storage.care import verify
from certify_assets.storage.database import events
from certify_assets.storage.store import Store
from certify_assets_tests.builders import judged
from certify_assets_tests.cli.calling import Answer, Call
from certify_assets_tests.cli.conftest import call  # noqa: F401 - a fixture
from certify_assets_tests.security.altering import altered, leaves

#: document → values that no step rests on: they describe, or are compared elsewhere when the document is made
DESCRIPTIONS: dict[str, set[str]] = {
    "corpora/one/splits/manifest.json": set(),
    "judges/lexical/one/certificates.json": set(),
    "judges/lexical/one/scores.json": {"rows"},
    "judges/lexical/one/audits.json": {"test_scores_sha256", "registration"},
}


def _use(store: Store) -> None:
    """What stands between a stored certificate and a page that shows it."""
    certifier.load_certificates(judged(store, "one"))
    problems = certifier.verify_stored(judged(store, "one"))
    if problems:
        raise CertifyError(problems[0])
    load_audits(judged(store, "one"))


def _assert_refused(store: Store, key: str, *, every: int) -> tuple[int, int]:
    original, document = store.read_bytes(key), store.read_json(key)
    paths = [path for path in leaves(document) if str(path[-1]) not in DESCRIPTIONS[key]]
    refused = 0
    for path in paths[::every]:
        store.write_json(key, altered(document, path))
        with pytest.raises(CertifyError) as caught:
            _use(store)
        assert len(str(caught.value)) > 20 and "\n" not in str(caught.value), path
        refused += 1
    store.write_bytes(key, original)
    _use(store)
    return refused, len(paths)


@pytest.fixture
def audited(corpora: Store) -> Store:
    audit_judge(judged(corpora, "one"))
    return corpora


@pytest.mark.slow
@pytest.mark.parametrize("key", DESCRIPTIONS)
def test_every_altered_value_is_refused(audited: Store, key: str) -> None:
    # what does not come from the altered document is read and verified once
    refused, there = _assert_refused(audited.now(), key, every=1)
    print(f"{key}: {refused} of {there} altered values refused")
    assert refused == there


def test_every_altered_value_of_an_event_is_found(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "root"))
    registration = register(Corpus(store, "c"), {"seed": 1}, run_id="cli")
    for judge in ("a", "b"):
        record_read(
            Corpus(store, "c"),
            judge=judge,
            registration=registration,
            configuration={"scores": judge},
            run_id="cli",
        )
    verify(store)
    with store.database.engine.connect() as connection:
        # as its owner can
        connection.execute(sa.text("DROP TRIGGER events_update"))
        for row in connection.execute(sa.select(events)).all():
            this = sa.update(events).where(events.c.corpus == "c")
            for name, value in row._mapping.items():
                other = value + 10 if isinstance(value, int) else f"{value}0"
                where = events.c.sequence == (other if name == "sequence" else row.sequence)
                connection.execute(
                    this.where(events.c.sequence == row.sequence).values({name: other})
                )
                connection.commit()
                if name != "corpus":
                    with pytest.raises(IntegrityError, match=r"event \d of c was altered"):
                        verify(store)
                every = sa.update(events).where(where)
                connection.execute(every.values({name: value}))
                connection.commit()
    verify(store)


def test_the_command_refuses_a_forged_certificate_wherever_one_is_read(
    corpora: Store,
    tmp_path: Path,
    call: Call,  # noqa: F811
) -> None:
    from certify_assets.certificates import Certificate

    document = corpora.read_json("judges/lexical/one/certificates.json")["certificates"]
    found = next(item for item in document if item["certified"] and item["side"] == "reject")
    scores = corpora.locate("judges/lexical/one/scores.parquet")
    forged = tmp_path / "forged.json"
    page = ("report", forged, scores, "--out", tmp_path / "x.html")
    for name, value in (("alpha", 0.01), ("coverage", 0.99), ("threshold", 9.0)):
        forged.write_text(json.dumps({**found, name: value}), "utf-8")
        for command in (("verify", forged, scores), ("decide", forged, scores), page):
            _assert_complains(call(*command))
    # with the digest made anew, as somebody would who knows how it is made; `decide` has no CAL to recompute it from
    forged.write_text(
        json.dumps(
            Certificate.from_dict(found)
            .replace(statement="Nobody needs to read anything.")
            .to_dict()
        ),
        "utf-8",
    )
    for command in (("verify", forged, scores), page):
        _assert_complains(call(*command))
    assert not (tmp_path / "x.html").exists()


def _assert_complains(answer: Answer) -> None:
    assert answer.code in (2, 3)
    assert answer.err.startswith("certify: ")
    assert answer.err.count("\n") == 1
