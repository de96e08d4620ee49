"""The compiled loop on an accelerator, beside plain JAX and BlackJAX on the same machine.

usage: python benchmarks/accelerator.py [chains] [networks] [large] [topics] [models] [diffusions] [setup] [profile]
       [--seconds 2] [--chains 1 64 512 4096] [--sizes small large] [--network-chains 1 8]
       [--calls plain auto] [--of chains networks]

chains: SGLD, logistic regression with N = 10^6 rows, d = 50, batches of 500 rows, every tenth state kept: BlackJAX's
SGLD in a scan under vmap. networks: SGLD of two classifiers with batches of 500: the same arithmetic in a plain scan.
large, topics, models: large_networks.py, accelerator_topics.py and accelerator_models.py, which say what they measure.
diffusions: exact CIR transitions by whole arrays. setup: seconds from the call to the first step, in two processes.
profile: the kernels of a step, here and in the plain loops, in a process without graphs, in which they cannot be seen.

Below each row of the first two tables is its floor: the bytes that a step must move and its floating-point operations,
the time they take at the rates that this device reaches in a copy and in a large product, and the share of the time of
a step that they are. Needs blackjax for the first table; works on any device that JAX supports (without a GPU the sizes
are smaller).
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import scirocco as sc

ON_CPU = jax.default_backend() == "cpu"
THIN = 10
SIZES = {"small": [784, 100, 10], "large": [784, 2048, 2048, 10]}


def seconds_of(function, *arguments):
    """Wall seconds of one call, after one that compiles."""
    jax.block_until_ready(function(*arguments))
    begin = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - begin


def steps_per_second(make, seconds, draws=5 if ON_CPU else 100):
    """Steps per second of `make(num_draws)`, which returns a function without arguments, in about `seconds`."""
    function = make(draws)
    calls = max(2, int(seconds / seconds_of(function)))
    begin = time.perf_counter()
    for _ in range(calls):
        found = function()
    jax.block_until_ready(found)
    return calls * THIN * draws / (time.perf_counter() - begin)


def bandwidth():
    """Bytes per second of a plain copy, read and write."""
    size, times = 1 << (24 if ON_CPU else 29), 20
    array = jnp.zeros(size // 4)
    add = jax.jit(lambda a: a + 1)

    def again():  # one call would be as long as the wait for it
        for _ in range(times):
            found = add(array)
        return found

    return 2 * size * times / min(seconds_of(again) for _ in range(3))


def matmul_rate(dtype=jnp.float32):
    """Floating-point operations per second of a large product in the default precision."""
    size = 1_024 if ON_CPU else 8_192
    matrix = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / min(seconds_of(product, matrix) for _ in range(3))


def print_floor(moved, operations, rate, seconds):
    """What a step must do, and the share of its time that this would take at the rates (operations, bytes)."""
    floor = operations / rate[0] + moved / rate[1]
    print(
        f"{'':>8}a step moves {moved / 1e6:,.2f} MB and makes {operations / 1e6:,.1f} MFLOP: {1e6 * floor:.1f} us of "
        f"{1e6 * seconds:.1f}, {floor / seconds:.0%} of the device's limit",
        flush=True,
    )


# -- chains ---------------------------------------------------------------------------------------------------


def logistic_data(num_rows, dimension):
    """Rows and labels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, dimension), np.float32)
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-x @ np.full(dimension, 0.1)))).astype(np.float32)
    return x, y


def log_likelihood(beta, row):
    """Of one row."""
    eta = row["x"] @ beta
    return row["y"] * eta - jax.nn.softplus(eta)


def log_prior(beta):
    """Normal, with variance 10."""
    return -0.05 * jnp.sum(beta**2)


