"""Steps: read at one moment, write at once, or not at all."""

import multiprocessing
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from certify_assets.errors import CertifyError, ChangedInputError, InputError, IntegrityError
from certify_assets.storage import store as storage
from certify_assets.storage.care import verify
from certify_assets.storage.database import ANYWHERE, FILE, ROOT_FILE, VARIABLE, Database
from certify_assets.storage.events import Payload, chain
from certify_assets.storage.folder import Folder
from certify_assets.storage.moment import remembered
from certify_assets.storage.store import Store

A, B, PAGE = "corpora/c/a.json", "judges/lexical/c/b.json", "corpora/c/page.html"


class Numbered(Payload):
    """A number that must be given once."""

    kind = "numbered"
    number: int
    worker: str = ""

    @property
    def subject(self) -> str:
        return self.worker


def said(number: int) -> Callable[[Store], dict[str, Numbered]]:
    """Return the work of a short step that says a number."""
    return lambda _: {f"form {number}": Numbered(number=number)}


def length(store: Store, corpus: str = "c") -> int:
    """Verify the chain of a corpus, and return its length."""
    with store.database.reading() as connection:
        return len(list(chain(connection, corpus)))


def test_a_snapshot_stays_at_its_moment(store: Store) -> None:
    store.write_json(A, 1)
    then = store.now()
    assert then.read_json(A) == 1
    store.write_json(A, 2)
    store.write_json(B, 2)
    assert then.read_json(A) == 1 and not then.exists(B) and then.names("judges/lexical/c") == []
    then.refresh()
    assert then.read_json(A) == 2 and then.names("judges/lexical/c") == ["b.json"]
    assert store.now().read_json(B) == 2 and store.corpora() == ["c"]


def test_a_step_stores_all_or_nothing(store: Store) -> None:
    view = store.now()
    with pytest.raises(ZeroDivisionError), view.step():
        view.write_json(A, 1)
        assert view.read_json(A) == 1 and not store.exists(A)
        raise ZeroDivisionError
    assert not view.exists(A) and not store.exists(A)
    with view.step(), view.step():
        view.write_json(A, 1)
        view.append("c", Numbered(number=1))
    assert store.read_json(A) == 1
    assert [entry.content.number for entry in store.events("c", Numbered)] == [1]
    with view.step():
        view.write_json(A, 1)
    # the same again is no event
    assert length(store) == 2


@pytest.mark.parametrize("ask", ["read", "exists", "names", "events", "subjects", "remembered"])
def test_a_step_whose_input_was_replaced_stores_nothing(store: Store, ask: str) -> None:
    view = store.now()
    asking: dict[str, Callable[[], object]] = {
        "read": lambda: view.read_json(A),
        "exists": lambda: view.exists(B),
        "names": lambda: view.names("judges/lexical/c"),
        "events": lambda: view.events("c", Numbered),
        "subjects": lambda: view.subjects("c", Numbered),
        "remembered": lambda: view.remember("both", lambda: (view.exists(A), view.exists(B))),
    }
    store.write_json(A, 1)
    asking["remembered"]()
    with pytest.raises(ChangedInputError, match="Run this again"), view.step():
        asking[ask]()
        store.write_json(A if ask == "read" else B, 2)
        store.append("c", Numbered(number=7))
        view.write_json("corpora/c/result.json", 3)
    assert not store.exists("corpora/c/result.json")
    with view.step():
        asking[ask]()
        view.write_json("corpora/c/result.json", 3)
    assert store.read_json("corpora/c/result.json") == 3


def test_who_asks_for_the_corpora_notices_one_that_begins(store: Store) -> None:
    store.write_json(A, 1)
    view = store.now()
    with pytest.raises(ChangedInputError, match="added corpus d"), view.step():
        assert view.corpora() == ["c"]
        store.append("c", Numbered(number=1))
        store.append("d", Numbered(number=1))
        view.write_json(B, 1)
    with view.step():
        assert view.corpora() == ["c", "d"]
        # one that the step itself begins is no surprise, also one that is committed before it
        view.short("f", said(1))
        view.append("e", Numbered(number=1))
    assert view.corpora() == store.corpora() == ["c", "d", "e", "f"]


