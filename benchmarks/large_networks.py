"""Networks of 10^7 to 10^8 parameters on an accelerator: a residual network on images, transformers on bytes.

usage: python benchmarks/large_networks.py [transformer] [resnet] [transformer50] [transformer100] [--draws 12]
       [--seconds 3] [--precision bfloat16] [--programs] [--lock file]

The networks are Equinox modules (`pip install "scirocco[networks]"`); the layers of a transformer are stacked, and a
scan goes through them. Rows are bytes on the device, and become numbers in a batch. Every 50th state is a draw: its
predictions are averaged on the device, and every fourth draw is written to a store. Beside it is the same arithmetic in
a plain scan that keeps nothing. Prints steps per second, the seconds in which programs were compiled (--programs
names those of more than a second), bytes written, and the largest memory of the process, on the host and on the device.
"""

import argparse
import collections
import contextlib
import itertools
import math
import pathlib
import resource
import tempfile
import time

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from accelerator import ON_CPU, THIN, plain_scan

import scirocco as sc
from scirocco.models.network.networks import equinox as as_function

EVERY, KEEP = (2 if ON_CPU else 50), 4
COMPILING, SAID = collections.Counter(), []


BEGIN = time.perf_counter()


def say(text):
    """Print a line with the time since the start."""
    print(f"    [{time.perf_counter() - BEGIN:5.1f} s] {text}", flush=True)


def note_compiling(event, seconds, **names):
    """Count the seconds of compiling by program."""
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILING[names.get("fun_name", "all")] += seconds
        if seconds > 1.0 and SAID:
            say(f"compiled {names.get('fun_name', 'a program')} in {seconds:.1f} s")


def made(make, seed=0):
    """A module with weights N(0, 1/inputs) from NumPy: Equinox's own would be a program for each shape."""
    rng = np.random.default_rng(seed)

    def weights(leaf):
        if leaf.ndim == 1:
            return jnp.asarray(np.ones(leaf.shape, np.float32))
        inputs = leaf.shape[-1] if leaf.ndim == 3 else math.prod(leaf.shape[1:])  # three: matrices of layers
        return jnp.asarray(rng.standard_normal(leaf.shape, np.float32) / np.float32(math.sqrt(inputs)))

    shapes = eqx.filter_eval_shape(make, jax.random.key(0))
    return jax.tree.map(lambda leaf: weights(leaf) if hasattr(leaf, "shape") else leaf, shapes)


@contextlib.contextmanager
def alone(lock):
    """The device for this process alone, if others have the same file as `--lock`."""
    if lock is None:
        yield
        return
    import fcntl

    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Block(eqx.Module):
    """Two convolutions, and a way around them."""

    one: eqx.nn.Conv2d
    two: eqx.nn.Conv2d
    short: eqx.nn.Conv2d | None
    norm_one: eqx.nn.GroupNorm
    norm_two: eqx.nn.GroupNorm

    def __init__(self, inside, outside, key):
        keys, stride = jax.random.split(key, 3), 1 if inside == outside else 2
        self.one = eqx.nn.Conv2d(inside, outside, 3, stride, 1, use_bias=False, key=keys[0])
        self.two = eqx.nn.Conv2d(outside, outside, 3, 1, 1, use_bias=False, key=keys[1])
        self.short = None if stride == 1 else eqx.nn.Conv2d(inside, outside, 1, stride, use_bias=False, key=keys[2])
        self.norm_one, self.norm_two = eqx.nn.GroupNorm(8, outside), eqx.nn.GroupNorm(8, outside)

    def __call__(self, x):
        """Of one image (channel, height, width)."""
        y = self.norm_two(self.two(jax.nn.relu(self.norm_one(self.one(x)))))
        return jax.nn.relu(y + (x if self.short is None else self.short(x)))


