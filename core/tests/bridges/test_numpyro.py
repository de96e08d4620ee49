"""NumPyro models become scirocco's: the same density in every coordinate, the same chain, or a clear refusal."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.bridges import from_numpyro
from scirocco.data.groups import grouped
from scirocco.errors import MissingExtraError
from scirocco.run.local_draws import local_draws
from scirocco.run.result import Origin, Run

pytestmark = pytest.mark.compile

numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")
infer = pytest.importorskip("numpyro.infer")

N, D = 30, 3


@pytest.fixture(autouse=True, scope="module")
def _quick(quick_compiler):
    """Densities at a few points."""


def make_data():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(N, D)).astype(np.float32)
    y = (X @ [1.0, -1.0, 0.5] + rng.normal(size=N)).astype(np.float32)
    return {"X": X, "y": y, "group": rng.integers(0, 4, N).astype(np.int32)}


DATA = make_data()
XY = {name: DATA[name] for name in ("X", "y")}


# -- models that fit ---------------------------------------------------------------------------------------


def regression(X, y=None, scale=2.0):
    beta = numpyro.sample("beta", dist.Normal(0.0, scale).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, sigma), obs=y)


def subsampled(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("data", X.shape[0], subsample_size=10):
        rows, seen = numpyro.subsample(X, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.StudentT(4.0, rows @ beta, 1.0), obs=seen)


def every_support(X, y):
    real = numpyro.sample("real", dist.Normal(0.0, 1.0).expand([2]))
    positive = numpyro.sample("positive", dist.Gamma(2.0, 3.0))
    unit = numpyro.sample("unit", dist.Beta(2.0, 3.0).expand([2]).to_event(1))
    interval = numpyro.sample("interval", dist.Uniform(-1.0, 2.0))
    above = numpyro.sample("above", dist.TruncatedNormal(0.0, 1.0, low=0.5))
    below = numpyro.sample("below", dist.TruncatedNormal(0.0, 1.0, high=-0.5))
    ordering = dist.transforms.OrderedTransform()
    ordered = numpyro.sample(
        "ordered", dist.TransformedDistribution(dist.Normal(0, 1).expand([3]).to_event(1), ordering)
    )
    improper = numpyro.sample("improper", dist.ImproperUniform(dist.constraints.real, (), ()))
    mean = real.sum() + unit.sum() + interval + above + below + ordered[1] * X[:, 0] + improper * X[:, 1]
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mean, positive), obs=y)


def groups(X, y, group):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("groups", 4):
        offset = numpyro.sample("offset", dist.Normal(0.0, spread))
    mean = numpyro.deterministic("mean", offset[group] + X[:, 0])
    with numpyro.plate("data", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def two_outcomes(X, y):
    """The rows are not the first axis of the densities."""
    with numpyro.plate("outcomes", 2, dim=-2):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", X.shape[0], dim=-1):
            numpyro.sample("y", dist.Normal(slope * X[:, 0], 1.0), obs=jnp.stack([y, -y]))
    with numpyro.plate("again", X.shape[0]):
        numpyro.factor("extra", -jnp.square(slope[0] * X[:, 1]))


def penalised(X, y):
    beta = numpyro.sample("beta", dist.Laplace(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    numpyro.factor("penalty", -0.1 * jnp.sum(beta**4))
    with numpyro.handlers.scale(scale=0.5), numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ beta, 1.0), obs=y)


FIT = {
    "regression": (regression, (), (DATA["X"], DATA["y"]), {"scale": 3.0}),
    "subsampled": (subsampled, (), XY, {}),
    "supports": (every_support, (), XY, {}),
    "groups": (groups, (), DATA, {}),
    "two outcomes": (two_outcomes, (), XY, {}),
    "penalised": (penalised, (), XY, {}),
    "one array": (lambda scale, y: regression(jnp.ones((len(y), 1)), y, scale), (2.0,), DATA["y"], {}),
}


@pytest.mark.rotates(3)
@pytest.mark.filterwarnings("ignore:subsample_size does not match")
@pytest.mark.parametrize("case", FIT)
def test_density_is_numpyros_on_the_real_line(case):
    """log prior + Σ rows + log-Jacobian at random points: minus NumPyro's potential energy, all rows at once."""
    model, args, data, kwargs = FIT[case]
    converted, rows, params = from_numpyro(model, *args, data=data, **kwargs)
    names = data if isinstance(data, dict) else {}
    args = args + (() if names else data if isinstance(data, tuple) else (data,))
    whole = numpyro.handlers.substitute(
        model, substitute_fn=lambda site: jnp.arange(site["args"][0]) if site["type"] == "plate" else None
    )

    @jax.jit
    def both(position):
        each = converted.log_likelihoods(position, rows)
        ours = converted.log_prior_density(position) + jnp.sum(each)
        alone = jax.vmap(lambda row: converted.log_likelihood_of_one(position, row))(rows)
        seeded = numpyro.handlers.seed(whole, 0)
        return ours, -infer.util.potential_energy(seeded, args, {**kwargs, **names}, position), each, alone

    rng = np.random.default_rng(1)
    for _ in range(3):
        start = converted.unconstrain(params)
        position = jax.tree.map(lambda u: u + 0.7 * rng.normal(size=u.shape).astype(u.dtype), start)
        ours, theirs, each, alone = both(position)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5)
        assert each.shape == (N,)
        np.testing.assert_allclose(each, alone, rtol=1e-5, atol=1e-5)


