"""Models with a variable for every group: integrals against closed forms, local draws against their distribution."""

from __future__ import annotations

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from scirocco.data.groups import StreamedGroups, grouped
from scirocco.data.sizes import READING
from scirocco.run.local_draws import local_draws

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

THETA = {"mean": jnp.array(0.3), "scale": jnp.array(0.8), "noise": jnp.array(0.7)}


def normal_row(theta, u, row):
    z = (row["y"] - theta["mean"] - theta["scale"] * u) / theta["noise"]
    return -0.5 * z**2 - jnp.log(theta["noise"]) - 0.5 * np.log(2 * np.pi)


def standard(u, theta):
    return -0.5 * jnp.sum(u**2) - 0.5 * np.log(2 * np.pi) * np.size(u)


def bernoulli_row(theta, u, row):
    return -jnp.logaddexp(0.0, (1 - 2 * row["y"]) * (theta["mean"] + theta["scale"] * u))


def flat_prior(theta):
    return -0.5 * theta["mean"] ** 2


NORMAL = sc.HierarchicalModel(normal_row, standard, flat_prior, groups="g", num_nodes=3)
BERNOULLI = sc.HierarchicalModel(bernoulli_row, standard, flat_prior, groups="g")


def ragged(rng, num_groups, heavy):
    """Rows of groups of unequal sizes, one of them with a single row, in a random order."""
    sizes = rng.integers(2, 6, num_groups)
    sizes[0] = 1
    if heavy:
        sizes[1] = 60
    labels = rng.permutation(np.repeat([f"group {k}" for k in range(num_groups)], sizes))
    return {"y": rng.normal(size=len(labels)), "g": labels}


def exact_normal(theta, data):
    """The log likelihood with the local variables integrated out: the inverse of σ² + τ² 11ᵀ is known."""
    total, noise, spread = 0.0, theta["noise"] ** 2, theta["scale"] ** 2
    for label in np.unique(data["g"]):
        rest = jnp.asarray(data["y"][data["g"] == label]) - theta["mean"]
        whole = noise + len(rest) * spread
        square = jnp.sum(rest**2) - spread / whole * jnp.sum(rest) ** 2
        total -= 0.5 * (square / noise + (len(rest) - 1) * jnp.log(noise) + jnp.log(whole))
        total -= 0.5 * len(rest) * np.log(2 * np.pi)
    return total


@pytest.mark.parametrize("heavy", [False, True])
def test_normal_integrals_and_their_derivatives_are_exact(heavy, seed):
    data = ragged(np.random.default_rng(seed), 8, heavy)
    bins = grouped(data, "g").arrays
    assert bins["present"].shape[1] == 1 if not heavy else bins["present"].shape[1] > 1

    def ours(theta):
        return jnp.sum(NORMAL.integrated(theta, bins))

    def expanded(function):
        return jax.jit(lambda theta: (function(theta), jax.grad(function)(theta), jax.hessian(function)(theta)))

    found, wanted = expanded(ours)(THETA), expanded(lambda theta: exact_normal(theta, data))(THETA)
    for one, other in zip(found, wanted, strict=True):
        scale = max(1.0, *(float(abs(leaf)) for leaf in jax.tree.leaves(other)))
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-4 * scale)


def test_bernoulli_integrals_are_those_of_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    data = ragged(rng, 50, heavy=False)
    data["y"] = (data["y"] > 0).astype(float)
    data["y"][data["g"] == "group 3"] = 1.0  # perfectly separated
    theta = {"mean": jnp.array(-0.4), "scale": jnp.array(2.5)}
    source = grouped(data, "g")
    found = np.asarray(jax.jit(BERNOULLI.integrated)(theta, source.arrays))
    grid = np.linspace(-12, 12, 4001)
    for number, label in enumerate(source.labels):
        y = data["y"][data["g"] == label]
        logs = -np.logaddexp(0.0, (1 - 2 * y)[:, None] * (-0.4 + 2.5 * grid)).sum(axis=0)
        wanted = np.log(np.sum(np.exp(logs) * stats.norm.pdf(grid)) * (grid[1] - grid[0]))
        assert abs(found[number] - wanted) < 2e-3
    finer = np.asarray(jax.jit(BERNOULLI.finer.integrated)(theta, source.arrays))
    assert np.abs(finer - found).max() < 2e-3


@pytest.mark.law
def test_local_draws_have_the_conditional_distribution(seed):
    data = ragged(np.random.default_rng(seed), 12, heavy=True)
    source = grouped(data, "g")
    many = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (1, 4000)), THETA)
    run = types.SimpleNamespace(draws=many, origin=types.SimpleNamespace(model=NORMAL, source=source))
    labels = ["group 5", "group 0", "group 1"]
    found = local_draws(run, labels, 0.9, num_draws=4000, seed=seed, keep_draws=True)
    mean, scale, noise = (float(THETA[name]) for name in ("mean", "scale", "noise"))
    for place, label in enumerate(labels):
        y = data["y"][data["g"] == label]
        precision = 1 + len(y) * scale**2 / noise**2
        centre = scale * np.sum(y - mean) / noise**2 / precision
        z = (np.asarray(found.draws[:, place]) - centre) * np.sqrt(precision)
        assert abs(z.mean()) * np.sqrt(4000) < 5
        assert abs((z**2).mean() - 1) * np.sqrt(4000 / 2) < 5
        assert found.low[place] < centre < found.high[place]
    assert list(found.groups) == labels