def test_of_two_steps_that_read_each_other_one_is_first(store: Store) -> None:
    rounds, meeting, done = range(20), threading.Barrier(2), list[int]()
    for name in "cd":
        store.write_json(f"corpora/{name}/a.json", 0)

    def change(name: str, other: str) -> None:
        for number in rounds:
            view = store.now()
            with suppress(ChangedInputError):
                with view.step():
                    seen = view.sha256(f"corpora/{other}/a.json")
                    meeting.wait()
                    view.write_json(f"corpora/{name}/a.json", [number, seen])
                done.append(number)
            meeting.wait()

    threads = [threading.Thread(target=change, args=pair) for pair in ("cd", "dc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(rounds)


def test_what_a_step_stores_unchanged_is_watched(store: Store) -> None:
    for key in (A, B):
        store.write_json(key, 1)
    view = store.now()
    with pytest.raises(ChangedInputError), view.step():
        assert not view.exists(PAGE)
        view.write_json(A, 1)
        view.write_json(B, 2)
        store.write_json(A, 3)
    assert store.read_json(B) == 1


def test_a_step_that_goes_on_now_needs_what_it_read(store: Store) -> None:
    view = store.now()
    store.write_json(A, 1)
    with pytest.raises(ChangedInputError), view.step():
        view.read_json(A)
        store.write_json(A, 2)
        view.refresh()
    with view.step():
        # what it says itself depends on nobody, and other folders are no input
        view.write_json(A, 3)
        assert view.read_json(A) == 3 and view.names("judges/lexical/c") == []
        store.write_json(A, 4)
        store.write_json("corpora/c/other.json", 4)
    assert store.read_json(A) == 3


def test_a_pinned_view_sees_what_is_pinned_and_cannot_change_it(store: Store) -> None:
    first = store.write_json(A, 1)
    store.write_json("corpora/c/other.json", 1)
    view = store.now()
    store.write_json(A, 2)
    pinned = view.pinned({A: first}, ["corpora/c"])

    def names(of: Store) -> list[str]:
        return of.remember("names", lambda: of.names("corpora/c"))

    assert names(view) == ["a.json", "other.json"] and names(pinned) == ["a.json"]
    assert pinned.read_json(A) == 1 and not pinned.exists("corpora/c/other.json")
    assert view.pinned({}, ["corpora/c"]).names("corpora/c") == []
    with pytest.raises(ValueError, match="is pinned"):
        pinned.write_json(A, 3)


def test_who_changes_an_answer_changes_that_of_nobody_else(store: Store) -> None:
    @remembered
    def answer(about: SimpleNamespace) -> tuple[list[int], pd.DataFrame]:
        return [1], pd.DataFrame({"a": [1]})

    view = SimpleNamespace(store=store.now(), identity=("c",))
    numbers, frame = answer(view)
    numbers.append(2)
    frame["b"] = 2
    numbers, frame = answer(view)
    assert numbers == [1] and list(frame) == ["a"]


def test_what_is_not_watched_may_change(store: Store) -> None:
    view = store.now()
    store.append("c", Numbered(number=1))
    with view.step():
        seen = view.events("c", Numbered, watched=False)
        store.append("c", Numbered(number=2))
        view.write_json(A, len(seen))
    assert store.read_json(A) == 1 and len(view.events("c", Numbered, watched=False)) == 2


def test_a_request_that_is_sent_twice_is_done_once(store: Store) -> None:
    view = store.now()
    for _ in range(2):
        (event,) = view.short("c", said(1))
        assert event.sequence == 1
    for number in (2, 3):
        with view.step("run"):
            view.append("c", Numbered(number=number))
            view.write_bytes(PAGE, b"<p>%d" % number)
            assert view.remember("pages", lambda: view.names("corpora/c")) == ["page.html"]
    assert [entry.content.number for entry in view.events("c", Numbered)] == [1, 2]
    assert view.read_bytes(PAGE) == b"<p>2" == Path(store.locate(PAGE)).read_bytes()


def test_a_short_step_within_a_step_is_committed_at_once(store: Store) -> None:
    view = store.now()
    store.write_json(A, 1)
    with pytest.raises(ZeroDivisionError), view.step():
        view.read_json(A)
        view.write_json(B, 1)
        view.short("c", said(1))
        assert len(view.events("c", Numbered)) == 1 and view.exists(B)
        raise ZeroDivisionError
    assert len(store.events("c", Numbered)) == 1 and not store.exists(B)
    with pytest.raises(ChangedInputError), view.step():
        view.read_json(A)
        store.write_json(A, 2)
        # nothing is claimed for a step that cannot end well
        view.short("c", said(2))
    assert len(store.events("c", Numbered)) == 1


def test_what_a_step_commits_is_kept_whatever_becomes_of_it(store: Store) -> None:
    view, told = store.now(), list[str]()
    with pytest.raises(ZeroDivisionError), view.step():
        view.write_json(A, 1)
        view.once_committed(lambda: told.append("first"))
        view.commit()
        assert store.read_json(A) == view.read_json(A) == 1 and told == ["first"]
        view.write_json(B, 1)
        raise ZeroDivisionError
    assert store.read_json(A) == 1 and not view.exists(B)
    for _ in range(2):
        with view.step("run"):
            assert view.names("judges/lexical/c") == []
            view.write_json(A, 2)
            view.commit()
            view.write_json("corpora/c/end.json", 2)
    assert length(store) == 3 and view.read_json("corpora/c/end.json") == 2
    with pytest.raises(ChangedInputError), view.step():
        view.read_json(A)
        store.write_json(A, 5)
        view.write_json(B, 4)
        view.commit()
    assert not store.exists(B)


def _claim(root: str, worker: str) -> None:
    store = Store(root).now()

    def next_number(view: Store) -> dict[str, Numbered]:
        number = 1 + len(view.events("c", Numbered))
        return {f"form {number}": Numbered(number=number, worker=worker)}

    for _ in range(10):
        store.short("c", next_number)


def test_numbers_of_many_processes_are_dense(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    store.append("other", Numbered(number=1))
    workers = [context.Process(target=_claim, args=(store.root, str(n))) for n in range(4)]
    workers += [threading.Thread(target=_claim, args=(store.root, "thread"))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = [entry.content.number for entry in store.events("c", Numbered)]
    assert found == list(range(1, 51)) and length(store) == 50


def _begin(root: str, meeting: Any, worker: str) -> None:
    meeting.wait()
    Store(root).append("c", Numbered(number=1, worker=worker))


def test_processes_that_begin_a_data_root_at_once_begin_one(
    new_store: Callable[[str], Store],
) -> None:
    context = multiprocessing.get_context("fork")
    for place in range(4):
        store, meeting = new_store(f"root{place}"), context.Barrier(4)
        workers = [
            context.Process(target=_begin, args=(store.root, meeting, str(n))) for n in range(4)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
        assert length(store) == 4
        verify(store)


def test_pages_are_copies_of_what_is_stored(store: Store) -> None:
    store.write_bytes(PAGE, b"<p>1")
    assert Path(store.locate(PAGE)).read_bytes() == b"<p>1"

    def write(number: int) -> None:
        for step in range(5):
            store.write_bytes(PAGE, f"<p>{number} {step}".encode())

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert Path(store.locate(PAGE)).read_bytes() == store.read_bytes(PAGE)
    Path(store.locate(PAGE)).write_bytes(b"edited")
    assert storage.publish_all(store) == 1
    assert Path(store.locate(PAGE)).read_bytes() == store.read_bytes(PAGE)
    store.delete(PAGE)
    assert not Path(store.locate(PAGE)).exists()


def test_the_same_call_mends_the_page_that_a_killed_one_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_bytes(PAGE, b"<p>1")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(storage, "publish", lambda *_: 1 / 0)
        store.write_bytes(PAGE, b"<p>2")
    store.write_bytes(PAGE, b"<p>2")
    assert Path(store.locate(PAGE)).read_bytes() == b"<p>2"


def test_objects_that_were_altered_or_removed_are_refused(store: Store) -> None:
    sha256 = store.write_json(A, 1)
    path = store.objects.path(sha256)
    with store.as_file(A):
        path.write_bytes(b"2\n")
    for read in (lambda: store.read_json(A), lambda: store.as_file(A).__enter__()):
        with pytest.raises(IntegrityError, match=rf"\({A}\) was altered; restore it from a backup"):
            read()
    path.unlink()
    with pytest.raises(IntegrityError, match="is gone; restore it from a backup"):
        store.read_json(A)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = '{}'",
        "DELETE FROM events",
        "INSERT INTO events SELECT corpus, 9, kind, subject, 't', part, time, payload, previous, "
        "sha256 FROM events WHERE sequence = 1",
        "INSERT INTO events SELECT corpus, 3, kind, subject, 't', part, time, payload, 'x', "
        "sha256 FROM events WHERE sequence = 1",
        # a request is done once
        "INSERT INTO events SELECT corpus, 3, kind, subject, 'form 1', part, time, payload, "
        "sha256, sha256 FROM events WHERE sequence = 2",
        pytest.param("TRUNCATE events", marks=pytest.mark.slow),
    ],
)
def test_the_database_refuses_to_change_what_happened(store: Store, statement: str) -> None:
    for number in (1, 2):
        store.now().short("c", said(number))
    if store.database.is_sqlite and statement.startswith("TRUNCATE"):
        pytest.skip("SQLite has no such statement")
    refused = r"never|follows|events_token"
    with pytest.raises(CertifyError, match=refused), store.database.writing(["c"]) as rows:
        if store.database.is_sqlite:
            # which removes what is in the way
            statement = statement.replace("INSERT INTO", "INSERT OR REPLACE INTO")
        rows.execute(sa.text(statement))
    assert length(store) == 2


def test_texts_that_no_database_takes_are_refused(store: Store) -> None:
    for worker, said in (("\udc80", "half a character"), ("a\0b", "U\\+0000")):
        with pytest.raises(InputError, match=said):
            store.append("c", Numbered(number=1, worker=worker))
    with pytest.raises(ValidationError):
        Numbered.model_validate({"number": 1, "of_a_later_version": 2})


def test_the_database_of_another_data_root_or_version_is_refused(store: Store) -> None:
    store.write_json(A, 1)

    def open_again() -> None:
        Database(store.database.engine.url, store.folder).exists()

    with store.database.writing([]) as connection:
        connection.execute(sa.text("UPDATE properties SET value = '9' WHERE name = 'schema'"))
    with pytest.raises(IntegrityError, match="schema 9"):
        open_again()
    with store.database.writing([]) as connection:
        connection.execute(sa.text("UPDATE properties SET value = '1' WHERE name = 'schema'"))
    store.folder.write(ROOT_FILE, b'{"root": "another"}')
    with pytest.raises(IntegrityError, match="another data root"):
        open_again()
    store.folder.delete(ROOT_FILE)
    with pytest.raises(IntegrityError, match=r"or root\.json is damaged or gone"):
        open_again()


def test_what_sqlite_commits_is_on_the_disk(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json(A, 1)
    with store.database.reading() as connection:
        # no kill shows it: FULL
        assert connection.scalar(sa.text("PRAGMA synchronous")) == 2
    # in memory there is no write-ahead log
    with pytest.raises(InputError, match="cannot use its write-ahead log"):
        Database(sa.make_url("sqlite://"), Folder(str(tmp_path / "new"))).create()


def test_a_database_that_is_lost_is_not_begun_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json(A, 1)
    store.database.engine.dispose()
    for lose in (Path.unlink, Path.touch):
        lose(tmp_path / FILE)
        with pytest.raises(IntegrityError, match="is gone or empty; restore a backup"):
            Database(store.database.engine.url, store.folder).create()


def test_a_data_root_whose_making_was_killed_is_made_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_process() -> Database:
        return Database(store.database.engine.url, store.folder)

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Folder, "write", lambda *_: 1 / 0)
        store.database.create()
    assert not other_process().exists()
    other_process().create()
    store.write_json(A, 1)
    assert other_process().exists()


def test_damaged_files_are_told_in_a_sentence(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_json(A, 1)
    for text in (b"", b"{}"):
        store.folder.write(ROOT_FILE, text)
        with pytest.raises(IntegrityError, match=r"root\.json is damaged"):
            Database(store.database.engine.url, store.folder).exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / FILE).write_bytes(b"no database " * 1000)
    with pytest.raises(IntegrityError, match=r"not a database.*Restore a backup"):
        Store(str(other)).exists(A)


@pytest.mark.parametrize(
    "url",
    [
        *("words", "mysql://u:secret@host/d", "postgresql://u:secret@host:port/d"),
        *("postgresql+secret://host/d", "sqlite:////tmp/secret.db"),
    ],
)
def test_an_address_that_is_none_is_refused_and_not_repeated(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, url)
    with pytest.raises(InputError, match="is not the address of a PostgreSQL database") as refused:
        Store(str(tmp_path)).exists(A)
    assert "secret" not in "".join(format_exception(refused.value))


def test_a_path_may_hold_what_means_something_in_a_url(tmp_path: Path) -> None:
    root = tmp_path / "a b?c=1%20#"
    store = Store(str(root))
    store.write_json(A, 1)
    assert (root / FILE).exists() and [path.name for path in tmp_path.iterdir()] == [root.name]


def test_an_empty_address_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert Store(str(tmp_path)).corpora() == [] and not list(tmp_path.iterdir())


def test_a_remote_data_root_needs_a_database() -> None:
    with pytest.raises(InputError, match=VARIABLE):
        Store("memory://somewhere").exists(A)


def test_sqlite_is_refused_on_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "root"))
    monkeypatch.setattr("certify_assets.storage.database._file_system", lambda _: "nfs4")
    with pytest.raises(InputError, match="lies on nfs4, where SQLite is not safe"):
        store.write_json(A, 1)
    monkeypatch.setenv(ANYWHERE, "1")
    store.write_json(A, 1)


def test_who_waits_for_a_workplace_gets_one_that_is_there_alone(store: Store) -> None:
    inside, together = [], []

    def work() -> None:
        with Store(store.root).now().workplace("judges/lexical/c/shards") as folder:
            inside.append(folder)
            (folder / "mine").write_text("", "utf-8")
            together.append(len(inside))
            (folder / "mine").unlink()
            inside.pop()

    workers = [threading.Thread(target=work) for _ in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert together == [1] * 12


def test_what_long_work_keeps_goes_once_it_is_committed(tmp_path: Path) -> None:
    view = Store(str(tmp_path / "root")).now()
    with pytest.raises(ZeroDivisionError), view.workplace("judges/lexical/c/shards") as folder:
        (folder / "1").write_text("done")
        raise ZeroDivisionError
    with view.step():
        with view.workplace("judges/lexical/c/shards") as folder:
            assert (folder / "1").read_text() == "done"
        assert folder.exists() and not folder.is_relative_to(tmp_path)
    assert not folder.exists()
