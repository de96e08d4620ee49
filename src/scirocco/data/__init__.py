"""Where rows come from: in-memory arrays for now; one small protocol for every source."""

from scirocco.data.arrays import ArraySource, as_source, standardise

__all__ = ["ArraySource", "as_source", "standardise"]
