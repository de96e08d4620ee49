"""Certificate, diagnosis and summary say the same of a run, by the same numbers."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROWS = np.random.default_rng(1).standard_normal(500).astype(np.float32)
MODEL = sc.Model(lambda mu, x: -0.5 * (x - mu) ** 2)


@pytest.fixture(scope="module")
def made():
    """A run whose draws the tests replace."""
    options = {"sampler": sc.SGLD(1e-4), "num_samples": 20, "num_chains": 2, "progress": False}
    return sc.sample(MODEL, ROWS, jnp.array(0.0), **options)


def replaced(made, seed, chains, draws, persistence, apart, **changes):
    """Draws of the posterior with this correlation between neighbours, and chains apart by so many sds."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((chains, draws))
    for place in range(1, draws):
        z[:, place] = persistence * z[:, place - 1] + np.sqrt(1 - persistence**2) * z[:, place]
    z += apart * np.arange(chains)[:, None]
    configuration = made.configuration | {"num_samples": draws, "num_chains": chains}
    drawn = ROWS.mean() + z / np.sqrt(len(ROWS))
    return dataclasses.replace(made, draws=drawn, stats={}, configuration=configuration, **changes)


def verdicts(run):
    """Whether certificate and diagnosis find nothing; their numbers are compared with the summary's."""
    certificate, found = sc.analysis.certify(run), sc.analysis.diagnose(run)
    table = run.summary(digits=None)
    assert found.certificate == certificate
    assert certificate.measures["ess"] == found.measures["ess_bulk"] == table["ess_bulk"].min()
    if run.num_chains > 1:
        assert certificate.measures["r_hat"] == found.measures["r_hat"] == table["r_hat"].max()
    else:
        assert certificate.measures["r_hat_of_halves"] == found.measures["r_hat_of_halves"]
        assert "r_hat" not in found.measures and table["r_hat"].isna().all()
    return certificate.ok, found.ok


@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("draws", [20, 60, 499, 500, 2_000])
def test_of_any_draws_certificate_and_diagnosis_have_one_verdict(made, chains, draws, seed):
    seen = set()
    for persistence in (0.0, 0.5, 0.9, 0.98):
        for apart in (0.0, 0.2, 0.5, 2.0) if chains > 1 else (0.0,):
            run = replaced(made, seed, chains, draws, persistence, apart, origin=None)
            certified, diagnosed = verdicts(run)
            assert certified == diagnosed, (persistence, apart)
            seen.add(certified)
    assert seen == {True, False} or draws < 100


@pytest.mark.parametrize(
    ("shape", "ok"),
    [
        ((4, 1_000, 0.0, 0.0), True),
        ((4, 1_000, 0.0, 0.3), False),  # R-hat about 1.05
        ((4, 1_000, 0.0, 2.0), False),  # about 2
        ((4, 1_000, 0.97, 0.0), False),  # few effective draws, although the gradients confirm the moments
        ((1, 2_000, 0.0, 0.0), True),
        ((4, 60, 0.0, 1.0), False),
    ],
)
@pytest.mark.parametrize("status", ["complete", "stopped"])
def test_with_gradients_too(made, shape, ok, status, seed):
    assert verdicts(replaced(made, seed, *shape, status=status)) == (ok, ok)


def test_chains_that_agree_about_a_wrong_mean_are_known_by_the_gradients(made, seed):
    run = replaced(made, seed, 4, 500, 0.0, 0.0)
    run = dataclasses.replace(run, draws=run.draws + 1 / np.sqrt(len(ROWS)))
    assert verdicts(run) == (False, False)
    assert sc.analysis.diagnose(run).names == ["gradients disagree"]


def test_a_share_of_diverging_trajectories_is_a_problem_for_both(made, seed):
    run = replaced(made, seed, 4, 500, 0.0, 0.0)
    run = dataclasses.replace(run, stats={"diverging": np.arange(2_000).reshape(4, 500) % 50 == 0})
    assert verdicts(run) == (False, False)
    assert sc.analysis.diagnose(run).names == ["trajectories diverge"]
