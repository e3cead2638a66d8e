"""Corpora declared in YAML: ``dg scaffold defs certify_assets.components.Corpora`` writes one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import pydantic

from certify_assets.components.template import TemplateScaffolder
from certify_assets.corpora.config import CorpusConfig
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.corpora.splits import PROFILES
from certify_assets.defs.platform import platform_definitions
from certify_assets.defs.project import OWNERS, Project, known_judges, parse_prefix
from certify_assets.defs.sensors import declared_corpora_sensor
from certify_assets.errors import CertifyError, InputError
from certify_assets.storage.urls import is_url

# fields of the configuration of a corpus, in types of YAML
_TYPES: dict[str, Any] = {
    "paths": list[str],
    "options": dict[str, Any],
    "leak_thresholds": dict[str, float],
    # the configuration says what there is
    "profile": str,
}
_FIELDS: dict[str, Any] = {
    name: (
        _TYPES.get(name, field.annotation),
        pydantic.Field(
            ... if name in ("name", "paths") else field.get_default(call_default_factory=True),
            description=field.description,
            examples=field.examples,
        ),
    )
    for name, field in CorpusConfig.__pydantic_fields__.items()  # type: ignore[attr-defined]
    if name not in ("alphas", "grid")
}
_Declared: Any = pydantic.create_model("_Declared", __base__=(dg.Resolvable, dg.Model), **_FIELDS)


class DeclaredCorpus(_Declared):  # type: ignore[misc]
    """One corpus: where its runs are stored and how they are split."""

    @classmethod
    def model(cls) -> type[pydantic.BaseModel]:
        """Return the schema of one corpus in the YAML file, with the known profiles and judges."""
        described = super().model()
        return _schema(described, profile=_one_of(PROFILES), judge=_one_of(known_judges()))

    def config(self, folder: Path) -> CorpusConfig:
        """Return the configuration, with paths absolute from the folder of the YAML file, or URLs.

        Raises
        ------
        InputError
            If the name is not allowed, or format, option or profile is unknown.
        """
        values = {name: getattr(self, name) for name in _FIELDS}
        values["paths"] = tuple(
            path if is_url(path) else str((folder / path).resolve()) for path in self.paths
        )
        config = CorpusConfig(**values)
        _refuse_unknown(config)
        return config


class _Scaffolder(TemplateScaffolder):
    template = """\
# docs/corpora.md describes the component.
attributes:
  corpora:
    - name: my_corpus
      # files, folders and archives, relative to this file
      paths: [runs]
      format: auto
      profile: certify
      seed: 42
      # false: no RL split, its share of the tasks goes to CAL
      rl: false
  # prefix of all asset keys; without it they are corpora/..., judges/... and so on
  # key_prefix: my_platform
  # judges that get assets; leave this out for all judges, those of judges.yaml too, and the study
  judges: [lexical, combined]
"""


@dg.scaffold_with(_Scaffolder)
class Corpora(dg.Component, dg.Resolvable, dg.Model):
    """The platform for corpora of agent runs, which it certifies once their files are complete."""

    corpora: list[DeclaredCorpus] = pydantic.Field(default=[], description="The corpora.")
    key_prefix: str | list[str] | None = pydantic.Field(
        None,
        description="Prefix of all asset keys of the code location.",
        examples=["my_platform"],
    )
    judges: list[str] | None = pydantic.Field(
        None,
        min_length=1,
        description="Judges that get assets, with the judges that they start from: names of the "
        "platform's judges and of those in judges.yaml. By default all.",
        examples=[["lexical"]],
    )

    @pydantic.field_validator("key_prefix")
    @classmethod
    def _valid_prefix(cls, value: object) -> object:
        if value is not None:
            parse_prefix(value)
        return value

    @classmethod
    def model(cls) -> type[pydantic.BaseModel]:
        """Return the schema of the YAML file, where corpora are a list, not a template."""
        # a list or a template: `dg check yaml` could say of a wrong field only that neither fits
        return _schema(
            super().model(),
            corpora=list[DeclaredCorpus.model()],  # type: ignore[misc]
            judges=list[_one_of(known_judges())],  # type: ignore[misc]
        )

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return owners, tags and products of the component."""
        return dg.ComponentTypeSpec(
            owners=list(OWNERS),
            tags=["certify"],
            produces=["asset", "asset_check", "job", "schedule", "sensor", "resource"],
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the platform with the sensor of these corpora; their files are not read.

        If a project has several files, the first defines the platform and each defines a sensor.

        Raises
        ------
        DagsterInvalidDefinitionError
            If a file names something unknown, or two files differ.
        """
        try:
            return self._definitions(context)
        except CertifyError as error:
            raise dg.DagsterInvalidDefinitionError(str(error)) from None

    def _definitions(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        path = context.path
        folder = path if path.is_dir() else path.parent
        configs = [corpus.config(folder) for corpus in self.corpora]
        refuse_repeated(config.name for config in configs)
        declared = context.component_tree.get_all_components(Corpora) or [self]
        refuse_repeated(corpus.name for found in declared for corpus in found.corpora)
        project = one_project(declared)
        sensors = []
        if configs:
            name = "declared_" + re.sub(r"\W", "_", folder.name)
            sensors.append(declared_corpora_sensor(project, name, configs))
        found = dg.Definitions(sensors=sensors)
        if declared[0] is not self:
            return found
        return dg.Definitions.merge(platform_definitions(project), found)


def one_project(declared: Sequence[Corpora]) -> Project:
    """Return the settings of several files together; refuse files that differ."""
    settings: dict[str, Any] = {}
    for name in ("key_prefix", "judges"):
        for value in (getattr(item, name) for item in declared):
            if value is not None and settings.setdefault(name, value) != value:
                raise InputError(
                    f"{name} is {settings[name]} in one file and {value} in another. Write it in "
                    "one file, or alike in all."
                )
    prefix = settings.get("key_prefix")
    return Project.of(parse_prefix(prefix) if prefix else (), settings.get("judges"))


def _one_of(names: Collection[str]) -> Any:
    return Annotated[str, pydantic.WithJsonSchema({"enum": [*names]})]


def _schema(derived: type[pydantic.BaseModel], **kinds: Any) -> type[pydantic.BaseModel]:
    """Return the schema with other types of some fields."""
    fields: Any = {name: (kind, derived.model_fields[name]) for name, kind in kinds.items()}
    return pydantic.create_model(derived.__name__, __base__=derived, **fields)


def refuse_repeated(names: Iterable[str]) -> None:
    """Refuse a name that is declared twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"the corpus {repeated[0]!r} is declared twice; give every corpus its own name."
        )


def _refuse_unknown(config: CorpusConfig) -> None:
    from certify_assets.corpora.formats import COMMON_OPTIONS, FORMATS, format_error

    if config.name in EMBEDDED:
        raise InputError(
            f"{config.name} is the name of a corpus that comes with the package; choose another."
        )
    formats = sorted(FORMATS) if config.format == "auto" else [config.format]
    if unknown := [name for name in formats if name not in FORMATS]:
        raise format_error(
            f"{config.name}: there is no format {unknown[0]!r}; name one of "
            f"{', '.join(sorted(FORMATS))} or auto."
        )
    known = {*COMMON_OPTIONS, *(option for name in formats for option in FORMATS[name].options)}
    if strange := sorted(set(config.options) - known):
        raise InputError(
            f"{config.name}: format {config.format} has no option {strange[0]!r}; it has "
            f"{', '.join(sorted(known))}."
        )
