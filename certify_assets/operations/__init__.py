"""Operation of a deployed judge: decisions on new runs, review, monitoring and recertification.

Everything that happens is stored as an event of the corpus: batches received, decided or taken
back, draws, labels, deployments, alarms, claims of δ, sent notifications. The events name their
tables and documents by hash. Documents that people open have keys::

    operations/<corpus>/
        queue.parquet, queue.html           runs that wait for a reviewer
        labels.parquet                      majority of the labels of each run
        recertifications/<number>/…         certificates on CAL and the audit sample
        history.json, history.html          history of the certificates

Users place files in the data root::

    inbox/<corpus>/…                        new runs, in any published format, without outcomes
    notifications.yaml                      receivers of notifications
"""
