"""Rows and chains on four devices. A script of its own, because the number of devices is a switch of the whole process.

usage: XLA_FLAGS=--xla_force_host_platform_device_count=4 python check_spread.py SEED NAME...

Prints "NAME ok" or "NAME" and what went wrong.
"""

import pathlib
import sys
import tempfile
import traceback

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

import scirocco as sc
from own_samplers import MALA, Watching
from scirocco.data.batching import batching
from scirocco.data.devices import as_devices, spread_over

ROWS = CHAINS = BOTH = None
"""Meshes, where there are four devices: see the end."""
SEED = 0
NUM_ROWS = 1_003  # four devices cannot share them out equally


def logistic(num_rows=NUM_ROWS):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 3)).astype(np.float32)
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-x.sum(axis=1)))).astype(np.float32)
    return {"x": x, "y": y}


def log_likelihood(beta, row):
    return row["y"] * (row["x"] @ beta) - jnp.logaddexp(0.0, row["x"] @ beta)


MODEL = sc.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2))
PARAMS = jnp.array([0.3, -0.2, 0.1])


def draw(estimator, mesh, **changes):
    arguments = {"num_samples": 60, "num_burnin": 20, "num_chains": 1, "seed": 3, "progress": False} | changes
    data = arguments.pop("data", None)
    return sc.sample(
        MODEL,
        logistic() if data is None else data,
        PARAMS,
        sampler=arguments.pop("sampler", sc.SGLD(step_size=1e-3)),
        estimator=estimator,
        mesh=mesh,
        **arguments,
    )


def same(a, b, tolerance=0.0):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    assert all(np.max(np.abs(np.asarray(x) - np.asarray(y))) <= tolerance for x, y in pairs)


def refused(call, words):
    try:
        call()
    except (ValueError, TypeError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


def check_sums():
    """A sum over rows on four devices is that over rows on one, to rounding; so are rows that are asked for."""
    for num_rows in (NUM_ROWS, 1_000, 5):
        data = logistic(num_rows)
        source = sc.data.as_source(data)
        table = spread_over(source, batching(4, num_rows, "blocks"), as_devices(ROWS), seed=1)
        exact = MODEL.summand.total(PARAMS, jax.tree.map(jnp.asarray, data))
        same(table.sum(MODEL.summand, PARAMS), exact, 1e-5 * float(jnp.abs(exact).max()))
        everything = table.random_rows(num_rows, jax.random.key(0))
        order = lambda rows: np.sort(np.asarray(rows["x"])[:, 0])  # noqa: E731
        assert np.array_equal(order(everything), np.sort(data["x"][:, 0])), "rows are lost or repeated"
        stretches = [shard.data for shard in table.data.rows["x"].addressable_shards]
        assert len({shard.device for shard in table.data.rows["x"].addressable_shards}) == 4
        assert all(len(stretch) == table.layout.stretch for stretch in stretches)


def check_gradients():
    """Kept gradients of all rows, and of control variates at the mode, equal those of one device to 1e-5."""
    one, four = (draw(sc.Full(), mesh, num_burnin=0, keep_gradients=True) for mesh in (None, ROWS))
    scale = np.abs(one.gradients).max()
    same(one.draws, four.draws, 1e-5)
    same(one.gradients, four.gradients, 1e-5 * scale)
    # around a centre at the start the estimate of control variates is exact there: one step, the same noise
    centred = sc.ControlVariates(100, centre=PARAMS)
    same(draw(centred, ROWS, num_samples=1, num_burnin=0).draws, one.draws[:, :1], 1e-5)


def check_estimates():
    """An estimate from batches on four devices is unbiased, whatever the way of drawing, and devices draw on their own.

    Five rows on four devices, two of which have a row and one that counts for nothing. Every batch is one row of each
    device; SGLD without noise and with step 1 moves by the estimate alone, so its moves are the estimates.
    """
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0], np.float32)
    model = sc.Model(lambda theta, x: theta * x)  # the gradient of a row is its value
    for sampling in ("blocks", "with_replacement"):  # one row of each device: without replacement is the latter
        run = sc.sample(
            model,
            values,
            jnp.array(0.0),
            sampler=sc.SGLD(step_size=1.0, temperature=0.0),
            estimator=sc.Minibatch(4, sampling=sampling),
            num_samples=4_000,
            seed=SEED,
            progress=False,
            mesh=ROWS,
            keep_gradients=True,
        )
        estimates = run.gradients[0]
        error = estimates.std() / np.sqrt(len(estimates))  # of independent ones; those of blocks vary less
        assert abs(estimates.mean() - values.sum()) < 5 * error, (sampling, estimates.mean())
        assert set(np.unique(estimates)) <= {2.0 * total for total in _possible(values)}, np.unique(estimates)
        assert len(np.unique(estimates)) > 2
        if sampling == "with_replacement":
            table = spread_over(sc.data.as_source(values), batching(4, 5, sampling), as_devices(ROWS), seed=SEED)
            pairs = np.asarray(table.data.rows * table.data.valid).reshape(4, 2)
            # a device adds twice one of its pair (a, b): variance (a - b)²; devices are independent
            exact = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2)
            squares = (estimates - values.sum()) ** 2
            assert abs(squares.mean() - exact) < 5 * squares.std() / np.sqrt(len(squares)), squares.mean()


