"""Build what is released, and try it where a user would: in new environments, away from this folder.

usage: environments.py dist                    all wheels and sdists; each, with its README, and each extra, in an
                                               environment; uvx and pipx
       environments.py versions [PYTHON ...]   Python versions × the oldest and the newest jax

`versions` takes the interpreters that it finds (python3.11 to python3.14) or those that are named, and says
which it did not find. Both print a table and fail when one of its lines does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
FOLDERS = {"scirocco_core": "core", "scirocco_latent": "latent", "scirocco_papers": "papers", "scirocco": "."}
"""The folders of the distributions, by the names that their files begin with; each needs those before it."""
CORE = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")

PLAIN = """
import numpy as np, jax.numpy as jnp, scirocco as sc
y = np.random.default_rng(0).normal(3.0, 2.0, 200).astype(np.float32)
model = sc.Model(lambda params, y: -0.5 * (y - params["mean"]) ** 2 / 4.0)
run = sc.sample(model, y, {"mean": np.float32(0.0)}, num_samples=300, store="run", progress=False)
mean = np.mean(run.draws["mean"][:])  # stored draws are read when they are indexed
assert abs(mean - y.mean()) < 0.1, mean
print(run.summary())
assert sc.load("run").draws["mean"].shape == run.draws["mean"].shape
run.report("report.html")
"""
CHECKS = {
    "": PLAIN,
    "arviz": PLAIN + "assert run.to_arviz().posterior['mean'].shape == run.draws['mean'].shape",
    "plot": "import matplotlib, scirocco.demo",
    "formula": """
import numpy as np, pandas as pd, scirocco as sc
rng = np.random.default_rng(0)
table = pd.DataFrame({"x": rng.normal(size=300), "g": rng.integers(0, 10, 300)})
table["y"] = 1.0 + 2.0 * table["x"] + rng.normal(size=300)
fitted = sc.models.GLMM("y ~ x + (1 | g)", family="normal").fit(table, progress=False)
print(fitted.summary())
""",
    "numpyro": """
