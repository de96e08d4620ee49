"""Chains that share their batches: arguments, stores, resumed runs; their laws are in law/test_grouped_laws.py."""

import jax
import numpy as np
import pytest

import helpers
import scirocco as sc
from scirocco import diagnostics
from scirocco.errors import InvalidValueError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def run(**given):
    plan = {"num_samples": 30, "num_chains": 4, "batches": 2, "progress": False}
    return sc.sample(
        helpers.MODEL,
        helpers.make_data(),
        helpers.make_params(),
        sampler=sc.SGLD(1e-3),
        estimator=sc.Minibatch(16),
        **plan | given,
    )


def leaves(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.draws)]


@pytest.mark.unit
def test_groups_that_cannot_be_formed_are_refused():
    with pytest.raises(InvalidValueError, match=r"groups of 3 chains .* do not divide num_chains=4"):
        run(batches=3)
    with pytest.raises(InvalidValueError, match="requires at least 16 chains"):
        run(batches="grouped")
    with pytest.raises(InvalidValueError, match="`batches`"):
        run(batches="shared")
    with pytest.raises(InvalidValueError, match="cannot be divided into groups of 3"):
        diagnostics.ess(np.zeros((4, 10)), group_size=3)


@pytest.mark.unit
@pytest.mark.parametrize(("num_chains", "size"), [(16, 2), (64, 8), (512, 64), (520, 52), (4_096, 64), (50, 5)])
def test_the_size_of_groups_leaves_eight_of_them(num_chains, size):
    from scirocco.run.sampling import group_size_of

    assert group_size_of("grouped", num_chains) == size
    assert group_size_of("own", num_chains) == 1


def test_a_stored_run_is_resumed_with_its_groups(tmp_path):
    whole = run(num_samples=60)
    assert whole.group_size == 2 and whole.configuration["group_size"] == 2
    run(store=tmp_path / "run")
    with pytest.raises(InvalidValueError, match="`group_size` was 2 and is now None"):
        run(store=tmp_path / "run", resume=True, batches="own")
    rest = sc.resume(tmp_path / "run", helpers.MODEL, helpers.make_data(), num_samples=60, progress=False)
    assert rest.group_size == sc.load(tmp_path / "run").group_size == 2
    for a, b in zip(leaves(whole), leaves(rest), strict=True):
        np.testing.assert_array_equal(a, b)
    together = run(num_samples=60, chain_method="vmap")
    for a, b in zip(leaves(whole), leaves(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    own = run(num_samples=60, batches="own")
    for a, b in zip(leaves(whole), leaves(own), strict=True):
        np.testing.assert_array_equal(a[::2], b[::2])
        assert np.all(a[1::2] != b[1::2])


def test_several_devices_are_refused():
    mesh = jax.make_mesh((1,), ("chains",))
    with pytest.raises(InvalidValueError, match='batches="grouped" is for the chains of one device'):
        run(mesh=mesh)