def check_values():
    """The log posterior beside its gradient: the sum over the rows of all devices, and moves that are refused by it."""
    data = logistic()
    watched = draw(sc.SVRG(100, refresh_every=5), ROWS, num_burnin=0, sampler=Watching(1e-3))
    exact = [float(MODEL.log_density(beta, data)) for beta in watched.draws[0, :-1]]
    errors = watched.stats["value"][0, 1:] - exact
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(len(errors)), errors
    # of all rows the values are exact: one that is off changes which moves are refused
    alone, spread = (draw(sc.Full(), mesh, sampler=MALA(0.01)) for mesh in (None, ROWS))
    same(alone.draws, spread.draws, 1e-4)
    assert 0 < spread.stats["accepted"].mean() < 1


def _possible(values):
    """Sums of one row of each device, for any way to deal five rows and three blanks out to four devices in pairs."""
    return {float(sum(values[i] for i in range(5) if mask >> i & 1)) for mask in range(32)}


def check_chains():
    """Chains on devices of their own make the very draws of one device, two chains a device as well as one."""
    one, four = (draw(sc.SAGA(50), mesh, num_chains=8, keep_gradients=True) for mesh in (None, CHAINS))
    same((one.draws, one.gradients, one.stats), (four.draws, four.gradients, four.stats))
    four = draw(sc.SAGA(50), CHAINS, num_chains=4, keep_gradients=True)
    same((one.draws[:4], one.gradients[:4]), (four.draws, four.gradients))
    vector = draw(sc.SAGA(50), CHAINS, num_chains=8, keep_gradients=True, chain_method="vmap")
    same(vector.draws, one.draws, 1e-5)


def check_both():
    """Chains and rows at once: the chains of a mesh of rows, whatever lies beside it."""
    two = jax.make_mesh((2,), ("rows",), devices=jax.devices()[:2])
    estimator = sc.ControlVariates(100)
    same(draw(estimator, BOTH, num_chains=4).draws, draw(estimator, two, num_chains=4).draws, 1e-6)


def check_axis_types():
    """Explicit axes, which jax.make_mesh makes, and automatic ones are the same to a user's log likelihood."""
    automatic = jax.make_mesh((4,), ("anything",), axis_types=(AxisType.Auto,))
    before = draw(sc.Minibatch(100), ROWS).draws
    same(before, draw(sc.Minibatch(100), automatic).draws)
    with jax.set_mesh(ROWS):  # who has set a mesh for all of a program
        same(draw(sc.Minibatch(100), automatic).draws, before)


