"""hmmlearn's EM: held-out log likelihood by CPU seconds. Arguments: file, emissions, iterations, seed."""

import json
import sys
import time
import warnings

import numpy as np
from hmmlearn import hmm

warnings.simplefilter("ignore")
path, kind, iterations, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = np.load(path)
x, held = data["x"].reshape(-1, 1), data["held"].reshape(-1, 1)
begin = time.process_time()
# [user hmmlearn]
make = {"gaussian": hmm.GaussianHMM, "poisson": hmm.PoissonHMM, "categorical": hmm.CategoricalHMM}[kind]
model = make(int(data["num_states"]), n_iter=1, tol=-np.inf, implementation="scaling", random_state=seed)
model.fit(x)
# [/user]
model.n_iter, model.init_params = 1, ""
spent = time.process_time() - begin
marks = [[spent, model.score(held) / len(held)]]
for _ in range(iterations - 1):
    begin = time.process_time()
    model.fit(x)
    spent += time.process_time() - begin
    marks.append([spent, model.score(held) / len(held)])
    print(json.dumps(marks[-1]), file=sys.stderr, flush=True)
    if len(marks) > 5 and marks[-1][1] - marks[-4][1] < 1e-5:
        break
print(json.dumps(marks))
