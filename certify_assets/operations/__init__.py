"""Operation of a deployed judge: decisions on new runs, review, monitoring and recertification.

What happens is an event of the corpus: batches that were received, decided or taken back, draws,
labels, deployments, alarms, claims of δ, sent notifications. Their tables and documents are objects
that the events name by their hashes. Documents that people open have keys::

    operations/<corpus>/
        queue.parquet, queue.html           runs that wait for a reviewer
        labels.parquet                      majority of the labels of each run
        recertifications/<number>/…         certificates on CAL and the audit sample
        history.json, history.html          history of the certificates

Users place files in the data root::

    inbox/<corpus>/…                        new runs, in any published format, without outcomes
    notifications.yaml                      receivers of notifications
"""
