"""Runs from a configuration file: `scirocco sample CONFIG.toml` and `scirocco resume RUN`.

    model = "regression:model"        # module:object, looked up next to this file first; or a name of `zoo`, see below
    params = "regression:start"       # where to start; or a table of numbers, params = {beta = [0.0, 0.0]}
    data = "rows"                     # a folder made by `scirocco data convert`, or an .npz or .npy file
    store = "run"                     # folder for the draws

    [sampler]
    name = "SGLD"
    step_size = 1e-5                  # default: chosen from the curvature and the noise

    [estimator]
    name = "ControlVariates"
    batch_size = 500

    [run]                             # any other argument of sc.sample
    num_samples = 10_000
    num_chains = 4

Or, with a built-in model (logistic, linear, poisson, softmax) and data with the arrays `x` and `y`:

    model = "logistic"                # with options: model = {name = "logistic", scale = 2.5, intercept = false}
    data = "rows"
    store = "run"

`scirocco sample --example logistic` prints such a file. Paths are relative to the file. The model is the user's own
code, and is imported; a store never is.
"""

from scirocco.jobs.job import SampleJob, find, is_trusted, origin, read_data, read_job, resume_job, start
from scirocco.jobs.zoo import example, examples

__all__ = [
    "SampleJob",
    "example",
    "examples",
    "find",
    "is_trusted",
    "origin",
    "read_data",
    "read_job",
    "resume_job",
    "start",
]