import numpy as np, numpyro, numpyro.distributions as dist, scirocco as sc
def model(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
y = np.random.default_rng(0).normal(3.0, 1.0, 200).astype(np.float32)
run = sc.sample(*sc.from_numpyro(model, data={"y": y}), num_samples=200, progress=False)
assert abs(run.draws["mean"].mean() - y.mean()) < 0.1
""",
    "pymc": """
import numpy as np, pymc as pm, scirocco as sc
y = np.random.default_rng(0).normal(3.0, 1.0, 200)
with pm.Model() as model:
    pm.Normal("y", pm.Normal("mean", 0.0, 10.0), 1.0, observed=y)
run = sc.sample(*sc.from_pymc(model), num_samples=200, progress=False)
assert abs(run.draws["mean"].mean() - y.mean()) < 0.1
""",
    "cluster": """
import numpy as np, scirocco as sc
def log_likelihood(params, y):
    return -0.5 * (y - params["mean"]) ** 2
if __name__ == "__main__":
    y = np.random.default_rng(0).normal(3.0, 1.0, 200).astype(np.float32)
    with sc.cluster.local(2) as client:
        run = sc.sample(sc.Model(log_likelihood), y, {"mean": np.float32(0.0)}, num_samples=100, num_chains=2,
                        client=client, progress=False)
    assert run.draws["mean"].shape == (2, 100)
""",
    "formats": """
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, zarr, scirocco as sc
pq.write_table(pa.table({"x": np.arange(100.0), "y": np.arange(100.0)}), "rows.parquet")
sc.data.convert("rows.parquet", "rows")
""",
    "networks": "import flax.linen, equinox, scirocco as sc; sc.models.BNN",
    "data": "import pooch, scirocco as sc; sc.datasets",
    "compiled": "from scirocco.diffusions import host; assert host.gamma(0, [2.0] * 5).shape == (5,)",
}
"""What is run with the core and each of its extras ("": none), in an empty folder."""

MISSING = """
import subprocess, sys, scirocco as sc
try:
    sc.models.LDA
except sc.errors.MissingExtraError as error:
    assert "pip install scirocco-latent" in str(error), error
else:
    raise AssertionError("LDA without scirocco-latent")
said = subprocess.run([sys.executable, "-m", "scirocco", "topics", "fit"], capture_output=True, text=True)
assert said.returncode == 2 and "pip install scirocco-latent" in said.stderr, said
"""
"""What the core says of models that it does not have."""

LATENT = """
import numpy as np, scirocco as sc
X = np.random.default_rng(0).poisson(0.3, (60, 30))
model = sc.models.LDA(3).fit(X, num_epochs=2, progress=False)
model.save("topics")
assert sc.models.load("topics").components_.shape == (3, 30)
"""
"""What is run with the core and the latent models."""


WEIGHT = """
import time; begin = time.perf_counter()
import scirocco as sc; imported = time.perf_counter()
import numpy as np, resource, sys
y = np.random.default_rng(0).normal(3.0, 2.0, 100_000).astype(np.float32)
model = sc.Model(lambda mean, y: -0.5 * (y - mean) ** 2)
before = time.perf_counter()
sc.sample(model, y, np.float32(0.0), progress=False)
others = [n for n in ("arviz", "blackjax", "pandas", "scipy", "optax", "numba", "sklearn") if n in sys.modules]
print(f"import scirocco {imported - begin:.2f} s, the first sc.sample {time.perf_counter() - before:.1f} s,",
      f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB of memory; imported beside jax:", others)
"""
"""What an import and the first draws take."""


def shell(*command: object, cwd: pathlib.Path) -> str:
    """Run a command and return what it printed, which is shown when it fails."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:4]))}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def environment(
    python: str, *requirements: object, base: pathlib.Path | None = None
) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
    """A new environment with these packages, or a copy of another with these in addition; and an empty folder.

    Both are removed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="scirocco-") as name:
        folder = pathlib.Path(name)
        interpreter = folder / "env" / "bin" / "python"
        if base is None:
            shell(python, "-m", "venv", folder / "env", cwd=folder)
        else:
            shutil.copytree(base, folder / "env", symlinks=True, copy_function=os.link)
            for script in (folder / "env" / "bin").iterdir():  # those of the other run its interpreter
                text = script.read_bytes() if script.is_file() and not script.is_symlink() else b""
                if text.startswith(b"#!" + str(base).encode()):
                    mode = script.stat().st_mode
                    script.unlink()
                    script.write_bytes(text.replace(str(base).encode(), str(folder / "env").encode()))
                    script.chmod(mode)
        (folder / "empty").mkdir()
        if requirements:
            shell(interpreter, "-m", "pip", "install", "--quiet", "--no-compile", *requirements, cwd=folder)
        yield interpreter, folder / "empty"


class Table:
    """Lines of results, printed as they come."""

    def __init__(self) -> None:
        self.failed = 0

    @contextlib.contextmanager
    def line(self, label: str) -> Iterator[None]:
        """Time what is done inside, and say how it ended."""
        start, result = time.monotonic(), "ok"
        try:
            yield
        except RuntimeError as error:
            result = f"FAILED\n{error}"
            self.failed += 1
        print(f"{label:<44} {time.monotonic() - start:6.0f} s  {result}", flush=True)


def build() -> dict[str, pathlib.Path]:
    """Wheels and sdists of all distributions in dist/; returns the wheels."""
    shutil.rmtree(DIST, ignore_errors=True)
    for folder in FOLDERS.values():
        shell(sys.executable, "-m", "build", "--outdir", DIST, ROOT / folder, cwd=ROOT)
    for path in sorted(DIST.iterdir()):
        print(f"{path.name:<44} {path.stat().st_size / 1e6:6.1f} MB")
    return {name: next(DIST.glob(f"{name}-*.whl")) for name in FOLDERS}


def try_code(interpreter: pathlib.Path, folder: pathlib.Path, code: str, command: bool = False) -> None:
    """Run the code in an empty folder, and with `command` the command line on what it has stored."""
    (folder / "check.py").write_text(code)
    shell(interpreter, "-I", "check.py", cwd=folder)
    if command:
        shell(interpreter.parent / "scirocco", "version", cwd=folder)
        shell(interpreter.parent / "scirocco", "runs", ".", cwd=folder)


def try_readme(interpreter: pathlib.Path, folder: pathlib.Path, readme: str) -> None:
    """Run the code of a README in an empty folder."""
    shell(interpreter, ROOT / "tools" / "run_pages.py", "--one", ROOT / readme, cwd=folder)


def say_weight(interpreter: pathlib.Path, folder: pathlib.Path) -> None:
    """Print what an environment weighs without pip, and what an import and the first draws take in it."""
    packages = next((interpreter.parent.parent / "lib").glob("python*/site-packages"))
    files = [path for path in packages.rglob("*") if path.is_file() and path.relative_to(packages).parts[0] != "pip"]
    size = sum(path.stat().st_size for path in files if path.suffix != ".pyc")
    names = [path.name.split("-")[0] for path in packages.glob("*.dist-info")]
    said = shell(interpreter, "-I", "-c", WEIGHT, cwd=folder).strip()
    print(f"    {size / 1e6:.0f} MB in {len(names)} packages; {said}", flush=True)


def try_runners(wheel: pathlib.Path) -> None:
    """The command straight from the checkout with uvx, and from the wheel with pipx, in an empty folder."""
    with environment(sys.executable, "uv", "pipx") as (interpreter, folder):
        bin_ = interpreter.parent
        shell(bin_ / "uvx", "--system-certs", "--from", ROOT, "scirocco", "demo", "--out", "uvx", cwd=folder)
        pip = f"--pip-args=--find-links {DIST}"
        shell(bin_ / "pipx", "run", pip, "--spec", wheel, "scirocco", "demo", "--out", "pipx", cwd=folder)
        if not all((folder / name / "demo.html").exists() for name in ("uvx", "pipx")):
            raise RuntimeError("the demonstration wrote no report")


def dist(arguments: argparse.Namespace) -> int:
    """Build, then try the core bare, alone, with each extra and from its sdist; then with each other distribution."""
    extras = CORE["optional-dependencies"]
    if unknown := set(extras) - set(CHECKS):
        sys.exit(f"no check for the extras {sorted(unknown)}: add them to CHECKS")
    wheels, table, python = build(), Table(), sys.executable
    core = wheels["scirocco_core"]
    with table.line("core with jax and numpy alone"), environment(python, "jax", "numpy") as made:
        shell(made[0], "-m", "pip", "install", "--quiet", "--no-deps", core, cwd=made[1])
        try_code(*made, (ROOT / "core" / "tests" / "minimal" / "check_minimal.py").read_text())
    with environment(python, core) as (interpreter, folder):
        base = interpreter.parent.parent
        with table.line("core"):
            try_code(interpreter, folder, CHECKS[""], command=True)
            try_code(interpreter, folder, MISSING)
        say_weight(interpreter, folder)
        with table.line("core: its README"), environment(python, base=base) as made:
            try_readme(*made, "core/README.md")
        for extra in extras:
            with table.line(f"core[{extra}]"), environment(python, f"{core}[{extra}]", base=base) as made:
                try_code(*made, CHECKS[extra])
        again = ("--force-reinstall", "--no-deps", next(DIST.glob("scirocco_core-*.tar.gz")))
        with table.line("core from its sdist"), environment(python, *again, base=base) as made:
            try_code(*made, CHECKS[""], command=True)
        latent = wheels["scirocco_latent"]
        with table.line("core, latent"), environment(python, latent, base=base) as made:
            try_code(*made, LATENT)
            shell(made[0].parent / "scirocco", "topics", "show", "topics", cwd=made[1])
            (made[1] / "readme").mkdir()
            try_readme(made[0], made[1] / "readme", "latent/README.md")
        papers = (f"{core}[arviz,plot,numpyro,data]", latent, wheels["scirocco_papers"])
        with table.line("core, latent, papers"), environment(python, *papers, base=base) as made:
            try_code(*made, "import scirocco_papers")
            try_readme(*made, "papers/README.md")
    whole = [wheels[name] for name in ("scirocco_core", "scirocco_latent", "scirocco")]
    with table.line("scirocco"), environment(python, *whole) as made:
        for code in (
            CHECKS[""],
            CHECKS["arviz"],
            CHECKS["plot"],
            CHECKS["formula"],
            CHECKS["formats"],
            CHECKS["data"],
            LATENT,
        ):
            try_code(made[0], pathlib.Path(tempfile.mkdtemp(dir=made[1])), code, command=True)
        say_weight(*made)
        (made[1] / "readme").mkdir()
        try_readme(made[0], made[1] / "readme", "README.md")
    with table.line("uvx from here, pipx from the wheel: demo"):
        try_runners(wheels["scirocco"])
    return table.failed


def versions(arguments: argparse.Namespace) -> int:
    """Each interpreter with the oldest and the newest jax: the plain call, a store, a report, and unit tests."""
    wheels, table = build(), Table()
    oldest = next(r for r in CORE["dependencies"] if r.startswith("jax>=")).split(">=")[1]
    for name in arguments.python or PYTHONS:
        python = shutil.which(name)
        if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
            print(f"{name:<44}      -    not found")
            continue
        with table.line(f"{name}, both, with installing"), contextlib.ExitStack() as stack:
            all_of_them = (*wheels.values(), f"jax=={oldest}", "pytest")  # 0.10: 0.10.0
            old = stack.enter_context(environment(python, *all_of_them))
            with table.line(f"{name}, {version_of_jax(*old)}"):
                try_code(*old, CHECKS[""], command=True)
                try_code(*old, LATENT)
                shell(old[0], "-m", "pytest", *UNIT_TESTS, cwd=ROOT)
            new = stack.enter_context(environment(python, "--upgrade", "jax", base=old[0].parent.parent))
            with table.line(f"{name}, {version_of_jax(*new)}"):
                try_code(*new, CHECKS[""])
                try_code(*new, LATENT)
                shell(new[0], "-m", "pytest", *UNIT_TESTS, cwd=ROOT)
    return table.failed


def version_of_jax(interpreter: pathlib.Path, folder: pathlib.Path) -> str:
    """What was installed, with its version."""
    return shell(interpreter, "-c", "import jax; print('jax', jax.__version__, end='')", cwd=folder)


UNIT_TESTS = ("-q", "-x", "-p", "no:cacheprovider", "-m", "unit")
UNIT_TESTS += ("core/tests/samplers", "core/tests/estimators", "core/tests/test_battery.py", "core/tests/test_quick.py")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    commands.add_parser("dist", help="build and try wheel, sdist, extras").set_defaults(run=dist)
    several = commands.add_parser("versions", help="Python and jax versions")
    several.add_argument("python", nargs="*", help="interpreters (default: python3.11 to python3.14, where found)")
    several.set_defaults(run=versions)
    chosen = parser.parse_args()
    sys.exit(1 if chosen.run(chosen) else 0)
