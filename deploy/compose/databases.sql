-- next to the database dagster, which the image of PostgreSQL makes. Dagster and MLflow keep their schema's version in a table of the same name
CREATE DATABASE mlflow;
CREATE DATABASE certify;
