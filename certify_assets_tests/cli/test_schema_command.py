"""`certify schema` prints schemas that editors can use."""

import jsonschema
import pytest

from certify_assets_tests.cli.calling import Call


@pytest.mark.parametrize("name", ["certificate", "settings", "corpus", "judges", "notifications"])
def test_a_schema_is_one_of_objects(call: Call, name: str) -> None:
    schema = call(f"schema {name}").json
    jsonschema.Draft202012Validator.check_schema(schema)
    assert not jsonschema.Draft202012Validator(schema).is_valid("text")
