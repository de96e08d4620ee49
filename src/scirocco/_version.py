"""The version of the package, which the build reads from here too; and those of the packages it stands on."""

__version__ = "0.1.0"

_REPORTED_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "optax", "numpyro", "matplotlib")


def versions() -> dict[str, str]:
    """Of Python, scirocco and the packages that matter, as far as they are installed."""
    import importlib.metadata
    import platform

    found = {"python": platform.python_version(), "scirocco": __version__}
    for package in _REPORTED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
