"""Storage: the data root with its objects and events, backups, MLflow tracking, and progress."""
