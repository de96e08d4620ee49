"""The `sample` function and its parts: the compiled loop, chains, progress, results."""

from scirocco.run.certificate import Certificate, certify
from scirocco.run.kernel import Kernel
from scirocco.run.laplace import Laplace, laplace
from scirocco.run.loading import list_runs, load, verify_run
from scirocco.run.loop import Info, KernelState
from scirocco.run.predicting import Predictions
from scirocco.run.progress import Report
from scirocco.run.result import Run
from scirocco.run.sampling import resume, sample

__all__ = [
    "Certificate",
    "Info",
    "Kernel",
    "KernelState",
    "Laplace",
    "Predictions",
    "Report",
    "Run",
    "certify",
    "laplace",
    "list_runs",
    "load",
    "resume",
    "sample",
    "verify_run",
]
