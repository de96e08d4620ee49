"""A run on disk: draws as a Zarr group that xarray and ArviZ can open, and everything needed to resume."""

from scirocco.store.folder import holds_run, refuse_unless_free
from scirocco.store.layout import Variable
from scirocco.store.store import Store
from scirocco.store.stored import JoinedArray, Stored, StoredArray, open_stored

__all__ = [
    "JoinedArray",
    "Store",
    "Stored",
    "StoredArray",
    "Variable",
    "holds_run",
    "open_stored",
    "refuse_unless_free",
]
