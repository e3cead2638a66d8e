"""Operation: assets and checks of new runs and their decisions, jobs, the weekly recertification, and the sensors that notice new runs."""
