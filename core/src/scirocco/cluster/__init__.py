"""Computation in several processes or machines with Dask: a local cluster, clients, tasks."""

from scirocco.cluster.client import Local, as_client, connected, local
from scirocco.cluster.tasks import Cancelled, run_tasks
from scirocco.errors import WorkerError

__all__ = ["Cancelled", "Local", "WorkerError", "as_client", "connected", "local", "run_tasks"]
