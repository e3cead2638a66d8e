"""Operation of a deployed judge: decisions on new runs, review, monitoring and recertification.

Layout below the data root (``<batch>`` names runs that arrived together)::

    inbox/<corpus>/…                        new runs, in any published format, without outcomes
    operations/<corpus>/
        deployment.json                     judge, certificates and sampling plan that decide now
        deployments.jsonl                   journal of all deployments
        certificates/<sha256>.json          every certificate that was deployed
        batches/<batch>/runs.parquet        trajectories as imported, without outcomes
        batches/<batch>/import.json         with identities.parquet and draw.json
        batches/<batch>/decisions.parquet   with scores.parquet and batch.json
        labels.parquet                      majority of the labels of each run
        recertifications/<number>/…         certificates on CAL and the audit sample
        spending.jsonl                      journal of the δ that all certificates spend
        automatic_deployment.json           what the corpus's policy made of new certificates
        kept/<sha256>/…                     copies of judge and corpus that deployments decide by
        alarms.jsonl, notifications.jsonl   journals of alarms and of sent notifications
        history.json, history.html          history of the certificates
    notifications.yaml                      receivers of notifications
"""