def blackjax_sgld(data, num_chains, batch, step_size):
    """BlackJAX's SGLD, as its documentation writes it, in a scan under vmap."""
    import blackjax

    num_rows, dimension = data["x"].shape
    estimate = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, num_rows)
    sgld = blackjax.sgld(estimate)

    def chain(key, data, num_draws):
        def step(position, key):
            rows_key, key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (batch,), 0, num_rows)
            return sgld.step(key, position, jax.tree.map(lambda leaf: leaf[rows], data), step_size), None

        def draw(position, key):
            position, _ = jax.lax.scan(step, position, jax.random.split(key, THIN))
            return position, position

        return jax.lax.scan(draw, jnp.zeros(dimension), jax.random.split(key, num_draws))[1]

    def make(num_draws):
        keys = jax.random.split(jax.random.key(0), num_chains)
        function = jax.jit(jax.vmap(lambda key, data: chain(key, data, num_draws), (0, None)))
        return lambda: function(keys, data)

    return make


def ours(model, data, start, sampler, estimator, num_chains, seconds, thin=THIN, batches="own"):
    """Steps per second of `sc.sample`, draws on the host included, without the first chunk (compiling)."""
    draws = max(8, 2_000 // thin)
    while True:
        run = sc.sample(
            model, data, start, sampler=sampler, estimator=estimator, num_chains=num_chains, num_samples=draws,
            thin=thin, batches=batches, progress=False,
        )  # fmt: skip
        timing = run.timing["sampling"]
        if timing["wall"] > 0.6 * seconds or draws >= 100_000:
            return timing["steps"] / timing["wall"]
        rate = max(timing["steps"], 1) / max(timing["wall"], 1e-3)
        draws = int(min(max(2 * draws, 1.2 * rate * seconds / thin), 100_000))


def chains(arguments):
    """Million chain-steps per second."""
    num_rows, dimension, batch = (100_000 if ON_CPU else 1_000_000), 50, 500
    x, y = logistic_data(num_rows, dimension)
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    model = sc.Model(log_likelihood, log_prior)
    limits = matmul_rate(), bandwidth()
    print("\nSGLD, logistic regression: million chain-steps per second")
    print(f"device: {limits[0] / 1e12:.1f} TFLOP/s in products, {limits[1] / 1e9:.0f} GB/s in copies")
    print(f"{'chains':>7} {'batches':>8} {'scirocco':>9} {'BlackJAX':>9} {'ratio':>6}")
    for count in arguments.chains:
        rival = steps_per_second(blackjax_sgld(data, count, batch, 2e-10), arguments.seconds)
        for group in (1, 8, 64):
            if group > 1 and count < 8 * group:
                continue
            mine = ours(
                model,
                {"x": x, "y": y},
                jnp.zeros(dimension),
                sc.SGLD(2e-10),
                sc.Minibatch(batch),
                count,
                arguments.seconds,
                batches=group,
            )
            print(
                f"{count:>7} {'own' if group == 1 else f'of {group}':>8} {mine * count / 1e6:>9.3f} "
                f"{rival * count / 1e6:>9.3f} {mine / rival:>6.2f}",
                flush=True,
            )
            # rows are read once per group; positions and noise are read and written once per chain
            moved = 4 * count * (batch * (dimension + 1) / group + 4 * dimension)
            print_floor(moved, 4 * count * batch * dimension, limits, 1 / mine)


# -- networks -------------------------------------------------------------------------------------------------


def network(sizes, seed=0):
    """Weights of a dense network, and its log likelihood over a batch."""
    rng = np.random.default_rng(seed)
    params = [
        {"w": jnp.asarray(rng.standard_normal((m, n), np.float32) / np.sqrt(m)), "b": jnp.zeros(n)}
        for m, n in itertools.pairwise(sizes)
    ]

    def logits(params, x):
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    def log_likelihoods(params, rows):
        scores = jax.nn.log_softmax(logits(params, rows["x"]))
        return jnp.take_along_axis(scores, rows["y"][:, None], axis=1)[:, 0]

    def prior(params):
        return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    return params, log_likelihoods, prior


def plain_scan(data, params, log_likelihoods, prior, num_chains, batch, step_size, unroll):
    """SGLD in a scan, as one would type it."""
    num_rows = data["x"].shape[0]

    def density(params, rows):
        return prior(params) + num_rows / batch * jnp.sum(log_likelihoods(params, rows))

    def chain(key, data, params, num_draws):
        def step(params, key):
            rows_key, key = jax.random.split(key)
            rows = jax.random.randint(rows_key, (batch,), 0, num_rows)
            gradient = jax.grad(density)(params, jax.tree.map(lambda leaf: leaf[rows], data))
            leaves, treedef = jax.tree.flatten(params)
            keys = jax.tree.unflatten(treedef, list(jax.random.split(key, len(leaves))))
            return jax.tree.map(
                lambda p, g, k: p + step_size * g + (2 * step_size) ** 0.5 * jax.random.normal(k, p.shape),
                params,
                gradient,
                keys,
            ), None

        return jax.lax.scan(step, params, jax.random.split(key, THIN * num_draws), unroll=unroll)[0]

    def make(num_draws):
        def one(key, data, params):  # weights are arguments: as constants of a program they take long to compile
            return chain(key, data, params, num_draws)

        keys = jax.random.split(jax.random.key(0), num_chains)
        function = jax.jit(jax.vmap(one, (0, None, None)) if num_chains > 1 else one)
        return lambda: function(keys if num_chains > 1 else keys[0], data, params)

    return make


def networks(arguments):
    """Steps per second."""
    rng = np.random.default_rng(1)
    num_rows, batch = 60_000, 500
    x, y = rng.random((num_rows, 784), np.float32), rng.integers(0, 10, num_rows).astype(np.int32)
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    sizes = [SIZES[name] for name in arguments.sizes]
    limits = {None: (matmul_rate(), bandwidth())}
    limits["bfloat16"] = (matmul_rate(jnp.bfloat16), limits[None][1])
    print("\nSGLD, networks, batches of 500: steps per second; the plain scan has unroll=4, its fastest form")
    print(
        f"device: {limits[None][0] / 1e12:.0f} TFLOP/s in products, {limits['bfloat16'][0] / 1e12:.0f} with bfloat16, "
        f"{limits[None][1] / 1e9:.0f} GB/s in copies"
    )
    print(f"{'network':>18} {'chains':>6} {'products':>9} {'scirocco':>9} {'scan':>8} {'ratio':>6}")
    for size in sizes:
        for count in arguments.network_chains:
            params, log_likelihoods, prior = network(size)
            model = sc.Model(log_likelihoods, prior, vectorized=True)
            rival = steps_per_second(
                plain_scan(data, params, log_likelihoods, prior, count, batch, 1e-8, 4), arguments.seconds
            )
            for precision in (None,) if size[1] < 1_000 else (None, "bfloat16"):
                estimator = sc.Minibatch(batch, precision=precision)
                sampler = sc.SGLD(1e-8)
                mine = ours(*(model, {"x": x, "y": y}, params, sampler, estimator, count, arguments.seconds), thin=500)
                print(
                    f"{'-'.join(map(str, size)):>18} {count:>6} {precision or 'default':>9} {mine:>9.0f} "
                    f"{rival:>8.0f} {mine / rival:>6.2f}",
                    flush=True,
                )
                numbers = count * sum(leaf.size for leaf in jax.tree.leaves(params))
                # forwards and twice backwards; gradients are written and read, positions read and written
                print_floor(16 * numbers, 6 * batch * numbers, limits[precision], 1 / mine)


# -- diffusions and set-up ------------------------------------------------------------------------------------


def diffusions(arguments):
    """Milliseconds of one call of `sc.diffusions.cir`."""
    shape = (100, 5_000) if ON_CPU else (1_000, 50_000)
    start, shape_a = jnp.full(shape, 0.3), jnp.full(shape, 0.2)
    step = jax.jit(lambda key, theta: sc.diffusions.cir(key, theta, shape_a, 0.1))
    best = min(seconds_of(step, jax.random.key(0), start) for _ in range(5))
    floor = 3 * start.nbytes / bandwidth()
    print(f"\nCIR transitions {shape}: {1e3 * best:.2f} ms (traffic alone {1e3 * floor:.2f} ms)")


CALLS = {"plain": "", "auto": 'sampler=sc.BAOAB(step_size="auto"), num_chains=4, num_samples=1000,'}
_SETUP = """
import json, time
import jax.numpy as jnp, numpy as np
import scirocco as sc
from accelerator import log_likelihood, log_prior, logistic_data
x, y = logistic_data({rows}, 34)
model = sc.Model(log_likelihood, log_prior)
begin = time.perf_counter()
run = sc.sample(model, {{"x": x, "y": y}}, jnp.zeros(34), {arguments} progress=False)
print("FOUND", json.dumps({{"call": time.perf_counter() - begin, "setup": run.timing["setup"]["wall"]}}))
"""


def setup(arguments):
    """Seconds of the whole call and of its set-up, in a first and in a second process with the same cache."""
    import tempfile

    rows = 50_000 if ON_CPU else 581_012
    print("\nset-up, logistic regression, 34 columns: seconds of the call (of its set-up)", flush=True)
    for name in arguments.calls:
        given = CALLS[name]
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, SCIROCCO_CACHE=folder, XLA_PYTHON_CLIENT_PREALLOCATE="false")
            environment["PYTHONPATH"] = os.pathsep.join(
                [os.path.dirname(os.path.abspath(__file__)), environment.get("PYTHONPATH", "")]
            )
            cells = []
            for _ in range(2):
                code = _SETUP.format(rows=rows, arguments=given)
                out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
                line = [line for line in out.stdout.splitlines() if line.startswith("FOUND")]
                if not line:
                    sys.exit(out.stderr)
                found = json.loads(line[0][6:])
                cells.append(f"{found['call']:.1f} ({found['setup']:.1f})")
                print(f"{name:>8}, process {len(cells)}: {cells[-1]}", flush=True)