class ResNet(eqx.Module):
    """ResNet-18 for small images: eight blocks of two convolutions, normalised by groups of channels."""

    stem: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, width, num_classes, key):
        keys, sizes = jax.random.split(key, 10), [width << stage for stage in (0, 0, 0, 1, 1, 2, 2, 3, 3)]
        self.stem = eqx.nn.Conv2d(3, width, 3, 1, 1, use_bias=False, key=keys[0])
        self.norm = eqx.nn.GroupNorm(8, width)
        self.blocks = [Block(*pair, key) for pair, key in zip(itertools.pairwise(sizes), keys[2:], strict=True)]
        self.head = eqx.nn.Linear(sizes[-1], num_classes, key=keys[1])

    def __call__(self, image):
        """Logits of an image of bytes (height, width, 3)."""
        x = jnp.moveaxis(image.astype(jnp.float32) / 255.0, -1, 0)
        x = jax.nn.relu(self.norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def normed(x):
    """Normalised over the last axis."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


class Layer(eqx.Module):
    """Attention to earlier bytes, and a network for each byte."""

    qkv: eqx.nn.Linear
    out: eqx.nn.Linear
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width, heads, key):
        shapes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        for own, (name, (inside, outside)) in zip(jax.random.split(key, 4), shapes.items(), strict=True):
            setattr(self, name, eqx.nn.Linear(inside * width, outside * width, use_bias=False, key=own))
        self.heads = heads

    def __call__(self, x):
        """Of one text (place, width)."""
        q, k, v = jnp.split(jax.vmap(self.qkv)(normed(x)), 3, axis=-1)
        q, k, v = (part.reshape(len(x), self.heads, -1) for part in (q, k, v))
        scores = jnp.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((len(x), len(x)), bool)), scores, -1e30))
        x = x + jax.vmap(self.out)(jnp.einsum("hqk,khd->qhd", weights, v).reshape(x.shape))
        return x + jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(normed(x))))


class Transformer(eqx.Module):
    """Predicts the next byte of a text; its layers are one module with stacked arrays."""

    bytes: jax.Array
    places: jax.Array
    layers: Layer

    def __init__(self, width, layers, heads, context, key):
        keys = jax.random.split(key, 3)
        self.bytes = 0.02 * jax.random.normal(keys[0], (256, width))
        self.places = 0.02 * jax.random.normal(keys[1], (context, width))
        self.layers = eqx.filter_vmap(lambda key: Layer(width, heads, key))(jax.random.split(keys[2], layers))

    def __call__(self, text):
        """Logits of the byte after each place."""
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        def one(x, arrays):
            return eqx.combine(arrays, static)(x), None

        x = jax.lax.scan(one, self.bytes[text.astype(jnp.int32)] + self.places, arrays)[0]
        return normed(x) @ self.bytes.T


def resnet(width=64, size=32, num_classes=10):
    """A ResNet-18, 50,000 images, the log likelihood of labels, what is predicted, and the batch size."""
    rng, count = np.random.default_rng(0), 1_000 if ON_CPU else 50_000
    logits, params = as_function(made(lambda key: ResNet(width, num_classes, key)))
    data = {"x": rng.integers(0, 256, (count, size, size, 3), np.uint8)}
    data["y"] = rng.integers(0, num_classes, count).astype(np.int32)

    def log_likelihoods(params, rows):
        scores = jax.nn.log_softmax(logits(params, rows["x"]))
        return jnp.take_along_axis(scores, rows["y"][:, None], axis=1)[:, 0]

    def predict(params, x):
        return jax.nn.softmax(logits(params, x))

    return params, data, log_likelihoods, predict, 128


def transformer(width=512, layers=6, heads=8, context=128):
    """A transformer, 100,000 texts of bytes, their log likelihood, what is predicted, and the batch size."""
    rng = np.random.default_rng(0)
    logits, params = as_function(made(lambda key: Transformer(width, layers, heads, context, key)))
    text = rng.integers(0, 256, (1_000 if ON_CPU else 100_000, context + 1), np.uint8)

    def log_likelihoods(params, rows):
        scores = jax.nn.log_softmax(logits(params, rows["x"][:, :-1]))
        following = rows["x"][:, 1:].astype(jnp.int32)
        return jnp.take_along_axis(scores, following[..., None], axis=-1)[..., 0].sum(axis=1)

    def predict(params, x):
        return jax.nn.softmax(logits(params, x[:, :-1])[:, -1])

    return params, {"x": text}, log_likelihoods, predict, 64


def prior(params):
    """Standard normal."""
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def device_memory():
    """The largest number of bytes in use so far, where the device counts them."""
    found = jax.devices()[0].memory_stats()
    return f"{found['peak_bytes_in_use'] / 1e9:.2f}" if found else "?"


class Clock:
    """A callback of `sc.sample`: steps per second after the first chunk, with the device for itself."""

    def __init__(self, lock):
        self.lock, self.seen = lock, []
        self.held = contextlib.ExitStack()

    def __call__(self, report):
        """Note when the draws of a chunk have arrived; the first two chunks wait for programs and for the device."""
        if not self.seen:
            say("first draws")
            self.held.enter_context(alone(self.lock))
        self.seen.append((report.step, time.perf_counter()))

    def rate(self, timing):
        """Steps per second; if there was one chunk only, those of the run."""
        if len(self.seen) < 2:
            return timing["first_chunk"]["steps"] / timing["first_chunk"]["wall"]
        (first, begin), (last, end) = self.seen[min(1, len(self.seen) - 2)], self.seen[-1]
        return (last - first) / (end - begin)


def ours(network, arguments):
    """Steps per second of `sc.sample`, and bytes written."""
    params, data, log_likelihoods, predict, batch = network
    model = sc.Model(log_likelihoods, prior, vectorized=True)
    clock = Clock(arguments.lock)
    with tempfile.TemporaryDirectory() as folder, clock.held:
        run = sc.sample(
            *(model, sc.data.ArraySource(data), params),  # bytes stay bytes
            sampler=sc.SGLD(1e-9),
            estimator=sc.Minibatch(batch, precision=arguments.precision),
            num_samples=arguments.draws,
            thin=EVERY,
            keep_draws=KEEP,
            reducers={"test": sc.reducers.Predictive(predict, data["x"][:256])},
            store=pathlib.Path(folder) / "run",
            callbacks=[clock],
            progress=False,
        )
        written = sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())
        assert run.num_draws == arguments.draws // KEEP
        assert int(run.reduced["test"].count[0]) == arguments.draws
    return clock.rate(run.timing), written


def scan(network, arguments):
    """Steps per second of the plain scan, and the seconds of its first call."""
    params, data, log_likelihoods, _, batch = network
    make = plain_scan(jax.tree.map(jnp.asarray, data), params, log_likelihoods, prior, 1, batch, 1e-9, 1)
    function, begin, calls = make(1), time.perf_counter(), 0
    jax.block_until_ready(function())
    first = time.perf_counter() - begin
    with alone(arguments.lock):
        begin = time.perf_counter()
        while time.perf_counter() - begin < arguments.seconds:
            jax.block_until_ready(function())
            calls += 1
        return calls * THIN / (time.perf_counter() - begin), first


def measure(name, make, arguments):
    """Print one line."""
    network = make()
    size = sum(leaf.size for leaf in jax.tree.leaves(network[0]))
    say(f"{name}: {size:,} parameters and rows are there")
    COMPILING.clear()
    mine, written = ours(network, arguments)
    compiling = sum(COMPILING.values())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    start = f"{name:>14} {size / 1e6:>6.1f} M {mine:>8.1f}"
    end = f"{compiling:>7.1f} s {written / 1e9:>8.2f} GB {memory:>8.2f} GB {device_memory():>6} GB"
    print(f"{start} {'':>8} {'':>6} {end}", flush=True)
    rival, first = scan(network, arguments)
    print(f"{start} {rival:>8.1f} {mine / rival:>6.2f} {end}   (scan: first call {first:.1f} s)", flush=True)


def main(given=None):
    """Measure the chosen networks."""
    small = {"width": 8, "size": 16} if ON_CPU else {}
    short = {"width": 32, "layers": 2, "heads": 4, "context": 16} if ON_CPU else {}
    makers = {
        "transformer": lambda: transformer(**short),
        "resnet": lambda: resnet(**small),
        "transformer50": lambda: transformer(**(short or {"width": 1_024, "layers": 4})),
        "transformer100": lambda: transformer(**(short or {"width": 1_024, "layers": 8})),
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", choices=[*makers, []])
    parser.add_argument("--draws", type=int, default=12, help="draws of a run; every fourth is written")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of the measurement of the scan")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="of products, here only")
    parser.add_argument("--programs", action="store_true", help="print what takes longer than a second to compile")
    parser.add_argument("--lock", help="a file: of the processes that have it, only one measures at a time")
    arguments = parser.parse_args(given)
    SAID.extend(["programs"] * arguments.programs)
    jax.monitoring.register_event_duration_secs_listener(note_compiling)
    print("device:", jax.devices()[0].device_kind, "jax", jax.__version__)
    print(
        f"{'network':>14} {'size':>8} {'steps/s':>8} {'scan':>8} {'ratio':>6} {'compiling':>9} {'written':>11} "
        f"{'host memory':>11} {'device':>9}"
    )
    for name in arguments.networks or ("transformer", "resnet", "transformer100"):
        measure(name, makers[name], arguments)


if __name__ == "__main__":
    main()
