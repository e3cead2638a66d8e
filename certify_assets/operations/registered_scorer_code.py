"""What MLflow stores of a registered scorer: the body of this function, with its certificate."""

# MLflow gives the function these names where it makes it again

from typing import Any

from mlflow.entities import AssessmentSource, Feedback


def certified(trace: Any) -> Any:
    """Decide a trace by the assessment of its judge."""
    import json
    import math

    told = json.loads("TOLD")
    said = [
        one
        for one in trace.info.assessments
        if one.name == told["judge"]
        and one.valid is not False
        and getattr(one, "feedback", None) is not None
        and one.source.source_type in ("LLM_JUDGE", "AI_JUDGE", "CODE")
    ]
    value = said[-1].feedback.value if said else None
    if isinstance(value, str):
        value = {"yes": 1.0, "no": 0.0}.get(value.lower())
    score = float(value) if isinstance(value, (bool, int, float)) else math.nan
    deciding = []
    for item in told["certificates"]:
        limit, scaled = item["threshold"], score * told["factor"]
        if limit is not None and not math.isnan(scaled):
            inside = scaled <= limit if item["side"] == "reject" else scaled >= limit
            deciding += [item] if inside else []
    # a score that both sides decide goes to people
    item = deciding[0] if len(deciding) == 1 else None
    decision = "human" if item is None else item["side"]
    about = {
        "decision": decision,
        "score": str(None if math.isnan(score) else score),
        "certificate_sha256": ";".join(one["sha256"] for one in told["certificates"]),
    }
    values = [(told["name"] + "_human", item is None, decision)]
    if item is not None:
        passed = item["side"] == "release"
        values += [
            (told["name"], passed, "decided under " + item["sha256"]),
            (told["name"] + "_error_bound", item["alpha"], item["statement"]),
        ]
    source = AssessmentSource(source_type="CODE", source_id="certify_assets")
    return [
        Feedback(name=name, value=value, rationale=why, source=source, metadata=about)
        for name, value, why in values
    ]
