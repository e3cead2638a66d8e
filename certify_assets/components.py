"""Corpora declared in YAML: ``dg scaffold defs certify_assets.components.Corpora`` writes one."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import dagster as dg
import pydantic

from certify_assets.corpora.config import NAMED_JUDGE, CorpusConfig, corpus_schema
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.setup import (
    merged,
    parse_judges,
    parse_owners,
    parse_prefix,
    settle,
    setup,
)
from certify_assets.errors import InputError
from certify_assets.storage.urls import is_url

# how pydantic names the branches of a union between the parts of a place
_TYPES = ("bool", "dict", "int", "str")
# this package's own folder of components, and the attributes that are one for a code location
_OWN, _SETUP = "certify_assets.defs", ("key_prefix", "owners", "judges")
_TEMPLATE = """\
# The corpora of this project; docs/corpora.md describes the component.
type: {type_name}

attributes:
  corpora:
    - name: my_corpus
      # files, folders and archives, relative to this file
      paths: [runs]
      format: auto
      profile: certify
      seed: 42
      # false where no judge is trained on the RL split: its share goes to CAL
      rl: false
  # of every asset, where they are not to be corpora/..., judges/... and team:evaluation
  # key_prefix: my_platform
  # owners: ["team:my_team"]
  # that have assets, with what they start from; name those of judges.yaml too, or leave this out
  # for all of them and for the study
  judges: [lexical, combined]
"""


# the words of the configuration itself, so that both say the same of a field
_ABOUT = {
    name: str(about.get("description", "")) for name, about in corpus_schema()["properties"].items()
}


class _Declared(dg.Resolvable, dg.Model):
    """A part of the YAML file; what is wrong in it is a sentence that names the field."""

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: pydantic.BaseModel) -> Self:
        """Return it with its templates resolved."""
        try:
            found: Self = super().resolve_from_model(context, model)
        except pydantic.ValidationError as error:
            raise InputError(_first_error(error)) from None
        return found


class DeclaredCorpus(_Declared):
    """One corpus: where its runs are stored and how they are split."""

    name: str = pydantic.Field(description=_ABOUT["name"], examples=["my_corpus"], max_length=64)
    paths: list[str] = pydantic.Field(
        description=f"{_ABOUT['paths'].rstrip('.')}: absolute, relative to the YAML file, or URLs.",
        examples=[["runs"]],
        min_length=1,
    )
    format: str = pydantic.Field("auto", description=_ABOUT["format"])
    options: dict[str, Any] = pydantic.Field({}, description=_ABOUT["options"])
    profile: str = pydantic.Field("certify", description=_ABOUT["profile"])
    seed: int = pydantic.Field(42, description=_ABOUT["seed"])
    rl: bool = pydantic.Field(True, description=_ABOUT["rl"])
    rl_labels: Literal["certify", "choose"] = pydantic.Field(
        "certify", description=_ABOUT["rl_labels"]
    )
    leak_thresholds: dict[str, float] = pydantic.Field({}, description=_ABOUT["leak_thresholds"])
    accept_structural_leak: str | None = pydantic.Field(
        None, description=_ABOUT["accept_structural_leak"]
    )
    canary_lift: float = pydantic.Field(0.25, description=_ABOUT["canary_lift"])
    domain: str = pydantic.Field("", description=_ABOUT["domain"])
    new_agents: Literal["review", "batch_certificate", "accept"] = pydantic.Field(
        "batch_certificate", description=_ABOUT["new_agents"]
    )
    batch_runs: int = pydantic.Field(150, description=_ABOUT["batch_runs"])
    batch_days: int = pydantic.Field(28, description=_ABOUT["batch_days"])
    judge: str = pydantic.Field(NAMED_JUDGE, description=_ABOUT["judge"])
    judges_compared: int = pydantic.Field(1, description=_ABOUT["judges_compared"])
    auto_deploy: Literal["never", "if_wider", "always"] = pydantic.Field(
        "never", description=_ABOUT["auto_deploy"]
    )

    def config(self, folder: Path) -> CorpusConfig:
        """Return the configuration, with paths absolute from the folder of the YAML file, or URLs.

        Raises
        ------
        InputError
            If the name, format, an option or the profile is not one there is.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "paths"}
        config = CorpusConfig(
            paths=tuple(
                path if is_url(path) else str((folder / path).resolve()) for path in self.paths
            ),
            **values,
        )
        _refuse_unknown(config)
        return config