def shaped(X, y):
    share = numpyro.sample("share", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    factor = numpyro.sample("factor", dist.LKJCholesky(3, 2.0))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ factor @ share, 1.0), obs=y)


@pytest.mark.rotates(2, "chains of bridges")
def test_the_model_draws_new_observations(seed):
    """y is N(Xβ, σ²) again; effects of rows are drawn, too, which makes a Poisson variable negative binomial."""
    count, beta, sigma = 1000, np.array([1.0, -1.0, 0.5], np.float32), 0.5
    model, rows, _ = from_numpyro(regression, data=XY)
    draws = {"beta": np.tile(beta, (2, count // 2, 1)), "sigma": np.full((2, count // 2), sigma, np.float32)}
    origin = Origin(model, sc.data.as_source(rows), None, None, None)
    run = Run(draws, None, {}, {"num_rows": N}, {}, {}, "complete", [], origin=origin)
    found = run.predict(seed=seed, interval=None)
    assert np.abs((found.mean["y"] - XY["X"] @ beta) / sigma).max() < 5 / count**0.5
    assert np.abs((found.sd["y"] / sigma) ** 2 - 1).max() < 5 * (2 / count) ** 0.5
    check = sc.analysis.predictive_check(run, num_draws=count, seed=seed)
    np.testing.assert_array_equal(check.observed, XY["y"])
    some = run.to_arviz(posterior_predictive=True, observed_data=True)
    assert some["posterior_predictive"]["y"].shape == (2, count // 2, N)
    np.testing.assert_array_equal(some["observed_data"]["y"], XY["y"])
    counts, shape = np.arange(N), 1.7
    model, rows, _ = from_numpyro(gamma_effects, data=counts)
    keys = jax.random.split(jax.random.key(seed), 20_000)
    row = {name: each[3] for name, each in rows.items()}
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: model.simulate({"shape": shape}, row, key)["y"]))(keys))
    law = dist.GammaPoisson(shape, 0.5)
    assert abs(drawn.mean() - law.mean) < 5 * (law.variance / len(keys)) ** 0.5
    zero = np.exp(law.log_prob(0))
    assert abs((drawn == 0).mean() - zero) < 5 * (zero * (1 - zero) / len(keys)) ** 0.5
    np.testing.assert_array_equal(model.observed(rows)["y"], counts)


@pytest.mark.rotates(2, "chains of bridges")
def test_simplexes_and_cholesky_factors():
    """In the user's units the prior is NumPyro's; on the real line it has the Jacobian of our transforms."""
    model, _, params = from_numpyro(shaped, data=XY)
    position = model.unconstrain(params)
    assert {name: leaf.shape for name, leaf in position.items()} == {"share": (2,), "factor": (3,)}
    prior = dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])).log_prob(params["share"])
    prior = prior + dist.LKJCholesky(3, 2.0).log_prob(params["factor"])
    jacobian = sc.transforms.simplex.log_det(position["share"])
    jacobian = jacobian + sc.transforms.cholesky_correlation.log_det(position["factor"])
    np.testing.assert_allclose(model.log_prior_density(position), prior + jacobian, rtol=1e-4)


