"""Tables that are read in pieces: the numbers, bytes and refusals of the whole table in memory."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from certify_assets.certificates import (
    Certificate,
    Observations,
    Settings,
    certify,
    certify_counted,
    issue,
    observe,
    verify_certificate,
    verify_counted,
    verify_counted_set,
)
from certify_assets.certificates.evaluation import grids_of
from certify_assets.certificates.pool import Pool, observe_pool
from certify_assets.certificates.procedures import PROCEDURES
from certify_assets.errors import ChangedInputError, InputError
from certify_assets.evaluation.counting import counted_table
from certify_assets.evaluation.decisions import decide_pieces, decide_table
from certify_assets.evaluation.pieces import ScorePieces
from certify_assets.evaluation.score_table import ScoreTable, read_score_table
from certify_assets.evaluation.spill import NumberFile, Ranges, Spill, order_statistics
from certify_assets_tests.builders import score_rows

GRIDS = [(side, grid) for grid in (160, 40) for side in ("reject", "release")]


def _rows(seed: int = 0) -> pd.DataFrame:
    """Unequal tasks in scattered order, with ties, saturated scores and rows without a score."""
    rows = score_rows(tasks=150, attempts=9, seed=seed)
    rng = np.random.default_rng(seed)
    rows = rows[rng.random(len(rows)) < 0.1 + 0.9 * (np.arange(len(rows)) // 9 % 7 > 0)]
    rows["score"] = rows["score"].clip(-3.0, 3.0).round(2) + 0.0
    rows.loc[rng.random(len(rows)) < 0.05, "score"] = np.nan
    # a task without any score, a label that JSON escapes, a negative zero
    rows.loc[rows["task_id"] == "t013", "score"] = np.nan
    rows.loc[rows["task_id"] == "t014", "task_id"] = 'τ "14"\\'
    rows.iloc[5, rows.columns.get_loc("score")] = -0.0
    return rows.sample(frac=1, random_state=seed)


def _source(path: Path, rows: pd.DataFrame, **settings: object) -> ScorePieces:
    rows.to_parquet(path, index=False, row_group_size=300)
    return ScorePieces(path, size=170, **settings)  # type: ignore[arg-type]


def _observed(table: ScoreTable) -> Observations:
    return observe(table.scores, table.labelled(), table.tasks)


def _pool(tasks: int) -> Pool:
    """Unlabelled tasks of which some are larger than any of the table."""
    rng = np.random.default_rng(tasks)
    codes = np.repeat(np.arange(tasks), 4 + 20 * (np.arange(tasks) % 9 == 0))
    return observe_pool(rng.normal(size=codes.size).round(2), [f"pool-{code}" for code in codes])


@pytest.mark.parametrize("procedure", [item.name for item in PROCEDURES.values() if item.pieces])
def test_a_certificate_in_pieces_is_that_of_the_whole_table(tmp_path: Path, procedure: str) -> None:
    source = _source(tmp_path / "rows.parquet", _rows(len(procedure)))
    whole = _observed(read_score_table(source.path))
    # the second and third certify nothing, and the diagnosis counts too
    asked = [
        Settings(procedure=procedure, side=side, alpha=alpha, multiplicity=multiplicity)
        for side in ("reject", "release")
        for alpha, multiplicity in (
            (0.25, "bonferroni"),
            (0.0001, "bonferroni"),
            (0.01, "bonferroni" if PROCEDURES[procedure].calibrated else "fallback"),
        )
    ]
    pools = map(_pool, (60, 200) if PROCEDURES[procedure].calibrated else ())
    cases = [*product(asked, [None]), *product((asked[0], asked[3]), pools)]
    with counted_table(source, grids_of(asked, ["reject", "release"])) as counted:
        assert counted.fingerprint == whole.task_fingerprint and counted.auroc == whole.auroc
        for settings, pool in cases:
            found = issue(counted, settings, pool=pool)
            inputs = whole.task_fingerprint
            again = issue(whole, settings, inputs=inputs, pool=pool)
            assert found.to_json() == again.to_json()
            # but for the name of the table it is the certificate as ever
            named = dict.fromkeys(("inputs", "schema", "digest"))
            assert found.to_dict() | named == issue(whole, settings, pool=pool).to_dict() | named


def test_certificates_in_pieces_verify_in_pieces_and_in_memory(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.parquet", _rows())
    table = read_score_table(source.path)
    data = (table.scores, table.labelled(), table.tasks)
    with counted_table(source, GRIDS) as counted:
        found = issue(counted, Settings(alpha=0.25, size_ratio=2.0))
        assert b'"size_ratio":2,' in found.to_json()
        assert Certificate.from_json(found.to_json()) == found
        for document in (found.to_json(), found.to_dict()):
            assert verify_counted(document, counted) is None
            assert verify_certificate(document, *data, named=True) is None
        other = {**found.to_dict(), "alpha": 0.2}
        assert verify_counted(other, counted) == verify_certificate(other, *data, named=True)
        old = certify(*data)
        assert "verify it on the whole table" in str(verify_counted(old.to_dict(), counted))


@pytest.mark.slow
def test_a_pool_is_named_and_refused_in_pieces_as_in_memory(tmp_path: Path) -> None:
    source = _source(tmp_path / "rows.parquet", _rows())
    table = read_score_table(source.path)
    data = (table.scores, table.labelled(), table.tasks)
    asked, sides = [Settings(procedure="pseudo_task", alpha=0.25)], ["reject", "release"]
    pool, other = _pool(200), _pool(120)
    with counted_table(source, grids_of(asked, sides), pool) as counted:
        found = certify_counted(counted, asked, sides=sides, joint=True, pool=pool)
        assert verify_counted_set(found, counted, pool) is None
        for item in found.certificates:
            assert item.inputs["pool"] == pool.fingerprint
            assert Certificate.from_json(item.to_json()) == item
            assert verify_counted(item, counted, pool) is None
            assert "inputs.pool.sha256" in str(verify_counted(item, counted, other))
            with pytest.raises(InputError, match="cannot be recomputed without it"):
                verify_counted(item, counted)
    known = [label for label in table.tasks.tolist() if label != "t003"]
    itself = observe_pool(table.scores, table.tasks)
    part = observe_pool(np.zeros(len(known) + 1), [*known, "another"])
    for shared in (itself, part):
        with pytest.raises(InputError) as whole:
            certify(*data, procedure="pseudo_task", pool=(shared.scores, _labels(shared)))
        with (
            counted_table(source, grids_of(asked, sides), shared) as counted,
            pytest.raises(InputError) as pieces,
        ):
            issue(counted, asked[0], pool=shared)
        assert str(pieces.value) == str(whole.value)


def _labels(pool: Pool) -> list[str]:
    return [pool.labels[code] for code in pool.tasks.tolist()]


def test_tasks_without_any_score_are_a_part_of_their_own(tmp_path: Path) -> None:
    rows = _rows()
    rows.loc[rows["task_id"] != "t001", "score"] = np.nan
    source = _source(tmp_path / "rows.parquet", rows)
    table = read_score_table(source.path)
    whole = _observed(table)
    with counted_table(source, GRIDS) as counted:
        settings = Settings(procedure="naive")
        found = issue(counted, settings).to_json()
    assert found == issue(whole, settings, inputs=whole.task_fingerprint).to_json()


def test_findings_of_a_table_in_pieces_are_those_of_the_table_in_memory(tmp_path: Path) -> None:
    rows = _rows().drop(columns="trajectory_id")
    easy = rows.assign(outcome=lambda frame: frame["outcome"] * (frame["task_id"] < "t015"))
    source = _source(tmp_path / "0.parquet", rows)
    for number, (table, found, given) in enumerate(
        (
            (rows, "duplicate_rows", source),
            (rows.drop(columns="agent"), "duplicate_rows", None),
            (easy, "any_judge", None),
            (rows, "scores_look_reversed", replace(source, lower_is_better=True)),
        ),
        1,
    ):
        pieces = given or _source(tmp_path / f"{number}.parquet", table)
        whole = read_score_table(pieces.path)
        scores = -whole.scores if pieces.lower_is_better else whole.scores
        data = (scores, whole.labelled(), whole.tasks)
        with counted_table(pieces, GRIDS) as counted:
            (item,) = certify_counted(
                counted, [Settings(alpha=0.25)], sides=["reject"], joint=False
            ).certificates
            assert found in {finding["code"] for finding in item.findings}
            assert verify_counted(item, counted) is None
            assert verify_certificate(item, *data, agents=whole.agents) is None


def test_the_name_of_a_table_does_not_depend_on_pieces_or_order(tmp_path: Path) -> None:
    rows = _rows()
    names = set()
    for number, given in enumerate((rows, rows.sort_values("score"))):
        path = tmp_path / f"{number}.parquet"
        given.to_parquet(path, index=False)
        for size in (10, 1000, 10**6):
            with counted_table(ScorePieces(path, size=size), GRIDS[:1]) as counted:
                names.add(counted.sha256)
    assert len(names) == 1
    rows.iloc[3, rows.columns.get_loc("outcome")] ^= 1
    with counted_table(_source(tmp_path / "other.parquet", rows), GRIDS[:1]) as counted:
        assert counted.sha256 not in names


def test_the_split_is_chosen_in_pieces_too(tmp_path: Path) -> None:
    rows = _rows().assign(split=lambda frame: np.where(frame["task_id"] < "t070", "cal", "test"))
    # what is not chosen needs no label
    rows["outcome"] = rows["outcome"].astype(float).where(rows["split"] == "cal")
    source = _source(tmp_path / "rows.parquet", rows, split="cal")
    whole = _observed(read_score_table(source.path).choose_split("cal"))
    with counted_table(source, GRIDS) as counted:
        assert counted.fingerprint == whole.task_fingerprint
    other = ScorePieces(source.path, split="rl")
    with pytest.raises(InputError, match=r"no row with split='rl'; splits found: cal, test"):
        list(other.chosen())


def _refusal(source: ScorePieces) -> str:
    with pytest.raises(InputError) as found, counted_table(source, GRIDS):
        pass
    return str(found.value)


def test_what_the_whole_table_refuses_is_refused_by_the_same_sentence(tmp_path: Path) -> None:
    rows, sound = _rows().reset_index(drop=True), _source(tmp_path / "rows.parquet", _rows())
    for number, (column, places, value) in enumerate(
        (
            ("score", [900], np.inf),
            ("outcome", [801, 900], None),
            ("outcome", [900], 2),
            ("task_id", [900], ""),
            # in another piece than its twin
            ("trajectory_id", [900], rows["trajectory_id"][3]),
        )
    ):
        wrong = rows.astype({"outcome": object})
        for place in places:
            wrong.loc[place, column] = value
        source = _source(tmp_path / f"{number}.parquet", wrong)
        with pytest.raises(InputError) as whole:
            read_score_table(source.path).labelled()
        assert _refusal(source) == str(whole.value)
        assert column in str(whole.value).replace("split", "")
    for changed, words in (
        (rows.drop(columns="outcome"), "has no outcome column"),
        (rows.drop(columns="score"), "has no column 'score'"),
        (rows.iloc[:0], "has a header but no rows"),
    ):
        assert words in _refusal(_source(tmp_path / "less.parquet", changed))
    with pytest.raises(InputError, match="is no Parquet file, and only those are read in pieces"):
        ScorePieces(sound.path.with_suffix(".csv"))
    with pytest.raises(InputError, match="does not exist"):
        ScorePieces(tmp_path / "nowhere.parquet")
    sound.path.write_bytes(sound.path.read_bytes()[:-100])
    assert "cannot be read as Parquet" in _refusal(ScorePieces(sound.path))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"procedure": "one_per_task"}, "one_per_task needs all rows"),
        ({"procedure": "betting"}, "betting needs all rows"),
        ({"procedure": "gaffke"}, "gaffke needs all rows"),
        ({"procedure": "two_way"}, "two_way needs all rows"),
        ({"procedure": "taskboot", "engine": "montecarlo"}, "engine montecarlo needs all rows"),
        ({"procedure": "taskboot", "multiplicity": "maxt"}, "multiplicity maxt needs all rows"),
        ({"seed": 2**53}, "above the whole numbers of RFC 8785"),
    ],
)
def test_what_needs_all_rows_refuses(
    tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    source = _source(tmp_path / "rows.parquet", _rows())
    with counted_table(source, GRIDS) as counted, pytest.raises(InputError, match=words):
        issue(counted, Settings(**settings))  # type: ignore[arg-type]


def _certificates(rows: pd.DataFrame) -> list[Certificate]:
    return [
        certify(rows["score"], rows["outcome"], rows["task_id"], side=side, alpha=0.25)
        for side in ("reject", "release")
    ]


def test_decisions_and_queue_in_pieces_are_those_of_the_whole_table(tmp_path: Path) -> None:
    rows = _rows().assign(split="cal")
    certificates = _certificates(rows)
    nothing = [certify([0.0, 1.0], [0, 1], ["a", "b"])]
    everything = rows[rows["score"] < -2]
    for number, (given, table) in enumerate(
        (
            (certificates, rows),
            (certificates[:1], rows.drop(columns=["outcome", "agent"])),
            (nothing, rows),
            (certificates, everything),
        )
    ):
        source = _source(tmp_path / f"{number}.parquet", table)
        outputs = {name: tmp_path / f"{number}-{name}.parquet" for name in ("decisions", "queue")}
        counts = decide_pieces(given, source, **outputs)
        whole = decide_table(given, read_score_table(source.path))
        for name, frame in (("decisions", whole.frame), ("queue", whole.frame.iloc[whole.queue()])):
            pd.testing.assert_frame_equal(
                pd.read_parquet(outputs[name]), frame.reset_index(drop=True)
            )
        assert counts.reasons() == whole.reasons()
        assert counts.certificate_sha256 == whole.certificate_sha256
        assert all(counts.count(name) == whole.count(name) for name in ("reject", "human"))


def test_a_file_that_changes_leaves_no_result(tmp_path: Path) -> None:
    rows = _rows()
    source = _source(tmp_path / "rows.parquet", rows)
    passage = source.chosen()
    next(passage)
    # replaced, as writers of this package do, and so read to its end all the same
    rows.to_parquet(tmp_path / "new.parquet", index=False)
    (tmp_path / "new.parquet").replace(source.path)
    with pytest.raises(ChangedInputError, match="was changed while it was read"):
        list(passage)
    with pytest.raises(ChangedInputError), counted_table(source, GRIDS):
        pass
    outputs = {name: tmp_path / f"{name}.parquet" for name in ("decisions", "queue")}
    with pytest.raises(ChangedInputError):
        decide_pieces(_certificates(rows), source, **outputs)
    # and one that is cut while it is read
    cut = _source(tmp_path / "cut.parquet", rows)
    cut.path.write_bytes(cut.path.read_bytes()[:-100])
    with pytest.raises(ChangedInputError):
        decide_pieces(_certificates(rows), cut, **outputs)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.parquet", "cut.parquet"}


@contextmanager
def _small_files(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: what a full disk says, without one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_temporary_files_without_room_are_one_sentence(tmp_path: Path) -> None:
    rows = _rows()
    source = _source(tmp_path / "rows.parquet", rows)
    with counted_table(source, GRIDS[:1]):
        # compiled, so that no cache is written below
        pass
    with _small_files(9000):
        words = _refusal(source)
    assert "needs more room for temporary files than" in words and "TMPDIR" in words
    outputs = {name: tmp_path / f"{name}.parquet" for name in ("decisions", "queue")}
    with _small_files(9000), pytest.raises((InputError, OSError)) as full:
        decide_pieces(_certificates(rows), source, **outputs)
    # of the output itself the command says so
    assert isinstance(full.value, InputError) or full.value.filename == str(outputs["decisions"])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_order_statistics_are_those_of_sorted_numbers() -> None:
    rng = np.random.default_rng(0)
    for values in (
        rng.normal(size=400) * 10.0 ** rng.integers(-300, 300, 400),
        rng.integers(-3, 3, 500) + 0.0,
        np.array([5.0]),
        np.array([-np.finfo(float).max, np.finfo(float).max, 5e-324, -5e-324, 0.0]),
    ):
        with NumberFile() as numbers:
            for piece in np.array_split(values, 7):
                numbers.add(piece)
            ranks = np.arange(values.size, dtype=np.int64)
            found = order_statistics(numbers.chunks, ranks)
            assert found.tobytes() == np.sort(values).tobytes()
            ranges = Ranges.of(numbers, 40)
        places = ranges.places(values)
        assert (np.diff(places[np.argsort(values, kind="stable")]) >= 0).all()
        for part in range(ranges.parts):
            inside = values[places == part]
            assert np.unique(inside).size <= 1 if ranges.tied(part) else inside.size <= 40
    with NumberFile() as nothing:
        assert not order_statistics(nothing.chunks, np.empty(0, np.int64)).size
        assert Ranges.of(nothing, 40).places(np.array([1.0])).tolist() == [0]


def test_parts_come_back_in_the_order_of_their_rows() -> None:
    import pyarrow as pa

    with Spill(3) as spill:
        for start in (0, 10, 20):
            values = np.arange(start, start + 10)
            spill.add(pa.record_batch({"value": values}), values % 2)
        parts = [spill.table(part) for part in range(3)]
    assert parts[2] is None
    assert [part["value"].to_pylist() for part in parts[:2] if part is not None] == [
        list(range(0, 30, 2)),
        list(range(1, 30, 2)),
    ]
