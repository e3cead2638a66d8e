-- next to the database dagster, which the image of PostgreSQL makes: both keep their schema's version in a table of the same name
CREATE DATABASE mlflow;
