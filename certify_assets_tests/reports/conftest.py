"""Pages that several tests read: rendered once, from synthetic tables of known design."""

from dataclasses import dataclass

import pandas as pd
import pytest

from certify_assets.certificates import Audit, Certificate, audit_certificate, certify
from certify_assets.reports.certificate_page import render_page
from certify_assets_tests.reports.synthetic import score_table

PROVENANCE = {
    "corpus": "synthetic",
    "judge": "lexical",
    "adapter_sha256": "ab" * 32,
    "manifest_sha256": "cd" * 32,
}
CONTROLS = {"length_auroc": 0.561, "agent_auroc": 0.612, "threshold": 0.7, "phrases": {}}


@dataclass(frozen=True)
class Case:
    """A page with what it was made from."""

    certificates: list[Certificate]
    audits: list[Audit]
    cal: pd.DataFrame
    test: pd.DataFrame
    html: str


def arrays(frame: pd.DataFrame) -> tuple[list[float], list[int], list[str]]:
    return frame["score"].tolist(), frame["outcome"].tolist(), frame["task_id"].tolist()


def certificates_of(
    cal: pd.DataFrame, procedures: tuple[str, ...] = ("pseudo_task", "naive")
) -> list[Certificate]:
    return [
        certify(*arrays(cal), alpha=alpha, side=side, procedure=procedure, provenance=PROVENANCE)
        for alpha in (0.1, 0.2)
        for side in ("reject", "release")
        for procedure in procedures
    ]


def make_case(
    cal: pd.DataFrame, test: pd.DataFrame, title: str = "synthetic, lexical judge"
) -> Case:
    certificates = certificates_of(cal)
    audits = [
        audit_certificate(c, *arrays(test))
        for c in certificates
        if c.certified and c.procedure == "pseudo_task"
    ]
    html = render_page(
        certificates,
        cal,
        audits=audits,
        title=title,
        controls=CONTROLS,
        lineage={"scores_sha256": "12" * 32},
    )
    return Case(certificates, audits, cal, test, html)


@pytest.fixture(scope="package")
def certified() -> Case:
    return make_case(
        score_table(140, seed=2, signal=0.9), score_table(70, seed=102, signal=0.9, name="other")
    )


@pytest.fixture(scope="package")
def nothing() -> Case:
    return make_case(
        score_table(60, seed=3, signal=0.15, spread=1.0),
        score_table(30, seed=103, signal=0.15, spread=1.0, name="other"),
    )
