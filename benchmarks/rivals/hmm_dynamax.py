"""dynamax's EM: held-out log likelihood by CPU seconds, compiled before. Arguments as for hmmlearn."""

import json
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from dynamax import hidden_markov_model as models

warnings.simplefilter("ignore")
path, kind, iterations, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = np.load(path)
num = int(data["num_states"])
x, held = (jnp.asarray(data[name].reshape(-1, 1), jnp.float32) for name in ("x", "held"))
if kind == "categorical":
    x, held = x.astype(int), held.astype(int)
    model = models.CategoricalHMM(num, 1, num_classes=int(x.max()) + 1)
else:
    model = {"gaussian": models.GaussianHMM, "poisson": models.PoissonHMM}[kind](num, 1)
if kind == "gaussian":
    model.initialize(jax.random.PRNGKey(seed), method="kmeans", emissions=x[:1_000])  # imports and compiles
begin = time.process_time()
# [user dynamax]
start = {"method": "kmeans", "emissions": x} if kind == "gaussian" else {}
params, props = model.initialize(jax.random.PRNGKey(seed), **start)
# [/user]
spent = time.process_time() - begin
memory = model.initialize_m_step_state(params, props)


@jax.jit
def step(params, memory):
    """One iteration, as `model.fit_em` makes it."""
    sums, _ = model.e_step(params, x)
    return model.m_step(params, props, jax.tree.map(lambda part: part[None], sums), memory)


score = jax.jit(lambda params: model.marginal_log_prob(params, held) / len(held))
jax.block_until_ready(step(params, memory))
marks = []
for _ in range(iterations):
    begin = time.process_time()
    params, memory = jax.block_until_ready(step(params, memory))
    spent += time.process_time() - begin
    marks.append([spent, float(score(params))])
    print(json.dumps(marks[-1]), file=sys.stderr, flush=True)
    if len(marks) > 5 and marks[-1][1] - marks[-4][1] < 1e-5:
        break
print(json.dumps(marks))
