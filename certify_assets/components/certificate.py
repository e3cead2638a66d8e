"""The component that certifies a table of scores in an asset of your own project.

The certificate is kept in the metadata of the materialization, so it needs neither an IO manager
nor a data root. Numerical libraries are loaded when an asset runs.
"""

# Dagster reads the annotations of its functions as they are, so those of a context are no strings

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import dagster as dg
import pydantic

from certify_assets.components.template import TemplateScaffolder
from certify_assets.errors import CertifyError, InputError

if TYPE_CHECKING:
    from certify_assets.certificates import CertificateSet
    from certify_assets.tables.score_table import ScoreTable

_DOCUMENT: Final = "certificate"
_COLUMNS: Final = re.compile(r"--columns (\w+=\w+(?:,\w+=\w+)*)")


class _Scaffolder(TemplateScaffolder):
    template = """\
# docs/how-to/dagster.md describes the component.
attributes:
  asset: my_scores
  # file that the asset writes, relative to this folder; without it, the value of the asset is read
  # path: scores.csv
  # names of columns, where they are not task_id, score and outcome
  # columns: {task: case, score: judge_score, outcome: human_label}
  alpha: 0.1
  # the check `certified` fails if a smaller share is decided
  # min_coverage: 0.3
  # two more assets: the runs without an outcome, decided or for review
  decisions: true
"""


