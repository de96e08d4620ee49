"""Work on several processes or machines through Dask: a cluster on this machine, clients, tasks."""

from scirocco.cluster.client import as_client, connected
from scirocco.cluster.local import Local, local
from scirocco.cluster.tasks import run_tasks
from scirocco.cluster.worker import Cancelled
from scirocco.errors import WorkerError

__all__ = ["Cancelled", "Local", "WorkerError", "as_client", "connected", "local", "run_tasks"]
