"""The configuration of a corpus: what is wrong is a sentence."""

import pytest

from certify_assets.corpora.config import CorpusConfig
from certify_assets.errors import InputError


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"name": "c", "budget": 3}, "unknown key 'budget'; known keys are name, format, paths"),
        ({}, "name of corpus.json is missing"),
        ({"name": "c", "seed": "7"}, "seed of corpus.json is '7'"),
        ({"name": "c", "paths": "runs"}, "paths of corpus.json is 'runs'"),
        (
            {"name": "c", "leak_thresholds": {"size": 0.9}},
            "leak_thresholds of corpus.json is 'size'",
        ),
        *(
            ({"name": "c", "leak_thresholds": given}, "leak_thresholds of corpus.json is")
            for given in ({"length": 0.5}, {"length": 1.01}, {"agent": True})
        ),
        ({"name": "c", "domain": "The Web"}, "domain of corpus.json is 'The Web'"),
    ],
)
def test_what_is_wrong_names_the_key_and_the_remedy(
    document: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError) as error:
        CorpusConfig.from_dict(document)
    assert sentence in str(error.value) and str(error.value).endswith(".")