def check_defaults():
    """Mode, coordinates and steps that are measured on spread rows give the posterior; so does a reducer."""
    data, beta = logistic(), np.zeros(3)
    for _ in range(20):  # Newton's method: the mode, and the covariance there
        chance = 1 / (1 + np.exp(-data["x"] @ beta))
        covariance = np.linalg.inv((data["x"].T * (chance * (1 - chance))) @ data["x"] + np.eye(3))
        beta = beta + covariance @ (data["x"].T @ (data["y"] - chance) - beta)
    run = sc.sample(
        MODEL, data, PARAMS, num_samples=2_000, num_chains=2, seed=SEED, progress=False, mesh=ROWS,
        reducers={"moments": sc.reducers.Moments()},
    )  # fmt: skip
    z = (run.draws - beta) / np.sqrt(np.diagonal(covariance))
    assert np.all(np.abs(z.mean(axis=(0, 1))) < 0.4), z.mean(axis=(0, 1))
    assert np.all(np.abs(z.std(axis=(0, 1)) - 1) < 0.3), z.std(axis=(0, 1))
    assert np.allclose(run.reduced["moments"].mean, run.draws.mean(axis=1), atol=1e-4)


def check_counts():
    """A Dirichlet posterior whose counts are on four devices: SCIR with all rows makes the draws of one device."""
    model = sc.CountModel(jnp.ones(3), lambda omega, z: jax.nn.one_hot(z, 3))
    labels = np.random.default_rng(1).integers(0, 3, 301)
    runs = [
        sc.sample(model, labels, jnp.ones(3) / 3, sampler=sc.SCIR(0.5), estimator=sc.Full(), num_samples=50,
                  progress=False, mesh=mesh)
        for mesh in (None, ROWS)
    ]  # fmt: skip
    same(runs[0].draws, runs[1].draws, 1e-5)


def check_resume():
    """A stored run on a mesh goes on bit for bit; one with its rows spread otherwise is refused."""
    estimator, changes = sc.ControlVariates(100), {"num_chains": 4, "num_samples": 80}
    whole = draw(estimator, BOTH, **changes)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run"
        draw(estimator, BOTH, **changes | {"num_samples": 50}, store=path)
        for mesh in (None, ROWS):
            refused(lambda mesh=mesh: sc.resume(path, MODEL, logistic(), mesh=mesh), "rows spread over 2")
        rest = sc.resume(path, MODEL, logistic(), num_samples=80, mesh=BOTH, progress=False)
        same(whole.draws, rest.draws[...])


def check_folders():
    """Rows in a data folder are read by the devices that hold them."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows"
        sc.data.write(path, logistic(), shuffle=False)
        same(draw(sc.Minibatch(100), ROWS).draws, draw(sc.Minibatch(100), ROWS, data=str(path)).draws)


def check_refusals():
    """What a mesh cannot do, in words."""
    strata = np.arange(NUM_ROWS) % 3
    for arguments, words in (
        ((sc.Minibatch(50), ROWS), "multiple of 4, such as 48 or 52"),
        ((sc.SAGA(48), ROWS), "SAGA requires all rows on one device"),
        ((sc.Stratified(48, strata), ROWS), "Stratified requires all rows on one device"),
        ((sc.Minibatch(48), "rows"), "must be a jax.sharding.Mesh"),
        ((sc.Minibatch(48), 4), "must be a jax.sharding.Mesh"),
    ):
        refused(lambda arguments=arguments: draw(*arguments), words)
    refused(lambda: draw(sc.Minibatch(48), CHAINS, num_chains=3), "multiple of 4")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows"
        sc.data.write(path, logistic(), shuffle=False)
        refused(lambda: draw(sc.Minibatch(48), CHAINS, num_chains=4, data=str(path)), "require the data in memory")
    few = sc.sample(MODEL, logistic(7), PARAMS, sampler=sc.SGLD(), num_samples=5, progress=False, mesh=ROWS)
    assert few.configuration["estimator"]["batch_size"] == 4, "the default batch cannot be divided"


if __name__ == "__main__":
    ROWS, CHAINS = jax.make_mesh((4,), ("rows",)), jax.make_mesh((4,), ("chains",))
    BOTH = jax.make_mesh((2, 2), ("chains", "rows"))
    SEED = int(sys.argv[1])
    jax.config.update("jax_disable_most_optimizations", True)  # programs of a few steps: mostly compiling
    for name in sys.argv[2:]:
        try:
            globals()[f"check_{name}"]()
            print(name, "ok", flush=True)
        except Exception:
            print(name, traceback.format_exc(), flush=True)
