"""Prove that the package needs nothing but jax and numpy (and what those two bring) to draw samples.

usage: check_minimal.py [--hide]

A plain script, for an environment without pytest. With ``--hide`` the optional packages are made invisible
first, so that it can also run where they are installed; without it, finding one of them is an error, since the
check would prove nothing.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder

OPTIONAL = (
    *("arviz", "dask", "jaxtyping", "matplotlib", "numpyro", "optax", "pandas", "rich", "sklearn", "typer"),
    *("numba", "pyarrow", "scirocco_latent", "xarray", "zarr"),
)


class HidingFinder(PathFinder):
    """Finds what the ordinary finder finds, less the optional packages."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in OPTIONAL:
            return None
        return super().find_spec(fullname, path, target)


def check_draws(sc):
    """Sample the mean of a Gaussian with SGLD, and return the run."""
    import jax.numpy as jnp
    import numpy as np

    data = np.random.default_rng(0).normal(1.0, 1.0, size=(1_000, 2)).astype(np.float32)

    def log_likelihood(params, datum):
        return -0.5 * jnp.sum((datum - params["mean"]) ** 2)

    run = sc.sample(
        sc.Model(log_likelihood),
        data,
        {"mean": np.zeros(2, np.float32)},
        sampler=sc.SGLD(step_size=1e-3),
        estimator=sc.Minibatch(batch_size=32),
        num_samples=200,
        num_burnin=0,
        thin=1,
        num_chains=2,
        seed=0,
        progress=False,
    )
    draws = np.asarray(run.draws["mean"])
    assert draws.shape == (2, 200, 2), f"draws have shape {draws.shape}, not (chain, draw, 2)"
    assert np.isfinite(draws).all(), "draws are not finite"
    return run


def check_message(action, package):
    """Assert that `action` raises an ImportError that names the package and how to get it."""
    try:
        action()
    except ImportError as error:
        message = str(error)
    else:
        raise AssertionError(f"{action} did without {package}")
    assert package in message, f"the message does not name {package}: {message}"
    assert "pip install" in message, f"the message does not say how to install {package}: {message}"
    print(f"  {message}")


def main(arguments):
    if "--hide" in arguments:
        sys.meta_path[sys.meta_path.index(PathFinder)] = HidingFinder
    present = [name for name in OPTIONAL if importlib.util.find_spec(name)]
    if present:
        sys.exit(f"this environment is not minimal, it holds {', '.join(present)} (try --hide)")

    import scirocco as sc

    run = check_draws(sc)
    print(f"scirocco {sc.__version__} samples with jax and numpy alone; without the others it says:")
    check_message(run.summary, "pandas")
    check_message(run.to_arviz, "arviz")
    check_message(lambda: sc.models.LDA, "scirocco-latent")


if __name__ == "__main__":
    main(sys.argv[1:])
