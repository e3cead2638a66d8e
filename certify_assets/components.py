"""Corpora declared in YAML: ``dg scaffold defs certify_assets.components.Corpora`` writes one."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pydantic

from certify_assets.corpora.config import CorpusConfig, corpus_schema
from certify_assets.corpora.embedded import EMBEDDED
from certify_assets.defs.names import NAMING, parse_owners, parse_prefix
from certify_assets.errors import InputError

# how pydantic names the branches of a union between the parts of a place
_TYPES = ("bool", "dict", "int", "str")
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
"""


# the words of the configuration itself, so that both say the same of a field
_ABOUT = {
    name: str(about.get("description", "")) for name, about in corpus_schema()["properties"].items()
}


class DeclaredCorpus(dg.Resolvable, dg.Model):
    """One corpus: where its runs are stored and how they are split."""

    name: str = pydantic.Field(description=_ABOUT["name"], examples=["my_corpus"], max_length=64)
    paths: list[str] = pydantic.Field(
        description=f"{_ABOUT['paths'].rstrip('.')}, relative to the YAML file.",
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
    auto_deploy: Literal["never", "if_wider", "always"] = pydantic.Field(
        "never", description=_ABOUT["auto_deploy"]
    )

    def config(self, folder: Path) -> CorpusConfig:
        """Return the configuration, with paths made absolute from the folder of the YAML file.

        Raises
        ------
        InputError
            If the name, format, an option or the profile is not one there is.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields if name != "paths"}
        config = CorpusConfig(
            paths=tuple(str((folder / path).resolve()) for path in self.paths), **values
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
class Corpora(dg.Component, dg.Resolvable, dg.Model):
    """Register and certify corpora of agent runs once their files are complete, and on changes."""

    corpora: list[DeclaredCorpus] = pydantic.Field(description="The corpora.", min_length=1)
    running: bool = pydantic.Field(
        True, description="Whether the sensor starts with the daemon; false leaves that to the UI."
    )
    key_prefix: str | list[str] | None = pydantic.Field(
        None,
        description="Prefix of the key of every asset of the code location, as plain text.",
        examples=["my_platform"],
    )
    owners: list[str] | None = pydantic.Field(
        None,
        description="Owners of every asset of the code location, instead of team:evaluation.",
        examples=[["team:my_team", "someone@example.com"]],
    )

    @pydantic.field_validator("key_prefix", "owners")
    @classmethod
    def _valid(cls, value: object, info: pydantic.ValidationInfo) -> object:
        if value is not None:
            (parse_prefix if info.field_name == "key_prefix" else parse_owners)(value)
        return value

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return who owns the component and what it makes."""
        return dg.ComponentTypeSpec(
            owners=["team:evaluation"], tags=["certify"], produces=["sensor"]
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the sensor of these corpora; nothing is read or written before it runs."""
        from certify_assets.defs.operations.sensors import declared_corpora_sensor

        path = context.path
        folder = path if path.is_dir() else path.parent
        configs = [corpus.config(folder) for corpus in self.corpora]
        refuse_repeated(config.name for config in configs)
        self._require_naming()
        name = "declared_" + re.sub(r"\W", "_", folder.name)
        return dg.Definitions(
            sensors=[declared_corpora_sensor(name, configs, running=self.running)]
        )

    def _require_naming(self) -> None:
        # the keys were built when the modules of the assets were imported, from the text of the
        # YAML files of this package: another file, or a template, would be ignored silently
        if self.key_prefix is not None and parse_prefix(self.key_prefix) != NAMING.prefix:
            used = "/".join(NAMING.prefix) or "none"
            raise InputError(
                f"key_prefix is {self.key_prefix!r}, and the assets have {used}; give one prefix, "
                "as plain text, in a defs.yaml of the package certify_assets.defs."
            )
        if self.owners is not None and parse_owners(self.owners) != NAMING.owners:
            raise InputError(
                f"owners are {self.owners}, and the assets have {list(NAMING.owners)}; name the "
                "same, as plain text, in every defs.yaml of the package certify_assets.defs."
            )


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