def test_deterministic_sites_and_reparametrised_names():
    """What does not depend on the rows is computed from the draws, under the name that the user wrote."""

    def model(X, y):
        with numpyro.plate("columns", 3):
            beta = numpyro.sample("beta", dist.Normal(1.0, 2.0))
        numpyro.deterministic("total", beta.sum())
        mean = numpyro.deterministic("mean", X @ beta)
        numpyro.deterministic("first", mean[0])
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    problem = from_numpyro(
        numpyro.handlers.reparam(model, config={"beta": infer.reparam.LocScaleReparam(0.0)}), data=XY
    )
    assert sorted(problem.params) == ["beta_decentered"]
    run = sc.sample(*problem, sampler=sc.SGLD(1e-4), estimator=sc.Minibatch(10), num_samples=5, progress=False)
    beta = 1.0 + 2.0 * run.draws["beta_decentered"]
    found = run.derived()
    assert sorted(found) == ["beta", "total"]
    np.testing.assert_allclose(found["beta"], beta, rtol=1e-5)
    np.testing.assert_allclose(found["total"], beta.sum(axis=-1), rtol=1e-5, atol=1e-5)
    assert set(run.to_arviz().posterior) == {"beta_decentered", "beta", "total"}
    assert "total" in run.summary().index


def normal_effects(X, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.deterministic("variance", scale**2)
    with numpyro.plate("data", X.shape[0], subsample_size=10):
        with numpyro.handlers.reparam(config={"z": infer.reparam.LocScaleReparam(0.0)}):
            z = numpyro.sample("z", dist.Normal(numpyro.subsample(X, event_dim=1)[:, 0], scale))
        numpyro.sample("y", dist.Normal(z, 0.5), obs=numpyro.subsample(y, event_dim=0))
    numpyro.deterministic("first", z[0])


def gamma_effects(counts):
    shape = numpyro.sample("shape", dist.Gamma(2.0, 1.0))
    with numpyro.plate("data", len(counts)):
        rate = numpyro.sample("rate", dist.Gamma(shape, 0.5))
        numpyro.sample("y", dist.Poisson(rate), obs=counts)


@pytest.mark.rotates(2, "chains of bridges")
@pytest.mark.filterwarnings("ignore:subsample_size does not match")
def test_latent_sites_of_single_rows_are_integrated_out():
    """Normal effects widen the noise, gamma effects make a Poisson variable negative binomial."""
    counts = np.random.default_rng(1).negative_binomial(3, 0.4, N)
    scale, shape = 0.8, 1.7
    for model, data, params, law in (
        (normal_effects, XY, {"scale": scale}, dist.Normal(XY["X"][:, 0], np.hypot(scale, 0.5)).log_prob(XY["y"])),
        (gamma_effects, counts, {"shape": shape}, dist.GammaPoisson(shape, 0.5).log_prob(counts)),
    ):
        converted, rows, start = from_numpyro(model, data=data)
        assert start.keys() == params.keys() and isinstance(converted, sc.HierarchicalModel)
        assert converted.groups == "data" and (rows["data"] == np.arange(N)).all()
        params = {name: jnp.asarray(value) for name, value in params.items()}
        found = jax.jit(converted.integrated)(params, grouped(rows, "data").arrays)
        np.testing.assert_allclose(found, law, atol=2e-3)


@pytest.mark.rotates(2, "chains of bridges")
@pytest.mark.filterwarnings("ignore:subsample_size does not match")
def test_latent_sites_of_chosen_rows_are_drawn_in_their_own_units(seed):
    """Posterior of the rate of a row, given the shape: Gamma(shape + count, rate + 1)."""
    counts = np.random.default_rng(seed).negative_binomial(3, 0.4, N)
    model, rows, _ = from_numpyro(gamma_effects, data=counts)
    shape = np.full((1, 2000), 1.7, np.float32)
    origin = types.SimpleNamespace(model=model, source=grouped(rows, "data"))
    run = types.SimpleNamespace(draws={"shape": shape}, origin=origin)
    found = local_draws(run, [4, 9], 0.9, num_draws=2000, seed=seed)
    wanted = (1.7 + counts[[4, 9]]) / 1.5
    assert np.all(np.abs(found.mean["rate"] - wanted) / np.sqrt(wanted / 1.5 / 2000) < 5)
    derived = from_numpyro(normal_effects, data=XY).model.derive({"scale": shape})
    assert sorted(derived) == ["variance"]  # "first" is one of a row


@pytest.mark.rotates(2, "chains of bridges")
def test_the_chain_is_that_of_the_hand_written_model():
    def log_likelihood(params, row):
        z = (row["y"] - row["X"] @ params["beta"]) / params["sigma"]
        return -0.5 * z**2 - jnp.log(params["sigma"])

    def log_prior(params):
        return -0.5 * jnp.sum((params["beta"] / 2.0) ** 2) - 0.5 * params["sigma"] ** 2

    own = sc.Model(log_likelihood, log_prior, transforms={"beta": None, "sigma": sc.transforms.positive})
    problem = from_numpyro(regression, data=XY)
    options = {"sampler": sc.SGLD(1e-4), "estimator": sc.Minibatch(10), "num_samples": 40, "seed": 3, "progress": False}
    theirs = sc.sample(*problem, **options)  # the order of the tuple is that of the arguments
    ours = sc.sample(own, XY, problem.params, **options)
    assert sorted(theirs.draws) == ["beta", "sigma"]
    for name in ours.draws:
        np.testing.assert_allclose(theirs.draws[name], ours.draws[name], rtol=1e-4, atol=1e-5)


def test_start_and_names():
    converted, data, params = from_numpyro(
        regression, data=XY, init_strategy=infer.init_to_value(values={"sigma": 0.5})
    )
    assert float(params["sigma"]) == 0.5
    assert params["beta"].shape == (D,)
    assert sorted(data) == ["X", "y"]
    assert "regression.log_likelihood" in repr(converted)
    again = from_numpyro(regression, data=XY, seed=1).params
    assert not np.allclose(params["beta"], again["beta"])
    assert np.all(np.abs(again["beta"]) <= 0.1), "near the origin by default"


def test_a_named_plate():
    assert from_numpyro(groups, data=DATA, plate="data").params["offset"].shape == (4,)
    with pytest.raises(ValueError, match=r"no plate `rows`; its plates are \['data', 'groups'\]"):
        from_numpyro(groups, data=DATA, plate="rows")
    with pytest.raises(ValueError, match="plate `groups` has size 4 when the model is called with 3 rows"):
        from_numpyro(groups, data=DATA, plate="groups")


def test_one_row_is_enough():
    few = {name: value[:1] for name, value in XY.items()}
    assert from_numpyro(regression, data=few).params["beta"].shape == (D,)


# -- models that do not ------------------------------------------------------------------------------------


def with_extra(extra):
    """A regression with something added before the likelihood."""

    def model(X, y):
        extra(X, y)
        regression(X, y)

    return model


def fixed_size(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Normal(beta, 1.0).expand([N]), obs=jnp.broadcast_to(y[0], (N,)))


def fixed_shapes(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", N):
        numpyro.sample("y", dist.Normal(beta * X[:, 0], 1.0), obs=y)


def no_plate(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(beta * X[:, 0], 1.0), obs=y)


def observed_outside(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(beta * X[:, 0], 1.0).to_event(1), obs=y)
    with numpyro.plate("data", X.shape[0]):
        numpyro.factor("nothing", jnp.zeros(X.shape[0]))


def empty_plate(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", X.shape[0]):
        numpyro.deterministic("mean", beta * X[:, 0])


def many_locals(X, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", X.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, scale).expand([1, 5]).to_event(1))
        numpyro.sample("y", dist.Normal(z.sum(axis=-1), 1.0), obs=y)


def only_locals(X, y):
    with numpyro.plate("data", X.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def discrete_local(X, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", X.shape[0]):
        k = numpyro.sample("k", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(k, scale), obs=y)


def local_outside(X, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", X.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)
    numpyro.factor("centre", -(jnp.mean(z) ** 2))


def centred_inside(X, y):
    regression(X - X.mean(axis=0), y)


def standardised_inside(X, y):
    regression((X - X.mean(axis=0)) / X.std(axis=0), y)


def constant_inside(X, y):
    regression((X - X) / (X - X).std(axis=0), y)


def summed_factor(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", X.shape[0]):
        numpyro.factor("all", -jnp.sum((y - beta * X[:, 0]) ** 2))


def nothing_latent(X, y):
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def dependent_bounds(X, y):
    top = numpyro.sample("top", dist.HalfNormal(1.0))
    numpyro.sample("inner", dist.Uniform(0.0, top))
    regression(X, y)


def branching(X, y):
    regression(X if y[0] > 0 else -X, y)


REFUSED = {
    "fixed size": (fixed_size, r"no plate .* follows the data: with 3 of the 30 rows it has `data` \(size 30\)"),
    "fixed shapes": (fixed_shapes, "failed when called with 3 of the 30 rows: .* shapes must depend on the data"),
    "no plate": (no_plate, "has no plate"),
    "observed outside": (observed_outside, r"terms outside the plate depend on the data"),
    "empty plate": (empty_plate, r"no observed site is inside the plate over the data \(data\)"),
    "many locals": (many_locals, r"each row \(`z`\) have 5 numbers. They are integrated out, .* for up to 4"),
    "only locals": (only_locals, "no latent site outside the plate over the data"),
    "discrete local": (discrete_local, r"site `k` is discrete \(BernoulliProbs\)"),
    "local outside": (local_outside, "terms outside the plate depend on the data"),
    "centred inside": (centred_inside, "rows of the NumPyro model depend on each other"),
    "standardised inside": (standardised_inside, "rows .* depend on each other: one has .* and nan by itself"),
    "a constant standardised inside": (constant_inside, "is NaN at the start. Does it divide by the deviation"),
    "summed factor": (summed_factor, "rows of the NumPyro model depend on each other"),
    "nothing latent": (nothing_latent, "no latent site"),
    "dependent bounds": (dependent_bounds, "support of site `inner` depends on another site"),
    "branching": (branching, "failed when called with .*TracerBool"),
    "factor outside": (
        with_extra(lambda X, y: numpyro.factor("outside", jnp.sum(y))),
        "terms outside the plate depend on the data",
    ),
    "prior of the rows": (
        with_extra(lambda X, y: numpyro.sample("m", dist.Normal(jnp.mean(y), 1.0))),
        "terms outside the plate depend on the data",
    ),
    "discrete": (with_extra(lambda X, y: numpyro.sample("k", dist.Poisson(3.0))), r"site `k` is discrete \(Poisson\)"),
    "covariance": (
        with_extra(lambda X, y: numpyro.sample("p", dist.Wishart(3.0, jnp.eye(2)))),
        "support of site `p` .PositiveDefinite",
    ),
    "circle": (with_extra(lambda X, y: numpyro.sample("v", dist.VonMises(0.0, 1.0))), "support of site `v`"),
    "unequal bounds": (
        with_extra(lambda X, y: numpyro.sample("u", dist.Uniform(0.0, jnp.array([1.0, 2.0])))),
        "bounds of site `u` differ",
    ),
    "param": (with_extra(lambda X, y: numpyro.param("w", 1.0)), "site `w` is a numpyro.param"),
}


@pytest.mark.rotates(2)
@pytest.mark.parametrize("case", REFUSED)
def test_models_that_do_not_fit_are_refused_by_name(case):
    model, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as caught:
        from_numpyro(model, data=XY)
    assert isinstance(caught.value, sc.errors.SciroccoError)


def test_other_bad_arguments():
    with pytest.raises(TypeError, match="must be a NumPyro model"):
        from_numpyro(3, data=XY)
    with pytest.raises(TypeError, match=r"needs `data`, .* sc.from_numpyro\(model, data={'X': X, 'y': y}\)"):
        from_numpyro(regression, DATA["X"], y=DATA["y"])
    with pytest.raises(ValueError, match=r"site `y` is a latent variable for each row .* put its values in `data`"):
        from_numpyro(regression, data={"X": DATA["X"]})
    with pytest.raises(ValueError, match="`X`: 30, `y`: 5"):
        from_numpyro(regression, data={"X": DATA["X"], "y": DATA["y"][:5]})
    with pytest.raises(ValueError, match="unexpected keyword argument"):
        from_numpyro(regression, data={"x": DATA["X"], "y": DATA["y"]})


def test_without_numpyro_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(MissingExtraError, match=r"sc\.from_numpyro needs the package `numpyro`.*scirocco\[numpyro\]"):
        from_numpyro(regression, data=XY)
