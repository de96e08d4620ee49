"""Networks of 10^7 to 10^8 parameters on an accelerator: a residual network on images, transformers on bytes.

usage: python benchmarks/large_networks.py [resnet] [transformer] [transformer100] [--seconds 5] [--precision bfloat16]

Rows are bytes on the device, and become numbers in a batch. Every 50th state is a draw: its predictions are averaged on
the device, and every fourth draw is written to a store. Prints steps per second beside the same arithmetic in a plain
scan that keeps nothing, the bytes written, and the largest memory of the process, on the host and on the device.
"""

import argparse
import pathlib
import resource
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from accelerator import ON_CPU, plain_scan, steps_per_second

import scirocco as sc

THIN, KEEP = 50, 4


def normal(rng, *shape, scale):
    """Initial weights."""
    return jnp.asarray(rng.normal(0.0, scale, shape).astype(np.float32))


def grouped_norm(params, x, groups=8):
    """Normalised over groups of channels and the image: no state between batches."""
    shape = x.shape
    x = x.reshape(shape[0], -1, groups, shape[-1] // groups)
    x = (x - x.mean((1, 3), keepdims=True)) * jax.lax.rsqrt(x.var((1, 3), keepdims=True) + 1e-5)
    return x.reshape(shape) * params["scale"] + params["shift"]


def conv(weights, x, stride=1):
    """A convolution of images (row, height, width, channel)."""
    return jax.lax.conv_general_dilated(
        x, weights, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def resnet(width=64, size=32, num_classes=10, seed=0):
    """Parameters of a ResNet-18 (eight blocks of two convolutions), and its logits."""
    rng = np.random.default_rng(seed)

    def filters(side, inside, outside):
        return normal(rng, side, side, inside, outside, scale=np.sqrt(2.0 / (side * side * inside)))

    def norm(channels):
        return {"scale": jnp.ones(channels), "shift": jnp.zeros(channels)}

    blocks, inside = [], width
    for stage in range(4):
        outside = width << stage
        for _ in range(2):
            block = {"one": filters(3, inside, outside), "two": filters(3, outside, outside)}
            block |= {"norm_one": norm(outside), "norm_two": norm(outside)}
            blocks.append(block | ({} if inside == outside else {"short": filters(1, inside, outside)}))
            inside = outside
    head = normal(rng, inside, num_classes, scale=inside**-0.5)
    params = {"stem": filters(3, 3, width), "norm": norm(width), "blocks": blocks, "head": head}

    def logits(params, images):
        x = images.astype(jnp.float32) / 255.0
        x = jax.nn.relu(grouped_norm(params["norm"], conv(params["stem"], x)))
        for block in params["blocks"]:
            stride = 2 if "short" in block else 1
            y = jax.nn.relu(grouped_norm(block["norm_one"], conv(block["one"], x, stride)))
            y = grouped_norm(block["norm_two"], conv(block["two"], y))
            x = jax.nn.relu(y + (conv(block["short"], x, stride) if stride == 2 else x))
        return x.mean((1, 2)) @ params["head"]

    images = rng.integers(0, 256, (1_000 if ON_CPU else 50_000, size, size, 3), np.uint8)
    labels = rng.integers(0, num_classes, len(images)).astype(np.int32)

    def log_likelihoods(params, rows):
        scores = jax.nn.log_softmax(logits(params, rows["x"]))
        return jnp.take_along_axis(scores, rows["y"][:, None], axis=1)[:, 0]

    def predict(params, x):
        return jax.nn.softmax(logits(params, x))

    return params, {"x": images, "y": labels}, log_likelihoods, predict, 128


def transformer(width=512, layers=6, heads=8, context=128, seed=0):
    """Parameters of a transformer that predicts the next byte, and its log likelihood of rows of bytes."""
    rng = np.random.default_rng(seed)

    def dense(inside, outside):
        return normal(rng, inside, outside, scale=inside**-0.5)

    params = {
        "bytes": normal(rng, 256, width, scale=0.02),
        "places": normal(rng, context, width, scale=0.02),
        "layers": [
            {
                "qkv": dense(width, 3 * width),
                "out": dense(width, width),
                "up": dense(width, 4 * width),
                "down": dense(4 * width, width),
            }
            for _ in range(layers)
        ],
    }

    def normed(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def logits(params, text):
        x = params["bytes"][text.astype(jnp.int32)] + params["places"]
        before = jnp.tril(jnp.ones((context, context), bool))
        for layer in params["layers"]:
            q, k, v = jnp.split(normed(x) @ layer["qkv"], 3, axis=-1)
            q, k, v = (part.reshape(*part.shape[:2], heads, -1) for part in (q, k, v))
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
            weights = jax.nn.softmax(jnp.where(before, scores, -1e30))
            x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ layer["out"]
            x = x + jax.nn.gelu(normed(x) @ layer["up"]) @ layer["down"]
        return normed(x) @ params["bytes"].T

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
    """The largest number of bytes in use, where the device counts them."""
    found = jax.devices()[0].memory_stats()
    return f"{found['peak_bytes_in_use'] / 1e9:.2f} GB" if found else "?"


def measure(name, network, arguments):
    """Print one line."""
    params, data, log_likelihoods, predict, batch = network
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    scan = plain_scan(jax.tree.map(jnp.asarray, data), params, log_likelihoods, prior, 1, batch, 1e-9, 1)
    begin, rival = time.perf_counter(), arguments.steps
    if not rival:
        rival = steps_per_second(scan, arguments.seconds, draws=1 if ON_CPU else 10)
    print(
        f"{name:>14} {size / 1e6:>6.1f} M {'':>8} {rival:>8.1f} [{time.perf_counter() - begin:.0f} s]",
        flush=True,
    )
    begin = time.perf_counter()
    model = sc.Model(log_likelihoods, prior, vectorized=True)
    draws = 8 if ON_CPU else max(16, int(rival * arguments.seconds / THIN))
    with tempfile.TemporaryDirectory() as folder:
        run = sc.sample(
            *(model, sc.data.ArraySource(data), params),  # bytes stay bytes
            sampler=sc.SGLD(1e-9),
            estimator=sc.Minibatch(batch, precision=arguments.precision),
            num_samples=draws,
            thin=2 if ON_CPU else THIN,
            keep_draws=KEEP,
            reducers={"test": sc.reducers.Predictive(predict, data["x"][:256])},
            store=pathlib.Path(folder) / "run",
            progress=False,
        )
        written = sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())
        assert run.num_draws == draws // KEEP and int(run.reduced["test"].count[0]) == draws
    sampling = run.timing["sampling" if run.timing["sampling"]["steps"] else "first_chunk"]
    mine, memory = (
        sampling["steps"] / sampling["wall"],
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    )
    print(
        f"{name:>14} {size / 1e6:>6.1f} M {mine:>8.1f} {rival:>8.1f} {mine / rival:>6.2f} "
        f"{written / 1e9:>9.2f} GB {memory:>8.2f} GB {device_memory():>9} [{time.perf_counter() - begin:.0f} s]",
        flush=True,
    )


def main(given=None):
    """Measure the chosen networks."""
    small = {"width": 8, "size": 16} if ON_CPU else {}
    short = {"width": 32, "layers": 2, "heads": 4, "context": 16} if ON_CPU else {}
    long = short or {"width": 1_024, "layers": 8}
    makers = {
        "resnet": lambda: resnet(**small),
        "transformer": lambda: transformer(**short),
        "transformer100": lambda: transformer(**long),
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", choices=[*makers, []])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement")
    parser.add_argument(
        "--steps", type=float, help="steps per second of the scan, if known; it is not run then"
    )
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="of products, here only")
    arguments = parser.parse_args(given)
    print("device:", jax.devices()[0].device_kind, "jax", jax.__version__)
    print(
        f"{'network':>14} {'size':>8} {'steps/s':>8} {'scan':>8} {'ratio':>6} {'written':>12} "
        f"{'host memory':>11} {'device':>9}"
    )
    for name in arguments.networks or makers:
        measure(name, makers[name](), arguments)


if __name__ == "__main__":
    main()
