"""PyMC models become scirocco's: the same density, the same names and labels, or a clear refusal.

PyMC is not among the development tools (a gigabyte): `make pymc` runs these tests. `python benchmarks/pymc_models.py`
compares posteriors, too.
"""

import importlib.util
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scirocco as sc
from scirocco.bridges import from_pymc
from scirocco.data.groups import grouped
from scirocco.errors import MissingExtraError

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]

ROOT = pathlib.Path(__file__).resolve().parents[3]
HAS_PYMC = importlib.util.find_spec("pymc") is not None
needs_pymc = pytest.mark.skipif(not HAS_PYMC, reason="PyMC is not installed (pip install pymc)")
N = 30


def test_without_pymc_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(MissingExtraError, match=r"sc\.from_pymc needs .*`pip install pymc`.*scirocco\[pymc\]"):
        from_pymc(object())


if HAS_PYMC:
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    sys.path.append(str(ROOT / "benchmarks"))
    import pymc_models

    MODELS, GROUPED = list(pymc_models.MODELS), list(pymc_models.GROUPED)
else:
    MODELS = GROUPED = ["models of benchmarks/pymc_models.py"]

RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(N, 2)), RNG.normal(size=N)


def regression(extra=lambda beta: None, observed=Y, **options):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 1.0, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        extra(beta)
        pm.Normal("y", X @ beta, sigma, observed=observed, **options)
    return model


def whole(build):
    """A model with one parameter and a likelihood of the user's."""
    with pm.Model() as model:
        build(pm.Normal("m", 0.0, 1.0))
    return model


# -- models that fit ---------------------------------------------------------------------------------------------


@needs_pymc
@pytest.mark.parametrize("name", MODELS)
def test_density_is_pymcs_on_the_real_line(name):
    """Prior, rows and PyMC's Jacobians at random points, in double precision."""
    with jax.enable_x64(True):
        assert pymc_models.density_difference(name) < 1e-8


@needs_pymc
def test_precision_and_warnings_are_left_alone(recwarn):
    before = jax.config.read("jax_enable_x64")
    problem = from_pymc(regression())
    assert jax.config.read("jax_enable_x64") == before
    assert problem.params["beta"].dtype == jnp.zeros(()).dtype
    value = problem.model.log_density(problem.params, problem.data)
    assert np.isfinite(value)
    assert not [each for each in recwarn if "truncated" in str(each.message)]


@needs_pymc
def test_names_labels_and_deterministic_variables():
    """A run has PyMC's names in PyMC's units; dims and coords are in ArviZ's container."""
    made, _ = pymc_models.built("varying_intercepts")
    problem = from_pymc(made)
    assert sorted(problem.data)[-1] == "y"
    assert sorted(problem.params) == ["mean", "noise", "slope", "spread", "z"]
    options = {"sampler": sc.SGLD(1e-4), "estimator": sc.Minibatch(40), "progress": False}
    run = sc.sample(*problem, num_samples=50, **options)
    effect = run.draws["mean"][..., None] + run.draws["spread"][..., None] * run.draws["z"]
    np.testing.assert_allclose(run.derived()["effect"], effect, rtol=1e-5)
    assert "effect[11]" in run.summary().index
    posterior = run.to_arviz().posterior
    assert posterior["effect"].dims == ("chain", "draw", "county") == posterior["z"].dims
    assert list(posterior["county"].values[:2]) == ["county 0", "county 1"]
    assert np.all(run.draws["noise"] > 0)


@needs_pymc
def test_deterministic_variables_of_the_rows_are_not_computed():
    model = from_pymc(pymc_models.built("linear")[0]).model
    draws = {"intercept": np.zeros((1, 2)), "beta": np.ones((1, 2, 3)), "sigma": np.ones((1, 2))}
    assert {name: each.shape for name, each in model.derive(draws).items()} == {"doubled": (1, 2, 3)}