class _Scaffolder(dg.Scaffolder[Any]):
    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        if request.scaffold_format != "yaml" or request.append:
            from dagster.components.component_scaffolding import scaffold_component

            scaffold_component(request, {"corpora": [{"name": "my_corpus", "paths": ["runs"]}]})
            return
        (request.target_path / "defs.yaml").write_text(
            _TEMPLATE.format(type_name=request.type_name), encoding="utf-8"
        )


@dg.scaffold_with(_Scaffolder)
class Corpora(dg.Component, _Declared):
    """The platform for corpora of agent runs, which are certified once their files are complete."""

    corpora: list[DeclaredCorpus] = pydantic.Field(default=[], description="The corpora.")
    running: bool = pydantic.Field(
        default=True,
        description="Whether the sensor starts with the daemon; false leaves that to the UI.",
    )
    key_prefix: str | list[str] | None = pydantic.Field(
        None,
        description="Prefix of the key of every asset of the code location.",
        examples=["my_platform"],
    )
    owners: list[str] | None = pydantic.Field(
        None,
        description="Owners of every asset of the code location, instead of team:evaluation.",
        examples=[["team:my_team", "someone@example.com"]],
    )
    judges: list[str] | None = pydantic.Field(
        None,
        description="Judges that have assets, with those that they start from: names of the "
        "platform's and of judges.yaml's. All by default.",
        examples=[["lexical"]],
    )

    @pydantic.field_validator("key_prefix", "owners", "judges")
    @classmethod
    def _valid(cls, value: object, info: pydantic.ValidationInfo) -> object:
        if value is not None:
            parsers = {"key_prefix": parse_prefix, "owners": parse_owners, "judges": parse_judges}
            parsers[str(info.field_name)](value)
        return value

    @classmethod
    def model(cls) -> type[pydantic.BaseModel]:
        """Return the schema of the YAML file, where the list of corpora is no template."""
        # a list or a template: `dg check yaml` could say of a wrong field only that neither fits
        return _schema(super().model(), list[DeclaredCorpus.model()])  # type: ignore[misc]

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return who owns the component and what it makes."""
        return dg.ComponentTypeSpec(
            owners=["team:evaluation"],
            tags=["certify"],
            produces=["asset", "asset_check", "job", "schedule", "sensor", "resource"],
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the platform with the sensor of these corpora; their files are not read.

        Of several files of one project, the first gives the platform and every one its sensor.
        """
        path = context.path
        folder = path if path.is_dir() else path.parent
        configs = [corpus.config(folder) for corpus in self.corpora]
        refuse_repeated(config.name for config in configs)
        if context.defs_module_name == _OWN:
            # definitions.py gives the platform
            self._require_setup()
            return self._sensor(folder, configs)
        declared = context.component_tree.get_all_components(Corpora) or [self]
        refuse_repeated(corpus.name for found in declared for corpus in found.corpora)
        if declared[0] is not self:
            return self._sensor(folder, configs)
        return dg.Definitions.merge(self.platform(declared), self._sensor(folder, configs))

    def platform(self, declared: Sequence[Corpora] = ()) -> dg.Definitions:
        """Return everything but the sensors of corpora, set up as the components together say."""
        settle(merged([found.model_dump() for found in declared or [self]]))
        # its modules build the keys of their assets as they are imported
        from certify_assets.defs.platform import platform_definitions

        return platform_definitions()

    def _sensor(self, folder: Path, configs: Sequence[CorpusConfig]) -> dg.Definitions:
        if not configs:
            return dg.Definitions()
        from certify_assets.defs.operations.sensors import declared_corpora_sensor

        name = "declared_" + re.sub(r"\W", "_", folder.name)
        return dg.Definitions(
            sensors=[declared_corpora_sensor(name, configs, running=self.running)]
        )

    def _require_setup(self) -> None:
        # read from the text of the YAML files of this package: another file, or a template, would
        # be ignored silently
        wanted = merged([self.model_dump()])
        for name, asked, used in zip(_SETUP, wanted, setup(), strict=True):
            given = getattr(self, name)
            if given is not None and asked != used:
                there = list(used or ()) if name != "key_prefix" else "/".join(used or ())
                raise InputError(
                    f"{name} {'is' if name == 'key_prefix' else 'are'} {given!r}, and the assets "
                    f"have {there or 'none'}; give one, as plain text, in a defs.yaml of the "
                    "package certify_assets.defs, or alike in several."
                )