@pytest.mark.parametrize("heavy", [False, True])
def test_derived_quantities_of_groups(heavy, seed):
    """They are functions of a draw, of its local variable, and of a row of that group."""
    data = ragged(np.random.default_rng(seed), 6, heavy)
    number = np.array([int(label.split()[1]) for label in data["g"]])
    model = sc.HierarchicalModel(
        lambda theta, local, row: normal_row(theta, local["u"], row),
        lambda local, theta: standard(local["u"], theta),
        groups="g",
        local={"u": 0.0},
        num_nodes=3,
        local_derived=lambda theta, local, row: {"effect": row["number"] + theta["scale"] * local["u"]},
    )
    draws = {"mean": [0.1, 0.2], "scale": [0.5, 0.9], "noise": [0.7, 0.8]}
    source = grouped({**data, "number": number.astype(np.float32)}, "g")
    run = types.SimpleNamespace(
        draws={name: np.array([value], np.float32) for name, value in draws.items()},
        origin=types.SimpleNamespace(model=model, source=source),
    )
    found = local_draws(run, ["group 5", "group 0", "group 1"], 0.3, keep_draws=True).draws
    expected = np.array([5, 0, 1]) + np.array(draws["scale"])[:, None] * found["u"]
    np.testing.assert_allclose(found["effect"], expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(sc.errors.InvalidTypeError, match="`local_derived` must be a function"):
        sc.HierarchicalModel(normal_row, standard, groups="g", local_derived=lambda theta, u, row: {})


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(7)
    shop = np.repeat(np.arange(30), 5)
    y = 1.0 + 0.8 * rng.normal(size=30)[shop] + 0.7 * rng.normal(size=150)
    data = {"y": y.astype(np.float32), "g": shop}

    def row(theta, u, row):
        return normal_row({"mean": theta, "scale": 0.8, "noise": 0.7}, u, row)

    model = sc.HierarchicalModel(row, standard, groups="g", num_nodes=3)
    return model, data, sc.sample(model, data, 0.0, num_samples=500, num_chains=2, progress=False)


def test_the_mean_of_all_groups_has_its_exact_posterior(fitted):
    _, data, run = fitted
    means = np.array([data["y"][data["g"] == k].mean() for k in range(30)], np.float64)
    sd = np.sqrt((0.8**2 + 0.7**2 / 5) / 30)
    draws = np.asarray(run.draws, np.float64)
    size = float(sc.diagnostics.ess(draws[..., None])[0])
    assert abs(draws.mean() - means.mean()) / sd * np.sqrt(size) < 5
    assert abs(draws.var() / sd**2 - 1) * np.sqrt(size / 2) < 5
    assert "30 groups" in run.preparation["chosen"]
    assert run.certificate.ok


@pytest.mark.rotates(2, "groups")
def test_a_certificate_says_that_the_quadrature_has_too_few_nodes():
    """Four rows of 0 or 1 and a large scale: the integrand is far from normal, and two nodes do not suffice."""
    rng = np.random.default_rng(0)
    shop = np.repeat(np.arange(2_000), 4)
    y = rng.random(8_000) < 1 / (1 + np.exp(-4 * rng.normal(size=2_000)[shop]))
    data = {"y": y.astype(np.float32), "g": shop}

    def row(scale, u, row):
        return bernoulli_row({"mean": 0.0, "scale": scale}, u, row)

    model = sc.HierarchicalModel(row, standard, groups="g", num_nodes=2, transforms=sc.transforms.positive)
    options = {"num_samples": 150, "num_burnin": 20, "num_chains": 1, "progress": False}
    run = sc.sample(model, data, 4.0, sampler=sc.SGLD(4e-4), estimator=sc.Full(), thin=4, **options)
    found = sc.analysis.certify(run)
    assert not found.ok
    assert re.search("sd too (high|low)", found.words)


def test_local_variables_of_a_loaded_run(fitted, tmp_path):
    model, data, run = fitted
    here = run.locals([3, 4], num_draws=50)
    run.save(tmp_path / "run")
    loaded = sc.load(tmp_path / "run")
    with pytest.raises(sc.errors.InvalidValueError, match="a loaded run has neither model nor data"):
        loaded.locals([3])
    there = loaded.locals([3, 4], num_draws=50, model=model, data=data)
    np.testing.assert_array_equal(here.mean, there.mean)
    assert list(here.to_frame().columns) == ["mean", "sd", "low", "high"]
    np.testing.assert_allclose(run.locals([4], num_draws=50).mean, here.mean[1:], rtol=1e-5)
    doubled = run.locals([3, 4], num_draws=50, function=lambda theta, u: 2 * u)
    np.testing.assert_allclose(doubled.mean, 2 * here.mean, rtol=1e-5)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"y": np.ones(3)}, "no column 'g'"),
        ({"y": np.ones(3), "g": np.array([1.0, np.nan, 2.0])}, "missing in 1 rows, the first of them row 1"),
        ({"y": np.ones(3), "g": np.array(["a", None, "b"], object)}, "missing in 1 rows"),
        ({"y": np.array([1.0, np.nan, 2.0]), "g": np.arange(3)}, "1 missing .NaN. or infinite"),
        ({"y": np.ones(2), "g": np.arange(3)}, "has 3 rows, the other columns have 2"),
        ({"g": np.arange(3)}, "no column other than the groups"),
        (np.ones(3), "must be a data frame or a dict"),
    ],
)
def test_data_without_proper_groups_are_refused(data, words):
    with pytest.raises(sc.errors.SciroccoError, match=words):
        sc.sample(BERNOULLI, data, {"mean": 0.0, "scale": 1.0}, progress=False)


