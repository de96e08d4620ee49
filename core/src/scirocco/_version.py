"""The version of the package, which the build reads too, and the versions of its dependencies."""

__version__ = "0.2.0"

_REPORTED_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "optax", "numpyro", "matplotlib")


def versions() -> dict[str, str]:
    """The versions of Python, scirocco and its main dependencies, if installed."""
    import importlib.metadata
    import platform

    found = {"python": platform.python_version(), "scirocco": __version__}
    for package in _REPORTED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
