"""Rows spread over devices: what a step costs, and from which batch on sharing it pays.

usage: python benchmarks/devices.py [--devices 1 2 4] [--batches 512 4096 32768] [--processes] [--gpu]

Each line is a process of its own. On a CPU the devices are made by XLA_FLAGS, each with the threads that XLA gives it;
`--processes` also runs two processes of one device each (jax.distributed on the loopback address). `--gpu`: a mesh of
the GPUs that there are, against none. Prints microseconds a step, the speed-up over one device, and the break-even
batch: with a microseconds a row on one device and L for the sum over R devices, sharing pays from L / (a (1 - 1/R))
rows on.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

NUM_ROWS, DIMENSION = 262_144, 50


def child(arguments):
    """Time one setting; prints a line of JSON."""
    if arguments.rank is not None:
        import jax

        jax.distributed.initialize(f"127.0.0.1:{arguments.port}", 2, arguments.rank)
    import jax
    import jax.numpy as jnp
    import numpy as np

    import scirocco as sc

    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_ROWS, DIMENSION), np.float32)
    y = (rng.random(NUM_ROWS) < 0.5).astype(np.float32)

    def log_likelihood(beta, row):
        return row["y"] * (row["x"] @ beta) - jax.nn.softplus(row["x"] @ beta)

    model = sc.Model(log_likelihood, lambda beta: -0.05 * jnp.sum(beta**2))
    mesh = None if arguments.no_mesh else jax.make_mesh((jax.device_count(),), ("rows",))
    found = {}
    for batch in arguments.batches:
        estimator = sc.ControlVariates(batch, centre=jnp.zeros(DIMENSION))
        steps = arguments.steps
        run = sc.sample(
            model,
            {"x": x, "y": y},
            jnp.zeros(DIMENSION),
            sampler=sc.SGLD(step_size=1e-7),
            estimator=estimator,
            num_samples=max(steps // 10, 10),
            num_burnin=steps,
            thin=10,
            progress=False,
            mesh=mesh,
        )
        timing = run.timing["sampling"]
        found[batch] = 1e6 * timing["wall"] / timing["steps"]
    if not arguments.rank:
        print("FOUND", json.dumps(found), flush=True)


def measure(arguments, devices=1, no_mesh=False, processes=False):
    """Microseconds a step for each batch."""
    command = [sys.executable, __file__, "--child", "--steps", str(arguments.steps)]
    command += ["--batches", *map(str, arguments.batches), *(["--no-mesh"] if no_mesh else [])]
    environment = dict(os.environ)
    if not arguments.gpu:
        environment["JAX_PLATFORMS"] = "cpu"
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    if processes:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment["XLA_FLAGS"] = ""
        others = subprocess.Popen(
            [*command, "--rank", "1", "--port", str(port)], env=environment, stdout=subprocess.DEVNULL
        )
        command += ["--rank", "0", "--port", str(port)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if processes:
        others.wait()
    line = next((line for line in result.stdout.splitlines() if line.startswith("FOUND")), None)
    if line is None:
        sys.exit(result.stderr[-2000:])
    return {int(batch): value for batch, value in json.loads(line[6:]).items()}


def show(name, found, base):
    cells = "".join(f"{found[b]:12.1f} ({base[b] / found[b]:4.2f}x)" for b in found)
    print(f"{name:32s}{cells}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--batches", type=int, nargs="*", default=[512, 4096, 32768])
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    for name in ("--child", "--no-mesh"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    for name in ("--rank", "--port"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    print(f"logistic regression, N = {NUM_ROWS:,}, d = {DIMENSION}, SGLD with control variates; µs a step")
    print(f"{'':32s}" + "".join(f"{f'batch {b}':>20s}" for b in arguments.batches))
    base = measure(arguments, 1, no_mesh=True)
    show("no mesh", base, base)
    smallest, largest = min(base), max(base)
    row = (base[largest] - base[smallest]) / (largest - smallest)
    found = {}
    for devices in [1] if arguments.gpu else arguments.devices:
        found[f"{devices} device{'s' * (devices > 1)}"] = (devices, measure(arguments, devices))
    if arguments.processes:
        found["2 processes of one device"] = (2, measure(arguments, processes=True))
    for name, (_, values) in found.items():
        show(name, values, base)
    print(f"a row takes {row * 1e3:.1f} ns on one device")
    for name, (devices, values) in found.items():
        latency = values[smallest] - base[smallest] + row * smallest * (1 - 1 / devices)
        even = latency / (row * (1 - 1 / devices)) if devices > 1 else float("nan")
        print(f"{name}: {latency:.0f} µs a step more than its rows take; break-even batch about {even:,.0f} rows")
    return None


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    print(f"({time.perf_counter() - start:.0f} s)") if "--child" not in sys.argv else None
