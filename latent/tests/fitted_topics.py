"""Topic models whose draws are given, so that what is said about them can be checked exactly."""

import numpy as np

from scirocco.models import LDA
from scirocco.run.records import OWN_LOOP
from scirocco.run.result import Run
from scirocco_latent.lda.settings import Size, resolve


def model_of(path, draws, words=None, stats=None, names=()):
    """A model with these draws, (chain, draw, topic, word), and statistics, by way of a store at `path`."""
    draws = np.asarray(draws, np.float32)
    model = LDA(draws.shape[2])
    settings = resolve(model.get_params(), Size(1, draws.shape[3])).as_json()
    lengths = {"num_samples": draws.shape[1], "num_burnin": 0, "thin": 1, "num_chains": len(draws)}
    known = {"kind": OWN_LOOP, "model": "LDA", "num_rows": 1, "dimension": draws[0, 0].size, "seed": 0}
    run = Run({"topics": draws}, None, stats or {}, settings | lengths | known, {}, {}, "complete", [])
    told = {"vocabulary": None if words is None else list(words), "tokeniser": None, "topic_names": list(names)}
    model._settle(run, told, {})
    model.save(path)
    return LDA.load(path)