@needs_pymc
def test_shorter_observations_and_indices_are_used():
    """A single observed number belongs to the prior; an index of groups is data of the rows."""
    group = RNG.integers(0, 3, N)

    def extra(beta):
        a = pm.Normal("a", 0.0, 1.0, shape=3)
        pm.Normal("auxiliary", a[0], 0.1, observed=0.5)
        pm.Normal("other", a[group], 1.0, observed=-Y)

    model, rows, params = from_pymc(regression(extra))
    assert sorted(each.dtype.kind for each in rows.values()) == ["f", "f", "f", "i"]
    params = params | {"a": jnp.array([2.0, 0.0, 0.0])}
    prior = model.log_prior(params) - model.log_prior(params | {"a": jnp.array([0.5, 0.0, 0.0])})
    np.testing.assert_allclose(prior, -0.5 * (1.5 / 0.1) ** 2 - 0.5 * (2.0**2 - 0.5**2), rtol=1e-4)


@needs_pymc
def test_what_depends_on_data_alone_is_computed_once():
    """A regression on the row before and on the mean of all rows."""
    model, rows, _ = from_pymc(
        whole(lambda m: pm.Normal("y", m * (pt.concatenate([[0.0], pt.as_tensor(Y)[:-1]]) - Y.mean()), observed=Y))
    )
    before = np.concatenate([[0.0], Y[:-1]]) - Y.mean()
    each = model.log_likelihoods({"m": jnp.array(0.5)}, {name: value[4:9] for name, value in rows.items()})
    expected = -0.5 * (Y - 0.5 * before) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(each, expected[4:9], rtol=1e-5)


@needs_pymc
def test_densities_of_zero_are_not_data():
    """A row that is not 0 has density 0 under the part of the mixture that is always 0: a number of the data alone."""
    rows = from_pymc(pymc_models.built("zero_inflated")[0]).data
    assert list(rows) == ["y"]


# -- variables for rows and groups, which are integrated out -----------------------------------------------------------


def integrated_out(problem, names, params):
    """log ∫ exp(log density) over variables in which it is quadratic: its maximum and its curvature."""
    model, rows, start = problem
    shapes = {name: jnp.shape(start[name]) for name in names}

    def density(flat):
        values, begin = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            values[name], begin = flat[begin : begin + size].reshape(shape), begin + size
        return model.log_density(params | values, rows)

    zero = jnp.zeros(sum(int(np.prod(shape)) for shape in shapes.values()))
    value, gradient = jax.value_and_grad(density)(zero)
    curvature = -jax.hessian(density)(zero)
    mode = jnp.linalg.solve(curvature, gradient)
    volume = 0.5 * len(zero) * np.log(2 * np.pi) - 0.5 * jnp.linalg.slogdet(curvature)[1]
    return value + 0.5 * gradient @ mode + volume


def closed_form(name, made, params):
    """The log posterior of the variables that are the same for all rows."""
    if name == "eight_schools":
        rows = from_pymc(made).data
        error = rows["constant_1"] ** 2
        prior = stats.norm(0, 5).logpdf(params["mu"]) + stats.halfcauchy(scale=5).logpdf(params["tau"])
        return prior + stats.norm(params["mu"], np.sqrt(error + params["tau"] ** 2)).logpdf(rows["y"]).sum()
    if name == "overdispersed":
        rows = from_pymc(made).data
        mean, alpha = np.exp(params["b"][0] + params["b"][1] * rows["constant_1"]), float(params["alpha"])
        prior = stats.norm.logpdf(params["b"]).sum() + stats.expon(scale=2).logpdf(alpha)
        return prior + stats.nbinom(alpha, alpha / (alpha + mean)).logpmf(rows["y"]).sum()
    many = from_pymc(made, max_groups=10**6)
    return integrated_out(many, sorted(set(many.params) - set(params)), params)


