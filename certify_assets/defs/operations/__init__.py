"""Operation: new runs and their decisions, review, recertification, jobs, schedule, sensors."""
