"""Certificates: from scores, outcomes and tasks to a promise that can be recomputed. Needs numpy,
scipy and numba only.
"""

from __future__ import annotations

from certify_assets.certificates.agents import (
    FEWEST_AGENTS,
    AgentError,
    largest_agent_error,
    leave_one_agent_out,
)
from certify_assets.certificates.audit import (
    Audit,
    ResampleAudit,
    ThresholdCurve,
    audit_certificate,
    bootstrap_errors,
    lower_error_bound,
    measure_threshold,
    resample_audit,
    threshold_curve,
)
from certify_assets.certificates.auroc import auroc
from certify_assets.certificates.batch import (
    Batch,
    BatchCertificate,
    BatchDraw,
    BatchPlan,
    SequentialTest,
    error_limit,
    uniform_test,
    weighted_test,
)
from certify_assets.certificates.batch_planning import History, plan_batch
from certify_assets.certificates.certificate import SCHEMA, Certificate
from certify_assets.certificates.clustering import (
    ClusterSummary,
    anova_icc,
    design_effect,
    kish_effective_tasks,
    n_min,
    summarise_clusters,
)
from certify_assets.certificates.counts import TaskCounts, count_at, count_tasks
from certify_assets.certificates.decision import RowDecisions, decide
from certify_assets.certificates.diagnosis import Diagnosis, diagnose
from certify_assets.certificates.evaluation import Evaluation, Settings, evaluate
from certify_assets.certificates.gates import GateResult, table_gates
from certify_assets.certificates.inputs import Observations, observe
from certify_assets.certificates.issuance import certify, confidence_words, issue
from certify_assets.certificates.monitor import (
    Monitoring,
    TaskStream,
    monitor_certificate,
    task_stream,
)
from certify_assets.certificates.procedures import (
    EVERY_PROCEDURE,
    PROCEDURES,
    clopper_pearson_upper,
)
from certify_assets.certificates.sample_size import (
    CorpusFacts,
    SamplePlan,
    corpus_facts,
    plan_sample_size,
)
from certify_assets.certificates.sides import (
    CertificateSet,
    Sides,
    certify_sides,
    joint_confidence,
    joint_deltas,
    joint_promise,
    procedure_settings,
)
from certify_assets.certificates.verification import (
    NOT_VOUCHED,
    settings_of,
    verify_certificate,
    verify_set,
)

__all__ = [
    "AgentError",
    "Audit",
    "Batch",
    "BatchCertificate",
    "BatchDraw",
    "BatchPlan",
    "Certificate",
    "CertificateSet",
    "ClusterSummary",
    "CorpusFacts",
    "Diagnosis",
    "EVERY_PROCEDURE",
    "Evaluation",
    "FEWEST_AGENTS",
    "GateResult",
    "History",
    "Monitoring",
    "NOT_VOUCHED",
    "Observations",
    "PROCEDURES",
    "ResampleAudit",
    "RowDecisions",
    "SCHEMA",
    "SamplePlan",
    "SequentialTest",
    "Settings",
    "Sides",
    "TaskCounts",
    "TaskStream",
    "ThresholdCurve",
    "anova_icc",
    "audit_certificate",
    "auroc",
    "bootstrap_errors",
    "certify",
    "certify_sides",
    "clopper_pearson_upper",
    "confidence_words",
    "corpus_facts",
    "count_at",
    "count_tasks",
    "decide",
    "design_effect",
    "diagnose",
    "error_limit",
    "evaluate",
    "issue",
    "joint_confidence",
    "joint_deltas",
    "joint_promise",
    "kish_effective_tasks",
    "largest_agent_error",
    "leave_one_agent_out",
    "lower_error_bound",
    "measure_threshold",
    "monitor_certificate",
    "n_min",
    "observe",
    "plan_batch",
    "plan_sample_size",
    "procedure_settings",
    "resample_audit",
    "settings_of",
    "summarise_clusters",
    "table_gates",
    "task_stream",
    "threshold_curve",
    "uniform_test",
    "verify_certificate",
    "verify_set",
    "weighted_test",
]