@needs_pymc
@pytest.mark.parametrize("name", GROUPED)
def test_variables_of_groups_are_integrated_out(name, seed):
    """In double precision: exact for normal effects, and a negative binomial is a Poisson with gamma effects."""
    with jax.enable_x64(True):
        made, _ = pymc_models.built(name)
        model, rows, start = from_pymc(made, max_groups=1)
        assert isinstance(model, sc.HierarchicalModel)
        bins, rng = grouped(rows, model.groups).arrays, np.random.default_rng(seed)
        position = model.unconstrain(start)
        for _ in range(2):
            shifted = {key: each + 0.3 * rng.normal(size=np.shape(each)) for key, each in position.items()}
            params = model.constrain(shifted)
            tolerance = 2e-4 if name == "overdispersed" else 1e-8
            found = model.log_density(params, bins)
            np.testing.assert_allclose(found, closed_form(name, made, params), rtol=tolerance)


@needs_pymc
def test_values_of_groups_after_a_run():
    """Labels are those of the coords; deterministic variables of one group each are drawn, too."""
    made, _ = pymc_models.built("radon")
    problem = from_pymc(made, max_groups=10)
    assert sorted(problem.params) == ["mean", "noise", "slope", "spread"]
    run = sc.sample(*problem, num_samples=40, num_chains=1, sampler=sc.SGLD(1e-4), estimator=sc.Full(), progress=False)
    found = run.locals(["county 7", "county 3"], num_draws=40, keep_draws=True)
    assert sorted(found.draws) == ["effect", "offset"]  # not the difference from the mean of all counties
    mean, spread = (np.asarray(run.draws[name])[0][:, None] for name in ("mean", "spread"))
    np.testing.assert_allclose(found.draws["effect"], mean + spread * found.draws["offset"], rtol=1e-4)
    assert "effect" not in run.derived()


# -- new observations ----------------------------------------------------------------------------------------------


@needs_pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*MODELS, *GROUPED])
def test_new_observations_are_those_of_pymc(name, seed):
    """Rows and draws by themselves and pm.draw: the same law, by the mean of tanh(y) and of its square in each row."""
    made, theirs = pymc_models.built(name)
    problem = from_pymc(made, max_groups=1_000 if name in MODELS else 1)
    if name == "potential":
        assert problem.model.simulate is None
        return
    count, free = 400, {key: np.asarray(value, np.float64) for key, value in problem.params.items()}
    draws = {key: np.repeat(value[None], count, axis=0) for key, value in free.items()}
    found = problem.model.simulate(draws, problem.data, 0, [seed])
    wanted = pm.draw(
        list(theirs.observed_RVs),
        draws=count,
        random_seed=seed,
        givens={theirs[key]: value for key, value in free.items()},
        mode=pytensor.compile.mode.Mode(linker="py", optimizer=None),
    )
    seen = problem.model.observed(problem.data)
    for rv, other in zip(theirs.observed_RVs, wanted, strict=True):
        ours, other = np.moveaxis(found[rv.name], -1, 0), np.asarray(other, float)
        assert ours.shape == other.shape
        for power in (1, 2):
            a, b = np.tanh(ours) ** power, np.tanh(other) ** power
            error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / count + 1e-9)
            assert np.abs((a.mean(axis=0) - b.mean(axis=0)) / error).max() < 5.5
        np.testing.assert_array_equal(seen[rv.name], theirs.rvs_to_values[rv].eval())


