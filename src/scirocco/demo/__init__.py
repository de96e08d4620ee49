"""`scirocco demo`: a logistic regression posterior on 100,000 rows, and a check of every number against the exact mode.

The data are made here from a seed. The posterior of so many rows is close to normal, so its mode and curvature, found
by Newton's method in double precision, say what the sampler should find.
"""

from scirocco.demo.showing import Demo, compare, run_demo

__all__ = ["Demo", "compare", "run_demo"]
