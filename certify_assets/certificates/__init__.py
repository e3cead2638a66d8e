"""Certificates: from scores, outcomes and tasks to a promise that can be recomputed."""

from __future__ import annotations

from certify_assets.certificates.audit import (
    Audit,
    ThresholdCurve,
    audit_certificate,
    measure_threshold,
    resample_audit,
    threshold_curve,
)
from certify_assets.certificates.certificate import Certificate
from certify_assets.certificates.certifier import Certifier, certify, procedure_settings
from certify_assets.certificates.clustering import n_min
from certify_assets.certificates.diagnosis import Diagnosis, diagnose
from certify_assets.certificates.evaluation import Evaluation, evaluate
from certify_assets.certificates.gates import table_gates
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.monitor import Monitoring, monitor_certificate
from certify_assets.certificates.procedures import EVERY_PROCEDURE, PROCEDURES, confidence_words
from certify_assets.certificates.settings import Settings
from certify_assets.certificates.sides import CertificateSet, Sides, decide, joint_confidence
from certify_assets.certificates.verification import NOT_VOUCHED, settings_of, verify

__all__ = [
    "Audit",
    "Certificate",
    "CertificateSet",
    "Certifier",
    "Diagnosis",
    "EVERY_PROCEDURE",
    "Evaluation",
    "Monitoring",
    "NOT_VOUCHED",
    "Observations",
    "PROCEDURES",
    "Settings",
    "Sides",
    "ThresholdCurve",
    "audit_certificate",
    "certify",
    "confidence_words",
    "decide",
    "diagnose",
    "evaluate",
    "joint_confidence",
    "measure_threshold",
    "monitor_certificate",
    "n_min",
    "observe",
    "procedure_settings",
    "resample_audit",
    "settings_of",
    "table_gates",
    "threshold_curve",
    "verify",
]