@dg.scaffold_with(_Scaffolder)
class CertificateComponent(dg.Component, dg.Resolvable, dg.Model):
    """Certify what share of runs a judge may decide alone, from an asset with a table of scores.

    Adds the asset NAME_certificate to your asset NAME. With decisions, it also adds the assets
    NAME_auto_decided and NAME_needs_review.
    """

    asset: str = pydantic.Field(
        description="Key of the asset with a row for each run: task_id, score, outcome.",
        examples=["my_scores", "evaluation/my_scores"],
    )
    path: str | None = pydantic.Field(
        None,
        description="File that the asset writes, relative to the folder of this file. By default "
        "the table is loaded through the IO manager of the asset.",
        examples=["scores.csv"],
    )
    columns: dict[str, str] | None = pydantic.Field(
        None,
        description="Names of columns by task, score, outcome, id, agent and split.",
        examples=[{"task": "case", "score": "judge_score", "outcome": "human_label"}],
    )
    alpha: float = pydantic.Field(
        0.1, gt=0, lt=1, description="Share of the decided runs that may be wrong."
    )
    side: Literal["reject", "release", "both"] = pydantic.Field(
        "both", description="Decision to certify: auto-fail (reject), auto-pass (release) or both."
    )
    promise: Literal["average", "confident", "proved"] | None = pydantic.Field(
        None,
        description="Promise of the certificate. By default confident; average if that certifies "
        "nothing.",
    )
    min_coverage: float = pydantic.Field(
        0.0,
        ge=0,
        le=1,
        description="The check `certified` fails if a smaller share is decided.",
        examples=[0.3],
    )
    decisions: bool = pydantic.Field(
        False, description="Add two assets with the decisions on runs without an outcome."
    )

    @classmethod
    def model(cls) -> type[pydantic.BaseModel]:
        """Return the schema of the YAML file, with the meaning of each field."""
        derived = super().model()
        for name, field in derived.model_fields.items():
            # Dagster keeps those of required fields alone
            field.description = cls.model_fields[name].description
            field.examples = cls.model_fields[name].examples
        derived.model_rebuild(force=True)
        return derived

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the certificate with its checks, and the assets of decided runs."""
        from certify_assets.tables.settings import checked_columns

        try:
            checked_columns((self.columns or {}).items())
        except InputError as error:
            raise dg.DagsterInvalidDefinitionError(str(error)) from None
        folder = context.path if context.path.is_dir() else context.path.parent
        source = _Source(self, folder)
        return dg.Definitions(
            assets=[_certificate(source), *([_decisions(source)] if self.decisions else [])],
            asset_checks=[_checks(source)],
        )


class _Source:
    """The asset with the table, and how it is read."""

    def __init__(self, asked: CertificateComponent, folder: Path) -> None:
        self.asked = asked
        self.key = dg.AssetKey.from_user_string(asked.asset)
        self.path = None if asked.path is None else (folder / asked.path).resolve()
        # a file is read by each asset, a value comes from the IO manager of its asset
        self.ins = {"table": dg.AssetIn(self.key)} if self.path is None else {}
        self.deps = [] if self.path is None else [self.key]

    def named(self, name: str) -> dg.AssetKey:
        """Return the key of the table with `_name` added."""
        return dg.AssetKey([*self.key.path[:-1], f"{self.key.path[-1]}_{name}"])

    def read(
        self, inputs: Mapping[str, Any], issued: "CertificateSet | None" = None
    ) -> "ScoreTable":
        """Read the table; with `issued`, by the settings of those certificates."""
        from certify_assets.tables.score_table import read_score_table
        from certify_assets.tables.settings import ReadingOptions, TableSettings

        if self.path is not None and not self.path.exists():
            raise InputError(
                f"{self.path} does not exist. Let the asset write it, or change path, which is "
                "relative to the folder of defs.yaml."
            )
        value = self.path if self.path is not None else self._frame(inputs["table"])
        reading = ReadingOptions(self.asked.columns or {}, TableSettings(unlabelled="drop"))
        if issued is not None:
            reading = reading.as_issued(self.asked.asset, issued.certificates)
        return read_score_table(value, reading)

    def _frame(self, loaded: Any) -> Any:
        """Return the loaded frame; partitions, loaded as a mapping, are joined to one."""
        parts = [*loaded.values()] if isinstance(loaded, Mapping) else [loaded]
        found = [part for part in parts if hasattr(part, "columns")]
        others = [part for part in parts if part is not None and not hasattr(part, "columns")]
        if others or not found:
            kind = type((others or [None])[0]).__name__
            raise InputError(
                f"{self.asked.asset} gave {kind} where a frame is needed. Return a frame, or name "
                "the file that it writes with path."
            )
        if len(found) == 1:
            return found[0]
        import pandas as pd

        # those of Polars and Arrow have no iloc
        frames = (part if hasattr(part, "iloc") else part.to_pandas() for part in found)
        return pd.concat(frames, ignore_index=True)

    def issued(self, instance: dg.DagsterInstance) -> "CertificateSet":
        """Return the certificates of the last materialization."""
        from certify_assets.certificates import Certificate, CertificateSet

        key = self.named("certificate")
        event = instance.get_latest_materialization_event(key)
        made = None if event is None else event.asset_materialization
        found = None if made is None else made.metadata.get(_DOCUMENT)
        if not isinstance(found, dg.JsonMetadataValue) or not isinstance(found.data, Mapping):
            raise InputError(
                f"There is no certificate yet. Materialize {key.to_user_string()} first."
            )
        outline = dict(found.data)
        items = [Certificate.from_dict(item) for item in outline.pop("certificates")]
        return CertificateSet.of(items, outline)


def _certificate(source: _Source) -> dg.AssetsDefinition:
    @dg.asset(
        key=source.named("certificate"),
        ins=source.ins,
        deps=source.deps,
        description=f"What share of the runs of {source.asked.asset} the judge may decide alone, "
        "certified on the rows that have an outcome.",
        kinds={"certify"},
    )
    def certificate(context: dg.AssetExecutionContext, **inputs: Any) -> Any:
        from certify_assets.components.certified import certified, figures

        asked = source.asked
        with _failing():
            table = source.read(inputs)
            found = certified(table, alpha=asked.alpha, side=asked.side, promise=asked.promise)
            context.log.info(found.sides.sentence)
            metadata = {
                **figures(found, table),
                "scores": dg.MetadataValue.asset(source.key),
                _DOCUMENT: dg.MetadataValue.json(found.to_dict()),
            }
        return dg.MaterializeResult(metadata=metadata)

    return certificate


def _decisions(source: _Source) -> dg.AssetsDefinition:
    outs = {
        "auto_decided": "Runs without an outcome that the judge decides.",
        "needs_review": "Runs without an outcome that go to review.",
    }

    @dg.multi_asset(
        name=source.key.to_python_identifier("decisions"),
        ins=source.ins,
        deps=[*source.deps, source.named("certificate")],
        outs={
            name: dg.AssetOut(
                key=source.named(name), description=said, kinds={"certify"}, is_required=False
            )
            for name, said in outs.items()
        },
        can_subset=True,
    )
    def decisions(context: dg.AssetExecutionContext, **inputs: Any) -> Any:
        from certify_assets.components.certified import by_words, decided

        with _failing():
            issued = source.issued(context.instance)
            frames, known = decided(issued, source.read(inputs, issued))
        if known:
            context.log.warning(known)
        for name in sorted(context.op_execution_context.selected_output_names):
            frame = frames[name]
            counts = frame["decision"].value_counts().to_dict()
            yield dg.Output(frame, name, metadata={"runs": len(frame), **by_words(counts)})

    return decisions


def _checks(source: _Source) -> dg.AssetChecksDefinition:
    key, least = source.named("certificate"), source.asked.min_coverage
    gate = f", and at least {100 * least:g} % of runs are decided" if least else ""
    specs = [
        dg.AssetCheckSpec("certified", asset=key, description=f"Something is certified{gate}."),
        dg.AssetCheckSpec(
            "still_holds",
            asset=key,
            additional_deps=[source.key],
            description="Runs of new tasks, labelled after the certificate, do not show an error "
            "above α. They must be drawn at random. A false alarm on a side has probability at "
            "most δ.",
        ),
    ]

    @dg.multi_asset_check(
        name=key.to_python_identifier("checks"),
        specs=specs,
        ins=source.ins,
    )
    def checks(context: dg.AssetCheckExecutionContext, **inputs: Any) -> Any:
        from certify_assets.components.certified import follow

        with _failing():
            issued = source.issued(context.instance)
            alarm, said, values = follow(issued, source.read(inputs, issued))
        sides = issued.sides
        little = f" min_coverage asks for {100 * least:g} %." if sides.decided < least else ""
        yield dg.AssetCheckResult(
            check_name="certified",
            passed=bool(sides.certified) and not little,
            description=f"{sides.sentence}{little}",
            metadata={"decided": sides.decided},
        )
        yield dg.AssetCheckResult(
            check_name="still_holds", passed=not alarm, description=said, metadata=values
        )

    return checks


@contextmanager
def _failing() -> Iterator[None]:
    """Fail a step with the sentence of an error, without another try."""
    try:
        yield
    except CertifyError as error:
        # options of the command as attributes
        said = _COLUMNS.sub(
            lambda found: f"columns: {{{found[1].replace('=', ': ').replace(',', ', ')}}}",
            str(error),
        )
        raise dg.Failure(said, allow_retries=False) from None
