"""Operation of a deployed judge: new runs are decided, people are asked, their labels come back, certificates are made anew.

Layout below the data root (``<batch>`` names what arrived together)::

    inbox/<corpus>/…                                     new runs, put there by whoever runs the agents; any published format, outcomes not needed
    operations/<corpus>/deployment.json                  which judge decides now, under which certificates, and how many tasks are drawn
    operations/<corpus>/deployments.jsonl                every deployment that was
    operations/<corpus>/certificates/<sha256>.json       every certificate that was deployed, under its hash
    operations/<corpus>/batches/<batch>/runs.parquet     trajectories as imported, without outcomes; identities.parquet, draw.json, import.json
    operations/<corpus>/batches/<batch>/decisions.parquet, scores.parquet, batch.json
    operations/<corpus>/labels.jsonl                     journal of what people said, never rewritten
    operations/<corpus>/recertifications/<number>/…      certificates on CAL and the audit sample, the rows that they are of, what they are made of
    operations/<corpus>/spending.jsonl                   journal of the confidence that recertifications spend, chained
    operations/<corpus>/alarms.jsonl, notifications.jsonl  journals of alarms and of who was told
    operations/<corpus>/training_labels.parquet          labels that may train, and do nothing else
    operations/<corpus>/history.json, history.html       what became of the certificates
    notifications.yaml                                   who is told of what
"""
