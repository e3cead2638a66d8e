"""How a command reads score tables: its options, what was understood, and what would help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from certify_assets.certificates.certificate_files import (
    CertificateFile,
    Choice,
    load_certificates,
    one_a_side,
)
from certify_assets.certificates.sampling import Draw
from certify_assets.cli.options import GIVEN, OPEN_SHARE, SIDE, literal, parse_settings
from certify_assets.cli.output import PATH, say
from certify_assets.corpora import CERTIFYING
from certify_assets.documents import JsonObject
from certify_assets.errors import ForgedCertificateError, InputError, unknown_setting
from certify_assets.files import parse_yaml, read_json
from certify_assets.tables.cells import TableError
from certify_assets.tables.drawn import DrawnFile, drawn_again, labels_of_draw, names_of
from certify_assets.tables.reading import matched, read_delimited
from certify_assets.tables.run_labels import RunLabels, reading_of_scores, require_ids
from certify_assets.tables.score_table import ScoreTable, read_score_table
from certify_assets.tables.settings import (
    COLUMNS,
    TABLE_SETTINGS,
    ReadingOptions,
    TableSettings,
    parse_columns,
    written_columns,
)

if TYPE_CHECKING:
    from certify_assets.certificates import Certificate

#: scores, outcomes and tasks
Table = tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.object_]]
#: scores and tasks
Unlabelled = tuple[NDArray[np.float64], NDArray[np.object_]]

_OF_TABLES = (
    "How tables are read: success=, failure= and no_label= (words, with commas), threshold= "
    "(outcomes from this number on are successes), unlabelled=drop, ids=fold. May be repeated."
)
_OF_SCORES = (
    " For scores: lower_is_better=true (scores are negated), score_scale=probability (percentages "
    "are divided by 100) or score_scale=log-odds."
)
_SCALES = ("probability", "log-odds")
_NAMED = re.compile(r"--columns (\w+=NAME(?:,\w+=NAME)*)")
# bytes of a file that hold its header
_HEAD = 1 << 16


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _, __, given: TableSettings.of(parse_settings(given)),
    help=_OF_TABLES,
)


def _settings_file(_: click.Context, __: click.Parameter, path: Path | None) -> JsonObject:
    """Read the YAML or JSON mapping of --settings."""
    if path is None:
        return {}
    try:
        found = parse_yaml(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {why}. Give a YAML or JSON file.") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} is not a mapping of settings. Write NAME: VALUE lines.")
    return found


def reading_options(
    *names: str, about: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options by which score tables are read.

    They reach the command as `reading`. Where there are `names`, --set and --settings take these
    too; they reach the command as the mapping `settings`, and `about` describes them.
    """
    options = [
        click.option(
            "--set",
            "chosen",
            multiple=True,
            metavar="NAME=VALUE",
            callback=lambda _, __, given: parse_settings(given),
            help=about + _OF_TABLES + _OF_SCORES,
        ),
        click.option(
            "--columns",
            metavar="FIELD=NAME,…",
            callback=lambda _, __, text: parse_columns(text or ""),
            help="Names of the table's columns: task=…,score=…,again=…,outcome=…,id=…,agent=…,"
            "group=…,split=…,annotator=….",
        ),
    ]
    if names:
        help_ = "YAML or JSON file of the settings; --set overrides it."
        options.append(
            click.option("--settings", "file", type=PATH, callback=_settings_file, help=help_)
        )

    def add(given: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(given)
        def called(
            *,
            columns: Mapping[str, str],
            chosen: Mapping[str, str],
            file: Mapping[str, Any] | None = None,
            **values: Any,
        ) -> Any:
            said = {**(file or {}), **{name: literal(text) for name, text in chosen.items()}}
            lower, scale = _about_scores(said)
            known = [*names, *TABLE_SETTINGS]
            if unknown := [name for name in said if name not in known]:
                raise unknown_setting(unknown[0], [*known, "lower_is_better", "score_scale"])
            # outcomes are texts, also those that look like a number
            table = {name: chosen.get(name, said[name]) for name in said if name not in names}
            reading = ReadingOptions(columns, TableSettings.of(table), lower, scale)
            if names:
                values["settings"] = {name: said[name] for name in said if name in names}
            return given(reading=reading, **values)

        command: Callable[..., Any] = called
        for option in options:
            command = option(command)
        return command

    return add


def _about_scores(said: dict[str, Any]) -> tuple[bool, str | None]:
    """Take out of settings what they say of scores: whether lower is better, and their scale."""
    lower, scale = said.pop("lower_is_better", False), said.pop("score_scale", None)
    if not isinstance(lower, bool):
        raise InputError(f"lower_is_better is {lower!r}. Give true or false.")
    if scale not in (None, *_SCALES):
        raise InputError(f"score_scale is {scale!r}. Give {' or '.join(_SCALES)}.")
    return lower, scale


column_options = reading_options()


def choice_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose from a document of several certificates, as `choice`."""

    @wraps(command)
    def called(
        *, side: str | None, alpha: float | None, procedure: str | None, **values: Any
    ) -> Any:
        return command(choice=Choice(side, alpha, procedure), **values)

    which = "From a document of several, take the certificates of this"
    for option in (
        click.option("--procedure", help=f"{which} procedure."),
        click.option("--alpha", type=OPEN_SHARE, help=f"{which} error budget."),
        click.option("--side", type=SIDE, help=f"{which} side."),
    ):
        called = option(called)
    return called


def issued_and_reading(
    path: Path, choice: Choice, reading: ReadingOptions
) -> tuple[list[Certificate], ReadingOptions]:
    """Return the chosen certificates, one a side, and how tables are read as theirs was."""
    certificates = one_a_side(path, load_certificates(path, choice))
    return certificates, reading.as_issued(path, certificates)


def read_scores(
    path: Path,
    reading: ReadingOptions,
    *,
    outcomes: bool = True,
    judge: str | None = None,
    truth: str | None = None,
    further: bool = False,
) -> ScoreTable:
    """Read a score table or a log by the options; say what was interpreted.

    `judge` and `truth` name the columns of score and outcome, or the scorers, feedback or
    assessments of a log. For a `further` table, such as a pool, no command line is proposed: its
    options would apply to every table.
    """
    named = {"score": judge, "outcome": truth if outcomes else None}
    for field, name in named.items():
        if name is not None and field in reading.columns:
            raise InputError(
                f"Both --columns {field}= and --judge or --truth name the {field}. Leave one out."
            )
    asked = {**reading.columns, **{field: name for field, name in named.items() if name}}
    source, reading = _source(path, replace(reading, columns=asked), outcomes=outcomes)
    left = {"annotator"} if outcomes else {"annotator", "outcome"}
    fields = [name for name in COLUMNS if name not in left]
    with nullcontext() if further else remedies():
        table = read_score_table(source, reading, fields=fields)
    say_read_as(path, table.read_as)
    doubt = None if reading.issued is None else table.doubt(reading.issued)
    if doubt is not None:
        settled = f"or say with --set score_scale={doubt.option} that these are right."
        if doubt.sure:
            raise InputError(f"{doubt.sentence}, {settled}")
        say(f"warning: {doubt.sentence}, {settled}")
    return table


def _source(path: Path, reading: ReadingOptions, *, outcomes: bool) -> tuple[Any, ReadingOptions]:
    """Return a table file, or the runs of a log as a table with its judge and truth named."""
    before = reading.remembered or {}
    columns = {**COLUMNS, **before, **reading.columns}
    wanted = {columns["task"], columns["score"]}
    # most tables need no format of a log, which take as long to import as a certificate takes
    if path.suffix.lower() == ".csv" and path.is_file():
        with path.open("rb") as stream:
            header = read_delimited(path, stream.read(_HEAD), wanted).header
        if matched(header, wanted).keys() == wanted:
            return path, reading
    from certify_assets.corpora.judged import JUDGE, TRUTH, is_log, read_judged

    if not is_log(path, wanted):
        return path, reading
    runs = read_judged([path])
    say_read_as(path, [runs.title, *runs.notes])
    asked = dict(reading.columns)
    for field, kind in (("score", JUDGE), ("outcome", TRUTH)):
        if (field == "score" or outcomes) and (field in asked or field not in before):
            # a certificate keeps no name that is the usual one
            kept = reading.remembered is not None and COLUMNS[field] in runs.kinds
            usual = COLUMNS[field] if kept else None
            name = runs.named(kind, asked.get(field, usual), _option(kind, field))
            if name is not None:
                asked = {**runs.columns_of(name), **asked} if kind == JUDGE else asked
                asked[field] = name
    return runs.source, replace(reading, columns=asked)


def _option(kind: str, field: str) -> str:
    """Return how the command that runs takes the name of a judge or truth."""
    context = click.get_current_context(silent=True)
    has = context is not None and kind in context.params
    return f"--{kind} NAME" if has else f"--columns {field}=NAME"


def labelled(table: ScoreTable) -> ScoreTable:
    """Return the rows of a table that have an outcome; refuse others unless they are to go."""
    context = click.get_current_context(silent=True)
    with remedies():
        try:
            found = table.labelled()
        except TableError as error:
            if table.outcomes is not None or context is None or "labels" not in context.params:
                raise
            other = f"{error.problems[0].removesuffix('.')}, or give labels with --labels FILE."
            raise TableError([other], error.options) from None
    say_read_as(table.path, found.read_as[len(table.read_as) :])
    return found


def calibration(
    scores: Path,
    reading: ReadingOptions,
    *,
    labels: Path | None,
    drawn: DrawnFile | None,
    judge: str | None,
    truth: str | None,
) -> ScoreTable:
    """Return the labelled rows of a table, or those that were drawn.

    Labels are those of `labels`. Without it they are those written into the file of the draw, and
    without any there, the outcomes of the table itself.
    """
    given = labels or (drawn.path if drawn and drawn.labelled else None)
    own = reading_of_scores(scores, given, reading)
    table = read_scores(scores, own, outcomes=given is None, judge=judge, truth=truth)
    table = table.choose_split("cal")
    if given is None and drawn is None:
        if table.outcomes is None:
            say("No labels yet? `certify sample` draws the runs to label.")
        return labelled(table)
    found = None if given is None else read_run_labels(given, reading)
    return _joined(table, found, None if drawn is None else drawn.rows_of(table))


def calibration_of(
    issued: Sequence[Certificate], table: ScoreTable, labels: Path | None, reading: ReadingOptions
) -> ScoreTable:
    """Return the rows that certificates were issued on, their draw made again."""
    samples = [item.inputs.get("sample") for item in issued]
    found = None if labels is None else read_run_labels(labels, reading)
    if not any(samples):
        return labelled(table) if found is None else _joined(table, found, None)
    if any(sample != samples[0] for sample in samples):
        raise InputError("The certificates come from several draws. Choose one with --side.")
    draw = Draw.from_inputs(samples[0])  # type: ignore[arg-type]
    rows = drawn_again(table, draw)
    if rows is None:
        raise ForgedCertificateError(
            f"inputs.sample.sha256 is {draw.sha256!r} in the document and does not fit "
            f"{table.path}. Give the table that was drawn from."
        )
    if found is None and rows.outcomes is None:
        raise InputError(
            f"The certificate is of drawn runs, and {table.path} has no outcomes. Give the file "
            "of the draw with its labels (--labels FILE)."
        )
    return labels_of_draw(rows, found, table)


def labelled_rows(table: ScoreTable, labels: Path | None, reading: ReadingOptions) -> ScoreTable:
    """Return the rows of a table that have an outcome, or a label of a file, in its order."""
    if labels is None:
        return labelled(table)
    found = read_run_labels(labels, reading)
    if found.waiting is not None:
        scored = table.take(~np.isnan(table.scores))
        if waiting := found.waiting.intersection(names_of(scored)[1]):
            raise InputError(
                f"{labels} is the file of a draw. Its runs without a label: {len(waiting):,}. "
                "Label all of them: the first ones alone are no random sample."
            )
        found = replace(found, waiting=None)
    rows = _joined(table, found, None)
    places = {name: place for place, name in enumerate(found.outcomes)}
    return rows.take(np.argsort([places[name] for name in names_of(rows)[1]]))


def _joined(table: ScoreTable, found: RunLabels | None, drawn: ScoreTable | None) -> ScoreTable:
    """Return the runs of a table that have a label, or the drawn ones; say how many match."""
    require_ids(table)
    if found is not None:
        say(found.matching(table))
        if (agreement := found.agreement(table)) is not None:
            say(agreement.sentence())
    if drawn is not None:
        return labels_of_draw(drawn, found, table)
    assert found is not None
    joined = found.join_alone(table)
    assert joined.outcomes is not None
    known = joined.outcomes >= 0
    return replace(joined.take(known), left_out=int(np.count_nonzero(~known)))


def read_run_labels(path: Path, reading: ReadingOptions) -> RunLabels:
    """Read a file of labels; say what was understood of it that is not plain."""
    with remedies():
        found = RunLabels.read(path, reading)
    say_read_as(path, found.read_as)
    return found


def say_read_as(path: Path, notes: Sequence[str]) -> None:
    """Print what was understood of a table that is not as a table has it, if anything was."""
    if notes:
        say(f"{path.name} read as: {'; '.join(notes)}")


@contextmanager
def remedies() -> Iterator[None]:
    """Add to the faults of a table the command line that would read it."""
    try:
        yield
    except TableError as problems:
        context = click.get_current_context(silent=True)
        if context is None:
            raise
        # columns that an option of their own names
        own = {"score": "judge", "outcome": "truth"}
        own = {field: name for field, name in own.items() if context.params.get(name)}
        said = _NAMED.sub(partial(_own_options, own), str(problems))
        if own.keys() & problems.options:
            raise InputError(said) from None
        if not problems.options:
            raise
        columns = {name: text for name, text in problems.options.items() if name in COLUMNS}
        words = ["certify", *context.meta.get(GIVEN, ())]
        if "--columns" in words:
            columns = {**context.params["columns"], **columns}
            del words[(place := words.index("--columns")) : place + 2]
        named = written_columns(columns)
        words += ["--columns", named] if named else []
        for name, text in problems.options.items():
            words += [] if name in columns else ["--set", f"{name}={text}"]
        raise InputError(f"{said}\n  {problems.lead}: {shlex.join(words)}") from None


def _own_options(own: Mapping[str, str], found: re.Match[str]) -> str:
    """Return --columns without the columns that have an option of their own, and these options."""
    fields = [one.partition("=")[0] for one in found[1].split(",")]
    words = [f"--{own[field]} NAME" for field in fields if field in own]
    rest = written_columns({field: "NAME" for field in fields if field not in own})
    return " ".join([*words, *([f"--columns {rest}"] if rest else [])])


def reading_words(reading: ReadingOptions) -> list[str]:
    """Return the options by which another command reads a table alike."""
    words = []
    for name, value in reading.settings.provenance().items():
        words += ["--set", f"{name}={value}"]
    columns = written_columns(reading.columns)
    words += ["--columns", columns] if columns else []
    words += ["--set", f"score_scale={reading.score_scale}"] if reading.score_scale else []
    words += ["--set", "lower_is_better=true"] if reading.lower_is_better else []
    return words


def read_pilot(path: Path, reading: ReadingOptions) -> Table:
    """Read a pilot table: its rows with split=pilot, else those with split=rl."""
    table = read_scores(path, reading, further=True)
    named = set() if table.splits is None else set(table.splits)
    chosen = table.choose_split("rl" if "rl" in named and "pilot" not in named else "pilot")
    chosen = labelled(chosen)
    return chosen.scores, chosen.labels, chosen.tasks


def stored_pool(document: object) -> Unlabelled | None:
    """Return scores and tasks of a pool as the platform stores it."""
    from certify_assets.judges.pool import StoredPool

    pool = StoredPool.from_dict(document).pool
    return None if pool is None else (pool.scores, np.array(pool.labels, dtype=object)[pool.tasks])


def read_pool(
    path: Path, reading: ReadingOptions, *, certified: Sequence[str] = ("cal",)
) -> Unlabelled:
    """Read scores and tasks of a pool, whose outcomes are not read: its rows of other splits."""
    from certify_assets.judges.pool import StoredPool

    if StoredPool.is_file(path) and (found := stored_pool(read_json(path))):
        return found
    table = read_scores(path, reading, outcomes=False, further=True)
    if table.splits is not None:
        others = ~np.isin(table.splits.astype(str), certified)
        if not others.any():
            raise InputError(
                f"{path} has only rows with split={' and '.join(certified)}, which belong to the "
                "calibration table; give the runs of other tasks."
            )
        table = table.take(others)
    return table.scores, table.tasks


def pool_of(
    given: CertificateFile, pool: Path | None, reading: ReadingOptions
) -> Unlabelled | None:
    """Return the pool that is given, or that of the document."""
    if pool is not None:
        return read_pool(pool, reading, certified=certified_splits(given.parsed()))
    return None if given.pool is None else stored_pool(given.pool)


def certified_splits(certificates: Sequence[Certificate]) -> tuple[str, ...]:
    """Return the splits of a score table that certificates are of; CAL where they name none."""
    named = {
        name for item in certificates for name in item.provenance.get("split", "").split(" and ")
    }
    return ("cal", *sorted(named.intersection(CERTIFYING) - {"cal"}))
