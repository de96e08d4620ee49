"""R's six functions: the same chains as scirocco's own, and R's own recursions, step for step."""

import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco import sgmcmc
from scirocco.errors import DivergenceError, InvalidTypeError, InvalidValueError, SciroccoWarning
from scirocco.run.loop import step_key
from scirocco.sgmcmc import functions
from scirocco.sgmcmc.arguments import snake_case

N, D = 40, 2
NAMES = ("sgld", "sghmc", "sgnht", "sgldcv", "sghmccv", "sgnhtcv")
STEPSIZE = {"bias": 4e-4, "beta": 2e-4}

pytestmark = [
    pytest.mark.compile,
    pytest.mark.filterwarnings("ignore:the friction of SGHMC is small:scirocco.errors.SciroccoWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def _hurry(quick_compiler):
    """Programs of a few steps."""


def make_dataset():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return {"X": X, "y": (X @ [1.0, -2.0] + 0.5 + rng.normal(size=N)).astype(np.float32)}


DATASET = make_dataset()
PARAMS = {"bias": 0.1, "beta": np.array([[0.3], [-0.2]], np.float32)}


def log_lik(params, dataset):
    residual = dataset["y"] - jnp.squeeze(dataset["X"] @ params["beta"], 1) - params["bias"]
    return -0.5 * jnp.sum(residual**2)


def log_prior(params):
    return -0.05 * (params["bias"] ** 2 + jnp.sum(params["beta"] ** 2))


def gradient(theta, dataset=DATASET):
    """The exact gradient of the log posterior, in NumPy."""
    residual = dataset["y"].astype(np.float64) - (dataset["X"] @ theta["beta"])[:, 0] - theta["bias"]
    beta = dataset["X"].T.astype(np.float64) @ residual[:, None] - 0.1 * theta["beta"]
    return {"bias": residual.sum() - 0.1 * theta["bias"], "beta": beta}


def double(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def quiet(name, *, setup=False, **kwargs):
    """Call one of the functions with the test problem; a batch of all rows makes the gradients exact."""
    given = {
        "logLik": log_lik,
        "dataset": DATASET,
        "params": PARAMS,
        "stepsize": STEPSIZE,
        "logPrior": log_prior,
        "minibatchSize": N,
        "verbose": False,
        "seed": 5,
    }
    return getattr(sgmcmc, f"{name}_setup" if setup else name)(**{**given, **kwargs})


@pytest.fixture
def calls(monkeypatch):
    """What the functions hand to `sc.sample`, without running it."""
    seen = []

    def record(model, data, params, **kwargs):
        seen.append({"model": model, "params": params, **kwargs})
        draws = {name: np.zeros((1, kwargs["num_samples"], *np.shape(leaf))) for name, leaf in params.items()}
        return sc.Run(draws, None, {}, {}, {}, {}, "complete", [])

    monkeypatch.setattr(functions, "sample", record)
    return seen


# -- the same chains as scirocco's own ---------------------------------------------------------------------

EPS = {name: size**0.5 for name, size in STEPSIZE.items()}
SAMPLERS = {
    "sgld": sc.SGLD({name: size / 2 for name, size in STEPSIZE.items()}),
    "sghmc": sc.SGHMC.from_r(STEPSIZE, alpha=0.05, num_leapfrog=3),
    "sgnht": sc.SGNHT.from_r(STEPSIZE, a=0.05),
}
TUNING = {"sgld": {}, "sghmc": {"alpha": 0.05, "L": 3}, "sgnht": {"a": 0.05}}


@pytest.mark.parametrize("name", NAMES)
def test_each_function_is_a_run_of_scirocco(name, calls):
    base, cv = name.removesuffix("cv"), name.endswith("cv")
    options = TUNING[base] | ({"optStepsize": 1e-3, "nItersOpt": 7} if cv else {})
    quiet(name, minibatchSize=8, nIters=11, **options)
    (call,) = calls
    assert call["sampler"] == SAMPLERS[base]
    assert (call["num_samples"], call["thin"], call["seed"]) == (11, options.get("L", 1), 5)
    assert call["model"] == sc.Model.from_total(log_lik, log_prior)
    if not cv:
        assert call["estimator"] == sc.Minibatch(8)
    else:
        estimator = call["estimator"]
        assert (estimator.batch_size, estimator.num_optimizer_steps, estimator.polish) == (8, 7, False)
        assert estimator.optimizer is not None


def test_without_opt_stepsize_the_mode_is_found_automatically(calls):
    quiet("sgldcv", minibatchSize=8, nIters=1)
    quiet("sgldcv", minibatchSize=8, nIters=1, nItersOpt=50)
    quiet("sgldcv", minibatchSize=8, nIters=1, optStepsize=1e-3)
    assert calls[0]["estimator"] == sc.ControlVariates(8)
    assert calls[1]["estimator"] == sc.ControlVariates(8, num_optimizer_steps=50)
    assert calls[2]["estimator"].num_optimizer_steps == 10_000


def test_no_friction_and_no_diffusion_leave_them_to_the_samplers(calls):
    quiet("sghmc", nIters=1, alpha=None)
    quiet("sgnht", nIters=1, a=None)
    assert calls[0]["sampler"] == sc.SGHMC(EPS, resample_every=5)
    assert calls[1]["sampler"] == sc.SGNHT(EPS, thermostat="leaf")


def test_sgld_draws_what_sample_draws():
    output = quiet("sgld", minibatchSize=8, nIters=30)
    run = sc.sample(
        sc.Model.from_total(log_lik, log_prior),
        DATASET,
        PARAMS,
        sampler=SAMPLERS["sgld"],
        estimator=sc.Minibatch(8),
        num_samples=30,
        seed=5,
        progress=False,
    )
    assert list(output) == list(PARAMS)
    assert output["bias"].shape == (30,)
    assert output["beta"].shape == (30, D, 1)
    for name in PARAMS:
        np.testing.assert_array_equal(output[name], run.draws[name][0])


# -- R's recursions, driven by the same noise --------------------------------------------------------------


HAMILTONIAN = {"alpha": {"bias": 0.2, "beta": 0.05}, "L": 3}


def randomness(name, **options):
    """The first state of the chain and, step by step, its noise."""
    setup = quiet(name, setup=True, **options)
    state = sgmcmc.init_sess(setup).state
    sampler = setup.kernel.problem.parts.sampler
    position = state.sampler.position

    drawn = jax.jit(lambda number: sampler.noise(step_key(state.noise_key, number), position))

    def noise(number):
        return double(drawn(number))

    return state, noise


def test_sgld_is_rs_recursion():
    _, noise = randomness("sgld")
    theta, chain = double(PARAMS), []
    for m in range(8):
        grad, xi = gradient(theta), noise(m)
        theta = {k: theta[k] + 0.5 * h * grad[k] + np.sqrt(h) * xi[k] for k, h in STEPSIZE.items()}
        chain.append(theta)
    expect_chain(quiet("sgld", nIters=8), chain)


def test_sghmc_is_rs_recursion_with_the_right_momentum_variance():
    alpha, length = HAMILTONIAN["alpha"], HAMILTONIAN["L"]
    _, noise = randomness("sghmc", **HAMILTONIAN)
    theta, nu, chain, number = double(PARAMS), {}, [], 0
    for _ in range(4):
        for inner in range(length):
            kick, fresh = noise(number)
            if inner == 0:  # R's last versions have sqrt(eta / 2) here
                nu = {k: np.sqrt(eta) * fresh[k] for k, eta in STEPSIZE.items()}
            share = 0.5 if inner == 0 else 1.0  # R has a whole kick after the refresh, which loses variance
            grad = gradient(theta)
            nu = {
                k: nu[k] + share * eta * grad[k] - alpha[k] * nu[k] + np.sqrt(2 * eta * alpha[k]) * kick[k]
                for k, eta in STEPSIZE.items()
            }
            theta = {k: theta[k] + nu[k] for k in theta}
            number += 1
        chain.append(theta)
    expect_chain(quiet("sghmc", **HAMILTONIAN, nIters=4), chain)


def test_sgnht_is_rs_recursion():
    a = 0.05
    state, noise = randomness("sgnht", a=a)
    theta, chain = double(PARAMS), []
    nu = {k: np.sqrt(eta) * np.asarray(state.sampler.momentum[k], np.float64) for k, eta in STEPSIZE.items()}
    alpha = dict.fromkeys(theta, a)
    for m in range(8):
        grad, xi = gradient(theta), noise(m)
        nu = {k: nu[k] + eta * grad[k] - alpha[k] * nu[k] + np.sqrt(2 * a * eta) * xi[k] for k, eta in STEPSIZE.items()}
        theta = {k: theta[k] + nu[k] for k in theta}
        alpha = {k: alpha[k] + np.mean(nu[k] ** 2) - eta for k, eta in STEPSIZE.items()}
        chain.append(theta)
    expect_chain(quiet("sgnht", a=a, nIters=8), chain)


def expect_chain(output, chain):
    for name in PARAMS:
        np.testing.assert_allclose(output[name], np.stack([theta[name] for theta in chain]), rtol=2e-5, atol=2e-5)


def test_control_variates_start_where_rs_gradient_descent_ends():
    same = {"X": np.full((N, D), 0.7, np.float32), "y": np.ones(N, np.float32)}  # any batch tells all
    options = {"setup": True, "dataset": same, "minibatchSize": 8, "optStepsize": 4e-3, "nItersOpt": 12}
    setup, far = quiet("sgldcv", **options), quiet("sgldcv", **options, params=PARAMS | {"bias": 1e4})
    with warnings.catch_warnings():
        warnings.simplefilter("error", SciroccoWarning)
        sgmcmc.init_sess(setup, verbose=False)
    theta = double(PARAMS)
    for _ in range(12):
        grad = gradient(theta, same)
        theta = {k: theta[k] + 4e-3 * grad[k] for k in theta}
    for name, value in sgmcmc.get_params(setup).items():
        np.testing.assert_allclose(value, theta[name], rtol=1e-4, atol=1e-5)
    del options["setup"]
    output = quiet("sgldcv", **options, nIters=2)
    for number in range(2):
        sgmcmc.step(setup)
        for name, value in sgmcmc.get_params(setup).items():
            np.testing.assert_allclose(output[name][number], value, rtol=1e-4, atol=1e-5)
    with pytest.warns(SciroccoWarning, match=r"sgldcv: the optimisation stopped about .* from the mode"):
        sgmcmc.init_sess(far, verbose=False)


# -- step by step ------------------------------------------------------------------------------------------


def test_step_by_step_makes_the_chain_of_the_function():
    setup = quiet("sghmc", setup=True, **HAMILTONIAN)
    assert (setup.N, setup.n) == (N, N)
    np.testing.assert_array_equal(setup.params["beta"], PARAMS["beta"])
    sess = sgmcmc.initSess(setup)
    chain = []
    for number in range(6):
        if number % 2:
            sgmcmc.sgmcmcStep(setup, sess)
            chain.append(sgmcmc.getParams(setup, sess))
        else:  # without the session, and by the short name
            sgmcmc.step(setup)
            chain.append(sgmcmc.get_params(setup))
        assert all(isinstance(value, np.ndarray) for value in chain[-1].values())
    assert "6 iterations made" in repr(setup)
    np.testing.assert_array_equal(np.asarray(setup.params["beta"]), chain[-1]["beta"])
    output = quiet("sghmc", **HAMILTONIAN, nIters=6)
    for name in PARAMS:
        assert [value.shape for value in (chain[0][name], output[name][0])] == [np.shape(PARAMS[name])] * 2
        np.testing.assert_allclose(np.stack([theta[name] for theta in chain]), output[name], rtol=1e-4, atol=1e-5)


def test_a_session_can_be_started_again_and_belongs_to_its_setup():
    setup, other = (quiet("sgld", setup=True) for _ in range(2))
    first = sgmcmc.init_sess(setup)
    sgmcmc.step(setup)
    once = sgmcmc.get_params(setup)
    second = sgmcmc.init_sess(setup)
    sgmcmc.step(setup)
    np.testing.assert_array_equal(sgmcmc.get_params(setup, second)["beta"], once["beta"])
    sgmcmc.step(setup, first)
    assert not np.array_equal(sgmcmc.get_params(setup, first)["beta"], once["beta"])
    with pytest.raises(InvalidValueError, match="no session yet"):
        sgmcmc.step(other)
    with pytest.raises(InvalidValueError, match="belongs to another set-up"):
        sgmcmc.step(other, first)
    with pytest.raises(InvalidTypeError, match="the result of init_sess"):
        sgmcmc.get_params(setup, 3)
    with pytest.raises(InvalidTypeError, match="the result of sgld_setup"):
        sgmcmc.step(first)


@pytest.mark.parametrize("name", NAMES)
def test_every_function_has_its_setup_in_both_spellings(name):
    snake, camel = getattr(sgmcmc, f"{name}_setup"), getattr(sgmcmc, f"{name}Setup")
    assert snake is camel
    ours, theirs = (set(inspect.signature(f).parameters) for f in (snake, getattr(sgmcmc, name)))
    assert theirs - ours == {"nIters"} and ours <= theirs
    assert quiet(name, setup=True).job.name == name


def test_divergence_is_told_in_rs_terms():
    with pytest.raises(
        DivergenceError, match=r"sgld: .* in iteration \d+\. The stepsize is probably too large"
    ) as caught:
        quiet("sgld", stepsize=10.0, nIters=300)
    assert caught.value.run.num_draws == caught.value.step
    setup = quiet("sgld", setup=True, stepsize=10.0)
    sgmcmc.init_sess(setup)
    with pytest.raises(DivergenceError, match=f"in iteration {caught.value.step + 1}"):
        for _ in range(300):
            sgmcmc.step(setup)
    assert np.all(np.isfinite(sgmcmc.get_params(setup)["beta"])), "the last good state is kept"


# -- names, seeds, sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_camel_case_and_snake_case_are_the_same(name, calls):
    function = getattr(sgmcmc, name)
    values = {
        "logLik": log_lik,
        "dataset": DATASET,
        "params": PARAMS,
        "stepsize": 1e-3,
        "optStepsize": 2e-3,
        "logPrior": log_prior,
        "minibatchSize": 0.2,
        "alpha": 0.3,
        "L": 2,
        "a": 0.4,
        "nIters": 3,
        "nItersOpt": 4,
        "verbose": False,
        "seed": 6,
    }
    taken = {key: value for key, value in values.items() if key in inspect.signature(function).parameters}
    function(**taken)
    function(**{snake_case(key): value for key, value in taken.items()})
    function(*taken.values())  # and the order is R's
    first, *others = calls
    assert all(first == other for other in others)
    assert first["estimator"].batch_size == 8


def test_names_in_snake_case():
    camel = ("logLik", "logPrior", "minibatchSize", "nIters", "nItersOpt", "optStepsize", "L", "a", "stepsize")
    snake = ("log_lik", "log_prior", "minibatch_size", "n_iters", "n_iters_opt", "opt_stepsize", "L", "a", "stepsize")
    assert tuple(map(snake_case, camel)) == snake


def test_a_fresh_seed_is_told_and_differs(calls, capsys):
    quiet("sgld", nIters=1, seed=None, verbose=True)
    quiet("sgld", nIters=1, seed=None, verbose=False)
    assert f"seed={calls[0]['seed']}" in capsys.readouterr().out
    assert calls[0]["seed"] != calls[1]["seed"]
    assert (calls[0]["progress"], calls[1]["progress"]) == (True, False)
    quiet("sgld", nIters=1, verbose=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("given", "size"), [(7, 7), (0.25, 10), (0.99, 40), (1, 1), (N, N), (np.int64(3), 3)])
def test_batch_as_count_or_share(given, size, calls):
    quiet("sgld", nIters=1, minibatchSize=given)
    assert calls[0]["estimator"] == sc.Minibatch(size)


def test_lists_are_arrays(calls):
    quiet("sgld", params={"bias": 0.1, "beta": [[0.3], [-0.2]]}, nIters=1)
    np.testing.assert_allclose(calls[0]["params"]["beta"], PARAMS["beta"])


def no_sum(params, dataset):
    return -0.5 * (dataset["y"] - jnp.squeeze(dataset["X"] @ params["beta"], 1)) ** 2


def a_mean(params, dataset):
    return log_lik(params, dataset) / dataset["y"].shape[0]


BAD = {
    "vector": ({"logLik": no_sum}, ValueError, r"sum over its rows.*got shape \(40,\) for 40 rows\. Sum over the rows"),
    "mean": ({"logLik": a_mean}, ValueError, "`logLik` must return the SUM .*Did you take a mean"),
    "no function": ({"logLik": 3}, TypeError, "`logLik` must be a function"),
    "prior": ({"logPrior": 3}, TypeError, "`logPrior` must be a function"),
    "wrong key": ({"logLik": lambda p, d: jnp.sum(d["z"])}, ValueError, "failed for parameters.*KeyError"),
    "dataset": ({"dataset": DATASET["X"]}, TypeError, "`dataset` must be a dict of arrays such as .* got a ndarray"),
    "no dataset": ({"dataset": {}}, ValueError, "`dataset` is empty"),
    "unequal": ({"dataset": {"X": DATASET["X"], "y": DATASET["y"][:5]}}, ValueError, "`X`: 40, `y`: 5"),
    "NaN": ({"dataset": DATASET | {"y": np.full(N, np.nan)}}, ValueError, "data `y` holds 40 missing \\(NaN\\)"),
    "ragged": ({"dataset": {"X": [[1.0], [1.0, 2.0]]}}, TypeError, "ragged"),
    "params": ({"params": 0.0}, TypeError, "`params` must be a dict of arrays such as"),
    "names": ({"params": {1: 0.0}}, TypeError, "names in `params` must be strings"),
    "integers": ({"params": PARAMS | {"beta": np.zeros((2, 1), int)}}, TypeError, "`beta` has the integer dtype"),
    "stepsize name": (
        {"stepsize": {"bias": 1.0, "bata": 1.0}},
        ValueError,
        "`bata`.*not a parameter. Did you mean `beta`",
    ),
    "stepsize lacks": ({"stepsize": {"bias": 1.0}}, ValueError, r"`stepsize` lacks \['beta'\]"),
    "stepsize 0": (
        {"stepsize": {"bias": 1.0, "beta": 0.0}},
        ValueError,
        r"`stepsize\['beta'\]` must be finite and > 0",
    ),
    "stepsize < 0": ({"stepsize": -1.0}, ValueError, "must be finite and > 0, got -1.0"),
    "stepsize None": ({"stepsize": None}, TypeError, "`stepsize` must be a number, or a dict"),
    "stepsize text": ({"stepsize": "small"}, TypeError, "`stepsize` must be a number, or a dict"),
    "batch 0": ({"minibatchSize": 0}, ValueError, "`minibatchSize` must be at least 1, got 0"),
    "batch < 0": ({"minibatchSize": -0.5}, TypeError, "`minibatchSize` must be a whole number"),
    "batch > N": ({"minibatchSize": 41}, ValueError, "`minibatchSize` is 41, but `dataset` has only 40 rows"),
    "batch 1.5": ({"minibatchSize": 1.5}, TypeError, "`minibatchSize` must be a whole number"),
    "batch 1.0": ({"minibatchSize": 1.0}, ValueError, "could mean one row or all of them: write 1 or 40"),
    "batch tiny": ({"minibatchSize": 0.01}, ValueError, "less than one of the 40 rows"),
    "batch text": ({"minibatchSize": "all"}, TypeError, "`minibatchSize` must be a number"),
    "nIters 0": ({"nIters": 0}, ValueError, "`nIters` must be at least 1"),
    "nIters 1e4": ({"nIters": 1e4}, TypeError, r"`nIters` must be a whole number.*Write 10000"),
    "seed": ({"seed": -1}, ValueError, "`seed` must be at least 0"),
    "step_size": ({"step_size": 1.0}, TypeError, r"sgld\(\) has no argument `step_size`. Did you mean `stepsize`"),
    "likelihood": ({"log_likelihood": 1}, TypeError, "Did you mean `log_lik`"),
    "alpha": ({"alpha": 0.1}, TypeError, "has no argument `alpha`"),
    "twice": ({"log_lik": log_lik}, TypeError, "got both `logLik` and `log_lik`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_with_the_fix(case):
    arguments, kind, message = BAD[case]
    with pytest.raises(kind, match=message) as caught:
        quiet("sgld", **({"nIters": 5} | arguments))
    assert isinstance(caught.value, sc.errors.SciroccoError)


BAD_TUNING = {
    "L 0": ("sghmc", {"L": 0}, ValueError, "`L` must be at least 1"),
    "L 2.5": ("sghmc", {"L": 2.5}, TypeError, "`L` must be a whole number"),
    "alpha > 1": ("sghmc", {"alpha": 1.5}, ValueError, "`alpha` must be at most 1, got 1.5"),
    "alpha 0": ("sghmccv", {"alpha": 0.0}, ValueError, "alpha.* must be finite and > 0"),
    "alpha names": ("sghmc", {"alpha": {"b": 0.1}}, ValueError, "`alpha` names `b`, which is not a parameter"),
    "a > 1": ("sgnht", {"a": 3}, ValueError, "`a` must be at most 1"),
    "a lacks": ("sgnhtcv", {"a": {"bias": 0.1}}, ValueError, r"`a` lacks \['beta'\]"),
    "optStepsize": ("sgldcv", {"optStepsize": -1.0}, ValueError, "`optStepsize` must be finite and > 0"),
    "optStepsize text": ("sgldcv", {"optStepsize": "auto"}, TypeError, "`optStepsize` must be a number"),
    "nItersOpt": ("sgldcv", {"optStepsize": 1.0, "nItersOpt": 0}, ValueError, "`nItersOpt` must be at least 1"),
}


@pytest.mark.parametrize("setup", [False, True])
@pytest.mark.parametrize("case", BAD_TUNING)
def test_bad_tuning_constants_are_refused_with_the_fix(case, setup):
    name, arguments, kind, message = BAD_TUNING[case]
    with pytest.raises(kind, match=message):
        quiet(name, setup=setup, **arguments)
