"""docs/transfer.md names the judges, domains, reasons and staleness that there are."""

import re

from certify_assets.judges.specs import TRANSFER_JUDGES
from certify_assets.judges.transfer import TRANSFER_ROWS
from certify_assets_tests.paths import REPOSITORY

PAGE = (REPOSITORY / "docs/transfer.md").read_text("utf-8")
SOURCE = (REPOSITORY / "certify_assets/judges/transfer.py").read_text("utf-8")


def test_every_judge_and_the_number_of_rows_is_there() -> None:
    rows = re.findall(r"^\| `(\w*transfer\w*)` \|", PAGE, re.MULTILINE)
    assert rows == list(TRANSFER_JUDGES) and f"{TRANSFER_ROWS:,}" in PAGE


def test_every_reason_for_leaving_a_row_out_is_explained() -> None:
    written = set(re.findall(r'"(no_label|shared_\w+|above_\w+)"', SOURCE))
    assert len(written) == 4 and written <= set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