# -- other benchmarks -----------------------------------------------------------------------------------------


def large(arguments):
    """Networks of 10^7 to 10^8 parameters."""
    import large_networks

    large_networks.main(["--seconds", str(arguments.seconds)])


def topics(arguments):
    """Topic models."""
    import accelerator_topics

    accelerator_topics.main(["--seconds", "2", "6"])


def models(arguments):
    """Matrix factorisation and mixtures."""
    import accelerator_models

    accelerator_models.main(["--seconds", str(arguments.seconds)])


# -- where the time of a step goes ----------------------------------------------------------------------------


def kernels_of(function):
    """Seconds and calls of each kernel on the device while `function()` runs, from a trace of the profiler."""
    import collections
    import glob
    import gzip
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(function())
        (path,) = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
    devices = {e["pid"] for e in events if e.get("name") == "process_name" and "GPU" in e["args"]["name"]}
    streams = {
        (e["pid"], e["tid"])
        for e in events
        if e.get("name") == "thread_name" and e["pid"] in devices and "Stream" in e["args"]["name"]
    }
    chosen = [e for e in events if e.get("ph") == "X" and (e["pid"], e["tid"]) in streams]
    found, gaps, end = collections.defaultdict(lambda: [0.0, 0]), [], None
    for event in sorted(chosen, key=lambda event: event["ts"]):
        found[event["name"]][0] += event["dur"] * 1e-6
        found[event["name"]][1] += 1
        gaps.append(0.0 if end is None else max(0.0, event["ts"] - end) * 1e-6)
        end = max(end or 0.0, event["ts"] + event["dur"])
    return found, gaps


