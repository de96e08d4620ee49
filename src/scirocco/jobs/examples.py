"""Configuration files to begin with: `scirocco sample --example logistic > job.toml`."""

from __future__ import annotations

import difflib

from scirocco.errors import InvalidValueError

_NAMED = """\
# {title}
# The rows: scirocco data convert table.csv rows --array x=A,B,C --array y=D
# The draws: scirocco sample THIS_FILE. Paths are relative to this file.

model = "{name}"
# model = {{name = "{name}", scale = 2.5, intercept = false{more}}}
data = "rows"              # a data folder, or an .npz file with x and y
store = "run"              # the folder for the draws
"""
_OWN = """\
# Your own model. Beside this file, in regression.py:
#
#   import jax.numpy as jnp
#   import scirocco as sc
#
#   def log_likelihood(beta, row):                  # of ONE row
#       logit = row["x"] @ beta
#       return row["y"] * logit - jnp.logaddexp(0.0, logit)
#
#   model = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
#   start = jnp.zeros(2)
#
# The draws: scirocco sample THIS_FILE. Paths are relative to this file.

model = "regression:model"    # module:object, beside this file or installed
params = "regression:start"   # where to start; or numbers: params = [0.0, 0.0]
data = "rows"                 # a data folder, or an .npz or .npy file
store = "run"                 # the folder for the draws
"""
_REST = """
[sampler]                  # any sampler of the library; its arguments are keys
name = "SGLD"
# step_size = 1e-5         # left out: chosen from the curvature and the noise

[estimator]                # any estimator of the library
name = "ControlVariates"
batch_size = 100           # rows in a step

[run]                      # any other argument of sc.sample
num_samples = 2_000        # draws of each chain
num_burnin = 500
num_chains = 2
thin = 5                   # steps from one draw to the next
seed = 0
"""
_TITLES = {
    "logistic": ("Logistic regression: y is 0 or 1.", ""),
    "linear": ("Linear regression: y is any number, with normal noise.", ", noise_scale = 1.0"),
    "poisson": ("Poisson regression: y is a count, its logarithm linear in x.", ""),
    "softmax": ("Regression for classes: y is 0, 1, 2, ...", ", num_classes = 3"),
}
EXAMPLES = (*_TITLES, "own")
"""Names that `example` knows."""


def example(name: str) -> str:
    """A configuration file with every part explained, which works as soon as its rows are there."""
    if name not in EXAMPLES:
        close = difflib.get_close_matches(name, EXAMPLES, 1)
        hint = f" Did you mean `{close[0]}`?" if close else ""
        raise InvalidValueError(f"there is no example `{name}`: they are {', '.join(EXAMPLES)}.{hint}")
    if name == "own":
        return _OWN + _REST
    title, more = _TITLES[name]
    return _NAMED.format(title=title, name=name, more=more) + _REST