@needs_pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["rugby", "negative_binomial", "bambi_normal"])
def test_from_a_model_to_comparison_and_container(name):
    """Everything that follows a run, without a function by hand."""
    made, theirs = pymc_models.built(name)
    run = sc.sample(*from_pymc(made), num_samples=250, num_chains=4, seed=1, progress=False)
    names = [rv.name for rv in theirs.observed_RVs]
    assert run.summary()["ess_bulk"].min() > 100
    predicted = run.predict()
    check = sc.analysis.predictive_check(run, observed=names[0], num_draws=200)
    seen = np.asarray(theirs.rvs_to_values[theirs.observed_RVs[0]].eval())
    np.testing.assert_allclose(check.observed, seen, rtol=1e-6)  # in JAX's precision
    assert check.ok, check.words  # the data are from the model
    inside = (predicted.low[names[0]] <= seen) & (seen <= predicted.high[names[0]])
    assert 0.8 < inside.mean() <= 1.0
    assert np.isfinite(sc.analysis.loo(run).elpd)
    assert sc.analysis.compare({"a": run, "b": run}).frame.shape[0] == 2
    tree = run.to_arviz(log_likelihood=True, observed_data=True, posterior_predictive=True)
    assert set(names) <= set(tree["posterior_predictive"]) and set(names) <= set(tree["observed_data"])
    assert tree["posterior_predictive"][names[0]].shape == (4, 250, len(seen))
    for key, dims in theirs.named_vars_to_dims.items():
        if key in tree["posterior"]:
            assert tree["posterior"][key].dims[2:] == tuple(dims)
            for dim in dims:
                np.testing.assert_array_equal(tree["posterior"][dim], theirs.coords[dim])


# -- models that do not ------------------------------------------------------------------------------------------


def refused():
    missing = np.where(np.arange(N) < 3, np.nan, Y)
    return {
        "time series": (
            lambda: whole(lambda m: pm.AR("y", rho=[m], sigma=1.0, constant=False, observed=Y)),
            "`y` has one density for all of its 30 observations",
        ),
        "process": (
            lambda: whole(
                lambda m: pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, 1.0)).marginal_likelihood(
                    "y", X[:, :1], Y, sigma=pt.exp(m)
                )
            ),
            "`y` has one density for all",
        ),
        "covariance of rows": (
            lambda: whole(lambda m: pm.MvNormal("y", np.zeros(N), pt.exp(m) * np.eye(N), observed=Y)),
            "`y` has one density for all",
        ),
        "running sum": (
            lambda: whole(lambda m: pm.Normal("y", pt.cumsum(m * X[:, 0]), observed=Y)),
            "observations of `y` depend on each other",
        ),
        "mean of all": (
            lambda: whole(lambda m: pm.Normal("y", m * X[:, 0] - pt.mean(m * X[:, 0]), observed=Y)),
            "observations of `y` depend on each other",
        ),
        "custom density": (
            lambda: whole(lambda m: pm.CustomDist("y", m, logp=lambda value, m: -pt.sum((value - m) ** 2), observed=Y)),
            "`y`",
        ),
        "summed potential": (
            lambda: regression(lambda beta: pm.Potential("p", pt.sum(Y * beta[0]))),
            r"pm\.Potential `p` is one number that depends on the rows",
        ),
        "missing": (
            lambda: regression(observed=np.ma.masked_invalid(missing)),
            "`y_unobserved` holds the missing values of `y`",
        ),
        "discrete": (lambda: regression(lambda beta: pm.Poisson("k", 3.0)), "`k` is discrete"),
        "total size": (lambda: regression(total_size=300), "`y` uses pm.Minibatch or total_size"),
        "minibatch": (
            lambda: whole(lambda m: pm.Normal("y", m, observed=pm.Minibatch(Y, batch_size=10), total_size=N)),
            "`y` uses pm.Minibatch",
        ),
        "coupled rows": (
            lambda: whole(lambda m: pm.Normal("y", pt.cumsum(pm.Normal("z", m, 1.0, shape=N)), observed=Y)),
            "`z` has values for each of the 30 rows.* the rows of `y` use values of other rows",
        ),
        "random walk": (
            lambda: whole(
                lambda m: pm.Normal(
                    "y", pm.GaussianRandomWalk("z", m, init_dist=pm.Normal.dist(), steps=N - 1), observed=Y
                )
            ),
            "`z` has values for each of the 30 rows.* not independent given the other variables",
        ),
        "sum to zero": (
            lambda: whole(lambda m: pm.Normal("y", by_group(m, lambda z: z - z.mean()), observed=Y)),
            "`z` has values for 10 groups .* the rows of `y` use values of other groups",
        ),
        "covariance of groups": (
            lambda: whole(
                lambda m: pm.Normal("y", pm.MvNormal("z", m * np.ones(10), np.eye(10) + 0.5)[TENS], observed=Y)
            ),
            "`z` has values for 10 groups .* not independent",
        ),
        "local bounds": (
            lambda: whole(lambda m: pm.Normal("y", pm.Uniform("z", 0.0, pt.exp(m), shape=10)[TENS], observed=Y)),
            "`z` .* its bounds depend on `m`",
        ),
        "two factors": (
            lambda: whole(
                lambda m: pm.Normal("y", by_group(m) + pm.Normal("w", shape=6)[np.arange(N) % 6], observed=Y)
            ),
            r"more than max_groups=5 groups of rows: `w` for 6 .*, `z` for 10 .*sc\.models\.GLMM",
        ),
        "many numbers": (
            lambda: whole(lambda m: pm.Normal("y", pm.Normal("z", m, shape=(10, 5))[TENS].sum(axis=1), observed=Y)),
            r"each group \(`z`\) have 5 numbers",
        ),
        "lengths": (
            lambda: whole(lambda m: [pm.Normal(f"y{n}", m, observed=np.zeros(n)) for n in (1_500, 2_000)]),
            "`y1500` has 1,500 observations, and another has 2,000",
        ),
        "nothing observed": (lambda: whole(lambda m: None), "no observed variable"),
        "nothing free": (nothing_free, "no free variable"),
    }


