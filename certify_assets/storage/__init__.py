"""Storage: the data root, hash-chained journals, MLflow tracking, progress and process pools."""
