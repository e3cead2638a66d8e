"""Scaffolding of a `defs.yaml` with comments, which Dagster's own does not write."""

from typing import Any, ClassVar

import dagster as dg
import yaml


class TemplateScaffolder(dg.Scaffolder[Any]):
    """Writes the template with its comments; to a file that exists, its attributes alone."""

    template: ClassVar[str]

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the file of a component."""
        if request.scaffold_format == "yaml" and not request.append:
            text = f"type: {request.type_name}\n\n{self.template}"
            (request.target_path / "defs.yaml").write_text(text, encoding="utf-8")
            return
        from dagster.components.component_scaffolding import scaffold_component

        scaffold_component(request, yaml.safe_load(self.template)["attributes"])
