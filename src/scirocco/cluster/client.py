"""What users pass as `client`: nothing, a Dask client, the address of a scheduler, or a cluster on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from scirocco import _checks
from scirocco._extras import require
from scirocco._version import __version__
from scirocco.cluster.local import Local
from scirocco.errors import InvalidTypeError, InvalidValueError

_PROTOCOLS = ("tcp://", "tls://", "ucx://", "ucxx://", "ws://", "wss://", "inproc://")
_CONNECT_SECONDS = 10
_WORKER_SECONDS = 30.0


def as_client(client: Any, purpose: str, *, wait: float = _WORKER_SECONDS) -> Any:
    """A connected Dask client with at least one worker, or None for work in this process.

    Parameters
    ----------
    client
        None, a `distributed.Client`, the address of a scheduler ("tcp://127.0.0.1:8786"), or what `cluster.local`
        returned.
    purpose
        What it is for, for the messages: "sc.combine.subposteriors".
    wait
        Seconds to wait for a first worker.

    Returns
    -------
    distributed.Client or None
        One that was made from an address is the caller's to close; `connected` does it.
    """
    if client is None:
        return None
    if isinstance(client, Local):
        client = client.client
    distributed = require("distributed", f"`client` of {purpose}")
    if isinstance(client, str):
        client = _connect(distributed, client, purpose)
        try:
            return _with_workers(client, purpose, wait)
        except BaseException:
            client.close()
            raise
    if not isinstance(client, distributed.Client):
        kind = f"got {type(client).__name__}"
        hint = (
            "distributed.Client(cluster)"
            if isinstance(client, distributed.deploy.Cluster)
            else "cluster.local()"
        )
        raise InvalidTypeError(
            f"`client` of {purpose} must be a distributed.Client, the address of a scheduler such as "
            f"'tcp://127.0.0.1:8786', or None; {kind}. Make one with {hint}."
        )
    if client.asynchronous:
        raise InvalidTypeError(
            f"`client` of {purpose} is asynchronous (asynchronous=True, or made inside an event loop); a client that "
            "waits for its results is needed: Client(address) in an ordinary thread."
        )
    return _with_workers(client, purpose, wait)


@contextlib.contextmanager
def connected(client: Any, purpose: str) -> Iterator[Any]:
    """`as_client` for a block; a client that was made from an address is closed at its end."""
    found = as_client(client, purpose)
    try:
        yield found
    finally:
        if isinstance(client, str):
            found.close()


def _connect(distributed: Any, address: str, purpose: str) -> Any:
    if not address.startswith(_PROTOCOLS):
        raise InvalidValueError(
            f"`client` of {purpose} must be the address of a scheduler, such as 'tcp://127.0.0.1:8786'; got "
            f"{address!r}."
        )
    try:
        return distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InvalidValueError(
            f"`client` of {purpose}: no scheduler answers at {address} ({error}). Start one with `dask scheduler`, and "
            "workers with `dask worker ADDRESS`."
        ) from error


def _with_workers(client: Any, purpose: str, wait: float) -> Any:
    if client.status != "running":
        raise InvalidValueError(
            f"`client` of {purpose} is {client.status}: its connection has ended. Make a new one."
        )
    if client.nthreads():
        _check_versions(client)
        return client
    address = client.scheduler.address
    start = f"Start one with `dask worker {address}`"
    if wait > 0:
        _checks.warn(f"the cluster at {address} has no workers yet; waiting {wait:g} s for one. {start}.")
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(1, timeout=wait)
    if not client.nthreads():
        raise InvalidValueError(f"`client` of {purpose}: the cluster at {address} has no workers. {start}.")
    _check_versions(client)
    return client


def _check_versions(client: Any) -> None:
    """Workers without this library die when they are given a task, and do not say why: they are asked first."""

    def version() -> str:  # inside, so that it is sent as code and not by its name
        from scirocco import _version

        return _version.__version__

    for address, found in client.run(version, on_error="return").items():
        if found != __version__:
            raise InvalidValueError(
                f"the worker {address} has scirocco {found}, this process {__version__}: install the same there."
                if isinstance(found, str)
                else f"the worker {address} cannot import scirocco ({found!r}): install it there."
            )
