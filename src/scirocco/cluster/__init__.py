"""Work on several processes or machines through Dask: a cluster on this machine, clients, tasks."""

from scirocco.cluster.client import Local, as_client, connected, local
from scirocco.cluster.tasks import Cancelled, run_tasks
from scirocco.errors import WorkerError

__all__ = ["Cancelled", "Local", "WorkerError", "as_client", "connected", "local", "run_tasks"]
