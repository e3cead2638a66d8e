"""`certify schema` prints schemas that editors can use."""

import click
import jsonschema
import pytest

from certify_assets.cli.schema import schema
from certify_assets_tests.cli.calling import Call

KIND = schema.params[0].type
assert isinstance(KIND, click.Choice)


@pytest.mark.parametrize("name", KIND.choices)
def test_a_schema_is_one_of_objects(call: Call, name: str) -> None:
    found = call(f"schema {name}").json
    jsonschema.Draft202012Validator.check_schema(found)
    assert not jsonschema.Draft202012Validator(found).is_valid("text")