def test_other_mistakes_have_their_own_words(fitted):
    _, _, run = fitted
    with pytest.raises(sc.errors.InvalidValueError, match="no group 99"):
        run.locals([99])
    with pytest.raises(sc.errors.InvalidTypeError, match="rows of a group share its variable"):
        sc.analysis.loo(run)
    with pytest.raises(sc.errors.InvalidTypeError, match=r"the rows of a group \('g'\) share its variable"):
        sc.combine.subposteriors(NORMAL, {"y": np.ones(9), "g": np.arange(9)}, 3, THETA, progress=False)
    with pytest.raises(sc.errors.InvalidValueError, match="over up to 4"):
        sc.HierarchicalModel(normal_row, standard, groups="g", local=np.zeros(5))
    with pytest.raises(sc.errors.InvalidTypeError, match="name of the column"):
        sc.HierarchicalModel(normal_row, standard, groups=np.arange(3))


@pytest.mark.parametrize("heavy", [False, True])
def test_a_folder_sorted_by_group_has_the_bins_of_the_same_rows_in_memory(tmp_path, changed, heavy):
    data = ragged(np.random.default_rng(3), 30, heavy)
    labels = np.unique(data["g"], return_inverse=True)[1].astype(np.int32)
    order = np.argsort(labels, kind="stable")
    rows = {"y": data["y"][order].astype(np.float32), "g": labels[order]}
    sc.data.write(tmp_path / "sorted", rows, shuffle=False)
    sc.data.write(tmp_path / "mixed", {"y": rows["y"], "g": labels}, shuffle=False)
    inside = sc.data.as_source(str(tmp_path / "sorted"), "g")
    assert not isinstance(inside, StreamedGroups)
    changed(READING, share_of_memory=0.0)
    streamed = sc.data.as_source(str(tmp_path / "sorted"), "g")
    assert isinstance(streamed, StreamedGroups)
    assert (streamed.unit == "bins of groups") == heavy
    np.testing.assert_array_equal(streamed.labels, inside.labels)
    bins = streamed.read(0, streamed.num_rows)
    assert jax.tree.map(lambda leaf: (leaf.shape[1:], leaf.dtype), bins) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), streamed.row_spec
    )
    assert bins["present"].sum() == 30
    assert np.sum(bins["group"] < bins["present"].shape[1]) == len(labels)
    for number in range(30):  # every group is where it is said to be
        own = bins["group"][streamed.bin_of[number]] == streamed.place_of[number]
        np.testing.assert_array_equal(bins["rows"]["y"][streamed.bin_of[number]][own], rows["y"][rows["g"] == number])
    with pytest.raises(sc.errors.InvalidValueError, match="not sorted by the groups 'g'"):
        sc.data.as_source(str(tmp_path / "mixed"), "g")


@pytest.mark.rotates(2, "groups")
def test_a_run_on_a_streamed_folder(fitted, tmp_path, changed):
    model, data, whole = fitted
    sc.data.write(tmp_path / "folder", {"y": data["y"], "g": data["g"]}, shuffle=False)
    changed(READING, share_of_memory=0.0)
    options = {"sampler": sc.SGLD(5e-3), "estimator": sc.Minibatch(10), "num_samples": 400, "num_burnin": 50}
    run = sc.sample(model, str(tmp_path / "folder"), 1.0, **options, thin=4, progress=False)
    assert abs(np.mean(run.draws) - np.mean(whole.draws)) < 5 * np.std(whole.draws) / np.sqrt(50)
    np.testing.assert_allclose(run.locals([4]).mean, whole.locals([4]).mean, atol=0.25)


def test_many_labels_that_are_strings():
    labels = np.array([f"user {k:06d}" for k in np.repeat(np.arange(100_000), 2)], object)
    source = grouped({"y": np.arange(200_000.0), "g": labels}, "g")
    assert source.num_rows == 100_000
    assert source.labels[-1] == "user 099999"
    np.testing.assert_array_equal(source.arrays["rows"]["y"][12_345], [24_690, 24_691])
