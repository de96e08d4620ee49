"""Classes and functions at the top level, `sc.NAME`; imported, with JAX, when the first of them is used.

`__all__` of `scirocco` alone decides which of these names are public there.
"""

# ruff: noqa: F403
from scirocco.estimators import *
from scirocco.model import *
from scirocco.run import *
from scirocco.samplers import *
from scirocco.simplex import *