def show_profile(name, function, steps, rows=12):
    """Print the kernels of a step."""
    wall = seconds_of(function) / steps
    found, gaps = kernels_of(function)
    short = sum(gap for gap in gaps if gap < 1e-3) / steps
    busy = sum(seconds for seconds, _ in found.values()) / steps
    count = sum(calls for _, calls in found.values()) / steps
    print(
        f"\n{name}: {1e6 * wall:.1f} us per step, {1e6 * busy:.1f} in {count:.1f} kernels, "
        f"{1e6 * short:.1f} between them",
        flush=True,
    )
    for kernel, (seconds, calls) in sorted(found.items(), key=lambda item: -item[1][0])[:rows]:
        print(f"{1e6 * seconds / steps:>10.2f} us {calls / steps:>7.2f} x  {kernel[:90]}", flush=True)


def profile(arguments):
    """Kernels of a step, here and in the plain loops."""
    if ON_CPU:
        print("\nno profile of a CPU")
        return
    flags, off = os.environ.get("XLA_FLAGS", ""), "--xla_gpu_enable_command_buffer="
    if off not in flags:
        command = [sys.executable, __file__, "profile", "--sizes", *arguments.sizes, "--of", *arguments.of]
        subprocess.run(command, env=os.environ | {"XLA_FLAGS": f"{flags} {off}"}, check=False)
        return
    x, y = logistic_data(1_000_000, 50)
    model = sc.Model(log_likelihood, log_prior)
    for group in (1, 64) if "chains" in arguments.of else ():
        show_profile(
            f"4,096 chains, groups of {group}",
            lambda group=group: sc.sample(
                *(model, {"x": x, "y": y}, jnp.zeros(50)),
                sampler=sc.SGLD(2e-10), estimator=sc.Minibatch(500), num_chains=4_096, num_samples=200, thin=THIN,
                batches=group, progress=False,
            ).draws,
            2_000,
        )  # fmt: skip
    if "chains" in arguments.of:
        show_profile(
            "4,096 chains, BlackJAX",
            blackjax_sgld({"x": jnp.asarray(x), "y": jnp.asarray(y)}, 4_096, 500, 2e-10)(50),
            500,
        )
    rng = np.random.default_rng(1)
    x, y = rng.random((60_000, 784), np.float32), rng.integers(0, 10, 60_000).astype(np.int32)
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    for size in [SIZES[name] for name in arguments.sizes] if "networks" in arguments.of else ():
        params, log_likelihoods, prior = network(size)
        model = sc.Model(log_likelihoods, prior, vectorized=True)
        for count in (1, 8):
            name = f"{'-'.join(map(str, size))}, {count} chains"
            show_profile(
                f"{name}, scirocco",
                lambda model=model, params=params, count=count: sc.sample(
                    *(model, {"x": x, "y": y}, params),
                    sampler=sc.SGLD(1e-8), estimator=sc.Minibatch(500), num_chains=count, num_samples=6, thin=500,
                    progress=False,
                ).draws,
                3_000,
            )  # fmt: skip
            plain = plain_scan(data, params, log_likelihoods, prior, count, 500, 1e-8, 4)(50)
            show_profile(f"{name}, plain scan", plain, 500)


def main():
    """Run the chosen tables."""
    tables = {
        "chains": chains, "networks": networks, "large": large, "topics": topics, "models": models,
        "diffusions": diffusions, "setup": setup, "profile": profile,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[*tables, []])
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measurement")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 64] if ON_CPU else [1, 64, 512, 4096])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["small"] if ON_CPU else list(SIZES))
    parser.add_argument("--network-chains", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--calls", nargs="+", choices=CALLS, default=list(CALLS), help="whose set-up")
    parser.add_argument("--of", nargs="+", default=["chains", "networks"], help="what is profiled")
    arguments = parser.parse_args()
    print("device:", jax.devices()[0].device_kind, "jax", jax.__version__)
    for name in arguments.tables or tables:
        tables[name](arguments)


if __name__ == "__main__":
    main()