TENS = np.arange(N) // 3


def by_group(m, change=lambda z: z):
    return change(pm.Normal("z", m, 1.0, shape=10))[TENS]


def nothing_free():
    with pm.Model() as model:
        pm.Normal("y", 0.0, 1.0, observed=Y)
    return model


@needs_pymc
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", list(refused()) if HAS_PYMC else ["all"])
def test_models_that_do_not_fit_are_refused_by_name(case):
    build, message = refused()[case]
    with pytest.raises(ValueError, match=message) as caught:
        from_pymc(build(), max_groups=5)
    assert isinstance(caught.value, sc.errors.SciroccoError)


@needs_pymc
def test_other_bad_arguments():
    with pytest.raises(TypeError, match=r"must be a pm\.Model or a bambi\.Model"):
        from_pymc(3)


@needs_pymc
def test_functions_that_were_made_in_one_trace_serve_others():
    """The graph for a length is made where the first function with that length is traced, constants included."""
    model, rows, params = from_pymc(pymc_models.built("mixture")[0])
    some = {name: value[:5] for name, value in rows.items()}
    position = model.unconstrain(params)
    first = jax.jit(lambda u: model.log_likelihoods(u, some) + model.log_prior_density(u))(position)
    again = jax.vmap(lambda row: model.log_likelihood_of_one(position, row))(some)
    np.testing.assert_allclose(first, again + model.log_prior_density(position), rtol=1e-5)


@needs_pymc
@pytest.mark.filterwarnings("ignore")
def test_the_page_tells_the_truth(monkeypatch, capsys):
    """The blocks of docs/from_pymc.md, which are not run when the page is built."""
    pytest.importorskip("bambi")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from page_blocks import blocks

    names = {}
    page = (ROOT / "docs" / "from_pymc.md").read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language == "python":
            exec(block.code, names)
    said = capsys.readouterr().out
    assert "effect[4]" in said
    assert "('chain', 'draw', 'county') ['Aitkin' 'Anoka' 'Becker' 'Brown' 'Carver']" in said
    slope, *_ = (line for line in said.splitlines() if line.startswith("-0."))
    assert abs(float(slope) + 0.6) < 0.05, said
    assert "spread" in said and "shop 7 offset" in " ".join(said.split()), said
    assert isinstance(names["run"].origin.model, sc.HierarchicalModel)
    assert abs(names["run"].draws["spread"].mean() - 0.5) < 0.1
