"""Blocks of matrices: every form multiplies, transposes and differentiates like the dense matrix it stands for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from scirocco import _tree
from scirocco.errors import InvalidValueError
from scirocco.samplers import matrices
from scirocco.samplers.matrices import LowRank, recognise

pytestmark = pytest.mark.compile

PART = {"a": jnp.array([0.3, -1.2]), "b": jnp.array(0.7)}
NUMBER = jnp.array(0.4)
SIZE = 3


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of one step."""


def mixed(z):
    """A tree like `PART` in which every entry depends on every number."""
    flat, back = ravel_pytree(z)
    return back(jnp.sin(jnp.outer(jnp.arange(1.0, 4.0), flat)).sum(axis=1))


def own(z):
    """Entry i depends on number i alone."""
    return jax.tree.map(lambda v: jnp.cos(v) + v**2, z)


def dense(z):
    flat = ravel_pytree(z)[0]
    return jnp.sin(jnp.outer(flat, flat) + jnp.arange(9.0).reshape(3, 3) * flat)


def low_rank(z):
    flat = ravel_pytree(z)[0]
    return LowRank(1.0 + flat**2, jnp.stack([jnp.sin(flat), flat * flat.sum()], axis=1))


FORMS = {
    "scalar": lambda z: jnp.sum(ravel_pytree(z)[0] ** 2),
    "diagonal": mixed,
    "own diagonal": own,
    "dense": dense,
    "low rank": low_rank,
}


def matrix_of(value):
    block = recognise(value, PART, PART, "M")
    if block.form == "low rank":
        return jnp.diag(jnp.broadcast_to(value.diagonal, (SIZE,))) + value.factor @ value.factor.T
    if block.form == "dense":
        return value
    flat = ravel_pytree(value)[0]
    return jnp.diag(jnp.broadcast_to(flat, (SIZE,)))


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_its_matrix(form):
    value = FORMS[form](PART)
    block = recognise(value, PART, PART, "M")
    exact = matrix_of(value)
    np.testing.assert_allclose(matrices.to_dense(block, PART, PART), exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(matrices.to_dense(matrices.transpose(block), PART, PART), exact.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_divergence_is_that_of_the_matrix(form):
    """Against the full Jacobian: Σ_j ∂M_ij/∂z_j."""
    flat, back = ravel_pytree(PART)
    slopes = jax.jacfwd(lambda v: matrix_of(FORMS[form](back(v))))(flat)
    exact = jnp.einsum("ijj->i", slopes)
    kind = recognise(FORMS[form](PART), PART, PART, "M").form
    found = matrices.divergence(FORMS[form], PART, kind, PART, elementwise=form == "own diagonal")
    np.testing.assert_allclose(ravel_pytree(found)[0], exact, rtol=1e-4, atol=1e-5)


def test_columns_and_rows_between_a_part_and_a_number():
    column = recognise(own(PART), PART, NUMBER, "M")
    row = recognise(own(PART), NUMBER, PART, "M")
    assert (column.form, row.form) == ("column", "row")
    assert matrices.transpose(column).form == "row"
    flat = ravel_pytree(own(PART))[0]
    np.testing.assert_allclose(matrices.to_dense(column, PART, NUMBER)[:, 0], flat, rtol=1e-6)
    np.testing.assert_allclose(matrices.to_dense(row, NUMBER, PART)[0], flat, rtol=1e-6)
    trace = matrices.divergence(own, PART, "row", NUMBER, elementwise=True)
    exact = jnp.trace(jax.jacfwd(lambda v: ravel_pytree(own(ravel_pytree(PART)[1](v)))[0])(ravel_pytree(PART)[0]))
    np.testing.assert_allclose(trace, exact, rtol=1e-5)
    slope = matrices.divergence(lambda s: jax.tree.map(lambda v: v * s**2, PART), NUMBER, "column", PART, True)
    np.testing.assert_allclose(ravel_pytree(slope)[0], 2 * NUMBER * ravel_pytree(PART)[0], rtol=1e-6)


@pytest.mark.parametrize("value", [jnp.ones(2), jnp.ones((2, 3)), {"a": 1.0}])
def test_what_is_no_matrix_is_refused(value):
    with pytest.raises(InvalidValueError, match=r"M has shape .* not a matrix between parts of 3 and 3 numbers"):
        recognise(value, PART, PART, "M")


def test_a_tree_counts_its_numbers():
    assert _tree.size(PART) == SIZE