@cache
def _schema(derived: type[pydantic.BaseModel], corpora: Any) -> type[pydantic.BaseModel]:
    about = derived.model_fields["corpora"]
    field: Any = pydantic.Field(default=[], description=about.description)
    return pydantic.create_model(derived.__name__, __base__=derived, corpora=(corpora, field))


def with_declared(definitions: dg.Definitions, folder: Path) -> dg.Definitions:
    """Add the components of a package of definitions: its folders with a ``defs.yaml``.

    Raises
    ------
    InputError
        If two of them declare one corpus.
    """
    found = sorted(path.parent for path in folder.rglob("defs.yaml"))
    if not found:
        return definitions
    import certify_assets.defs as package

    tree = dg.ComponentTree.from_module(defs_module=package, project_root=folder.parent.parent)
    with warnings.catch_warnings():
        # Dagster warns of its own beta parts, and pydantic of how Dagster calls it
        warnings.simplefilter("ignore")
        loaded = [_load(tree, folder, path) for path in found]
        refuse_repeated(
            name
            for made in loaded
            for sensor in made.sensors or ()
            for name in _declared_by(sensor)
        )
        return dg.Definitions.merge(definitions, *loaded)


def _load(tree: dg.ComponentTree, folder: Path, place: Path) -> dg.Definitions:
    """Load one component; an error of its file becomes one sentence."""
    try:
        return tree.build_defs_at_path(place.relative_to(folder))
    except Exception as error:
        cause: BaseException = error
        while (inner := cause.__cause__ or cause.__context__) is not None:
            cause = inner
        where = f"{place.name}/defs.yaml"
        if isinstance(cause, InputError):
            raise InputError(f"{where}: {cause}") from None
        if isinstance(cause, pydantic.ValidationError):
            raise InputError(f"{where}: {_first_error(cause)}") from None
        # with its cause: a component of another package may be at fault itself
        raise InputError(f"{where} cannot be loaded: {' '.join(str(cause).split())}") from error


def _first_error(error: pydantic.ValidationError) -> str:
    # a value may be a template too, so pydantic complains of a text as well: what it says of the
    # value itself comes from deepest inside
    first = max(error.errors(), key=lambda found: len(found["loc"]))
    where = ".".join(
        str(part)
        for part in first["loc"]
        if str(part).isdigit() or (str(part).isidentifier() and part not in _TYPES)
    )
    return f"{where}: {first['msg']}; correct it."


def refuse_repeated(names: Iterable[str]) -> None:
    """Refuse a name that is declared twice."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"the corpus {repeated[0]!r} is declared twice; give every corpus its own name."
        )


def _declared_by(sensor: Any) -> list[str]:
    value = sensor.metadata.get("corpora")
    return (
        [str(name) for name in value.data]
        if isinstance(value, dg.JsonMetadataValue) and isinstance(value.data, list)
        else []
    )


def _refuse_unknown(config: CorpusConfig) -> None:
    from certify_assets.corpora.formats import COMMON_OPTIONS, FORMATS
    from certify_assets.corpora.splits import PROFILES

    if config.name in EMBEDDED:
        raise InputError(
            f"{config.name} is the name of a corpus that comes with the package; choose another."
        )
    if config.profile not in PROFILES:
        raise InputError(
            f"{config.name}: there is no split profile {config.profile!r}; choose one of "
            f"{', '.join(sorted(PROFILES))}."
        )
    if config.seed < 0:
        raise InputError(
            f"{config.name}: seed is {config.seed}; give a whole number of at least 0."
        )
    formats = sorted(FORMATS) if config.format == "auto" else config.format.split("+")
    if unknown := [name for name in formats if name not in FORMATS]:
        raise InputError(
            f"{config.name}: there is no format {unknown[0]!r}; name one of "
            f"{', '.join(sorted(FORMATS))} or auto."
        )
    known = {*COMMON_OPTIONS, *(option for name in formats for option in FORMATS[name].options)}
    if strange := sorted(set(config.options) - known):
        raise InputError(
            f"{config.name}: format {config.format} has no option {strange[0]!r}; it has "
            f"{', '.join(sorted(known))}."
        )
