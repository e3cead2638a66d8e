"""Operation of a deployed judge: new runs are decided, people are asked, their labels come back, certificates are made anew.

Layout below the data root (``<batch>`` names what arrived together)::

    inbox/<corpus>/…                                     new runs, put there by whoever runs the agents; any published format, outcomes not needed
    operations/<corpus>/deployment.json                  which judge decides now, under which certificates, and how many tasks are drawn
    operations/<corpus>/deployments.jsonl                every deployment that was
    operations/<corpus>/batches/<batch>/runs.parquet     trajectories as imported, import.json beside them
    operations/<corpus>/batches/<batch>/decisions.parquet, batch.json
    operations/<corpus>/labels.jsonl                     journal of what people said, never rewritten
    operations/<corpus>/recertifications/<number>/…      certificates on CAL and the audit sample
"""
