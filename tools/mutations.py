"""Whether the tests notice small mistakes in the mathematics: plants them one by one and runs the tests that must fail.

    python tools/mutations.py                  # all of them; a table, exit status 1 if one survives
    python tools/mutations.py svrg-frozen ...  # some of them

Each mutation replaces one string of one source file, in a copy of `core/src`. One whose string is no longer in the file
counts as a failure: the table follows the code.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
GAUSSIAN, ESTIMATES = "core/tests/law/test_gaussian_laws.py", "core/tests/estimators/test_estimates.py"
SIMPLEX, KERNELS = "core/tests/law/test_simplex_laws.py", "core/tests/law/test_jax_kernels.py"


class Mutation(NamedTuple):
    """A mistake, and the tests that must notice it."""

    file: str
    """Inside core/src/scirocco."""
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = {
    # -- samplers ------------------------------------------------------------------------------------------
    "sgld-noise-without-2": Mutation(
        "samplers/langevin.py",
        "p + e * g + jnp.sqrt(2.0 * e * self.temperature)",
        "p + e * g + jnp.sqrt(e * self.temperature)",
        (f"{GAUSSIAN}::test_sgld",),
    ),
    "sgld-half-drift": Mutation(
        "samplers/langevin.py",
        "p + e * g + jnp.sqrt(2.0 * e * self.temperature)",
        "p + 0.5 * e * g + jnp.sqrt(2.0 * e * self.temperature)",
        (f"{GAUSSIAN}::test_sgld",),
    ),
    "psgld-correction-sign": Mutation(
        "samplers/langevin.py",
        "- self.temperature\n",
        "+ self.temperature\n",
        ("core/tests/law/test_psgld_correction.py",),
    ),
    "sghmc-old-momentum": Mutation(
        "samplers/hamiltonian.py",
        "lambda p, e, r: p + e * r, state.position, eps, momentum)",
        "lambda p, e, r: p + e * r, state.position, eps, state.momentum)",
        (f"{GAUSSIAN}::test_momentum_first_is_right_where_position_first_is_a_quarter_off",),
    ),
    "sghmc-known-noise-added": Mutation(
        "samplers/hamiltonian.py",
        "2.0 * e * c * self.temperature - e * e * v",
        "2.0 * e * c * self.temperature + e * e * v",
        (f"{GAUSSIAN}::test_sghmc_takes_known_gradient_noise_out",),
    ),
    "sghmc-whole-kick": Mutation(
        "samplers/hamiltonian.py",
        "jnp.where(due, 0.5, 1.0)",
        "jnp.where(due, 1.0, 1.0)",
        (f"{GAUSSIAN}::test_sghmc_in_rs_form_with_fresh_momenta",),
    ),
    "baoab-half-noise": Mutation(
        "samplers/hamiltonian.py", "jnp.expm1(-2.0 * e * c)", "jnp.expm1(-1.0 * e * c)", (f"{GAUSSIAN}::test_baoab",)
    ),
    "thermostat-too-warm": Mutation(
        "samplers/thermostat.py",
        "(e * (r * r - self.temperature))",
        "(e * (0.9 * r * r - self.temperature))",
        (f"{GAUSSIAN}::test_thermostats_absorb_gradient_noise",),
    ),
    "recipe-gamma-sign": Mutation(
        "samplers/recipe.py",
        "_tree.scale(self.temperature, self.gamma_of(z, part))",
        "_tree.scale(-self.temperature, self.gamma_of(z, part))",
        ("core/tests/law/test_recipe_laws.py", "core/tests/samplers/test_verify.py"),
    ),
    # -- estimators ----------------------------------------------------------------------------------------
    "minibatch-unscaled": Mutation(
        "estimators/base.py",
        "else _tree.scale(batch.scale, total)",
        "else total",
        (f"{ESTIMATES}::test_asking_for_the_covariance_does_not_change_the_estimate",),
    ),
    "blocks-scale-n-minus-1": Mutation(
        "data/batching.py",
        "index, None, self.num_rows / self.size",
        "index, None, self.num_rows / (self.size - 1)",
        (f"{ESTIMATES}::test_the_average_over_all_batches_is_the_sum",),
    ),
    "covariance-without-finite-population": Mutation(
        "estimators/base.py",
        "correction = batch.correction",
        "correction = 1.0",
        (f"{ESTIMATES}::test_the_average_covariance_is_the_covariance",),
    ),
    "control-variates-without-centre": Mutation(
        "estimators/variance_reduced.py",
        "difference = _tree.subtract(here, there)",
        "difference = here",
        (f"{GAUSSIAN}::test_sgld_with_control_variates_on_rows_of_unequal_weight",),
    ),
    "svrg-frozen": Mutation(
        "estimators/variance_reduced.py",
        "% self._every(num_rows) == 0",
        "% self._every(num_rows) == -1",
        (f"{ESTIMATES}::test_svrg_moves_its_centre_when_due_and_only_then",),
    ),
    "saga-counts-a-row-twice": Mutation(
        "estimators/variance_reduced.py",
        'if self.sampling == "with_replacement":',
        'if self.sampling == "never":',
        (f"{ESTIMATES}::test_saga_remembers_each_row_as_it_was_last_seen",),
    ),
    "saga-forgets-its-sum": Mutation(
        "estimators/variance_reduced.py",
        "TableMemory(table, _tree.add(memory.total, learnt))",
        "TableMemory(table, memory.total)",
        (f"{GAUSSIAN}::test_sgld_with_saga",),
    ),
    # -- kernels -------------------------------------------------------------------------------------------
    "cir-degrees-of-freedom": Mutation(
        "diffusions/processes.py",
        "jnp.where(by_normal, at.alpha - 0.5, at.alpha + number)",
        "jnp.where(by_normal, at.alpha, at.alpha + number)",
        (f"{KERNELS}::test_transitions_are_non_central_chi_squares",),
    ),
    "cir-noncentrality": Mutation(
        "diffusions/processes.py",
        "mean = theta * ((1.0 + at.shrink) / at.span)",
        "mean = theta / at.span",
        (f"{KERNELS}::test_transitions_are_non_central_chi_squares",),
    ),
    "host-cir-degrees-of-freedom": Mutation(
        "diffusions/host/_variates.py",
        "        shape -= 0.5\n        if shape == 0.0:",
        "        shape -= 0.45\n        if shape == 0.0:",
        ("core/tests/law/test_host_kernels.py::test_cir",),
    ),
    "dirichlet-without-prior": Mutation(
        "model/counts.py",
        "lambda a, z: a + jnp.maximum(z, 0.0)",
        "lambda a, z: 1e-6 + jnp.maximum(z, 0.0)",
        (f"{SIMPLEX}::test_with_all_rows_the_law_is_dirichlet_for_any_step",),
    ),
    "scir-double-step": Mutation(
        "simplex/scir.py",
        "gradient.total, times, ones))",
        "gradient.total, jax.tree.map(lambda h: 2.0 * h, times), ones))",
        (f"{SIMPLEX}::test_moments_are_those_of_the_theory",),
    ),
    "scir-cv-rate": Mutation(
        "simplex/scir.py",
        "(estimate - 1.0) / jnp.where(used, reference - 1.0, 1.0)",
        "estimate / jnp.where(used, reference, 1.0)",
        ("core/tests/simplex/test_samplers.py::test_control_holds_the_mode",),
    ),
    "lazy-late-since-the-start": Mutation(
        "diffusions/host/_kernels.py",
        "late[j], lead[j] = now - when[w], span[w]",
        "late[j], lead[j] = now, span[w]",
        ("core/tests/simplex/test_lazy.py",),
    ),
}


def plant(mutation: Mutation, source: pathlib.Path) -> str:
    """Change the copy in `source`; what stands in the way, if anything does."""
    path = source / "scirocco" / mutation.file
    text = path.read_text(encoding="utf-8")
    if (found := text.count(mutation.old)) != 1:
        return f"STALE: {found} places in {mutation.file}"
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    return ""


def run(mutation: Mutation) -> tuple[str, str]:
    """What became of a mutation: "killed" or what is wrong; and the test that failed, or what pytest said."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "src")
        shutil.copytree(ROOT / "core" / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        if problem := plant(mutation, source):
            return problem, ""
        path = os.pathsep.join([str(source), str(ROOT / "latent" / "src"), str(ROOT / "papers" / "src")])
        environment = {"JAX_PLATFORMS": "cpu"} | os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutation.tests]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 2 and more: nothing was tested
        return f"NOT TESTED: pytest ended with {done.returncode}", done.stdout[-500:]
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return ("killed", failed[1]) if done.returncode == 1 and failed else ("SURVIVED", "")


def main() -> int:
    """The table; 1 if a mutation survived or could not be planted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    names = parser.parse_args().names or list(MUTATIONS)
    if unknown := sorted(set(names) - set(MUTATIONS)):
        parser.error(f"no such mutation: {', '.join(unknown)}; there are {', '.join(MUTATIONS)}")
    bad = 0
    print(f"{'mutation':<38} {'seconds':>7}  outcome")
    for name in names:
        begin = time.perf_counter()
        outcome, detail = run(MUTATIONS[name])
        bad += outcome != "killed"
        print(f"{name:<38} {time.perf_counter() - begin:>7.0f}  {outcome} {detail}", flush=True)
    print(f"{len(names) - bad} of {len(names)} noticed")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
