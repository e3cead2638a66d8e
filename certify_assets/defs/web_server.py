"""Runs that a Dagster web server launches, where one answers at ``CERTIFY_DAGSTER_URL``."""

from __future__ import annotations

import logging
import os
import time
import urllib.request
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import dagster as dg

from certify_assets.errors import InputError, StepFailedError

if TYPE_CHECKING:
    from dagster_graphql import DagsterGraphQLClient

VARIABLE = "CERTIFY_DAGSTER_URL"
_ENDED = {
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
}
_PATIENCE_S, _APART_S = 10.0, 1.0


def web_server() -> DagsterGraphQLClient | None:
    """Return a client of the web server; None where none is named or none answers.

    Raises
    ------
    InputError
        If the address is no http or https URL.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{VARIABLE} is {address!r}; give a URL such as http://localhost:3000.")
    address = address.rstrip("/")
    try:
        urllib.request.urlopen(f"{address}/server_info", timeout=_PATIENCE_S).close()
    except OSError as error:
        logging.getLogger("certify_assets").warning(
            "No Dagster web server answers at %s (%s). The run is executed here.", address, error
        )
        return None
    from dagster_graphql import DagsterGraphQLClient

    return DagsterGraphQLClient(address.partition("://")[2], use_https=parts.scheme == "https")


def launch(
    client: DagsterGraphQLClient,
    instance: dg.DagsterInstance,
    job: str,
    corpus: str,
    selection: Collection[dg.AssetKey] | None,
    *,
    say: Callable[[str], None],
) -> tuple[bool, list[dg.DagsterEvent]]:
    """Launch a job on a corpus and wait for its end; return whether it succeeded, and its events.

    Raises
    ------
    StepFailedError
        If the web server refuses the job.
    InputError
        If the web server has another Dagster home.
    """
    from dagster_graphql import DagsterGraphQLClientError

    address = os.environ[VARIABLE]
    try:
        run_id = client.submit_job_execution(
            job,
            tags={"dagster/partition": corpus},
            asset_selection=None if selection is None else sorted(selection),
        )
    except DagsterGraphQLClientError as error:
        reason = str(error.args[-1]).strip().partition("\n")[0]
        raise StepFailedError(f"{address} did not launch {job}: {reason}") from error
    say(f"run {run_id} was launched by {address}")
    # by the database, so that a restart of the web server does not matter
    while (run := instance.get_run_by_id(run_id)) is not None and run.status not in _ENDED:
        time.sleep(_APART_S)
    if run is None:
        raise InputError(
            f"{address} has another Dagster home; set DAGSTER_HOME to that of the web server."
        )
    entries = instance.all_logs(run_id)
    events = [entry.dagster_event for entry in entries if entry.dagster_event is not None]
    return run.is_success, events
