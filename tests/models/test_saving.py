"""Save, store and resume in any order: each works, or says what to do, for models of every kind."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import scirocco as sc
from scirocco import models
from scirocco.errors import InvalidValueError, SciroccoError

pytestmark = [
    pytest.mark.compile,
    pytest.mark.usefixtures("quick_compiler"),
    pytest.mark.filterwarnings("ignore::scirocco.errors.SciroccoWarning"),
]

rng = np.random.default_rng(0)
ROWS = np.concatenate([rng.normal(size=(40, 2)), 5 + rng.normal(size=(40, 2))])
FRAME = pd.DataFrame({"y": ROWS[:, 0], "x": ROWS[:, 1], "g": np.arange(80) % 5, "h": np.arange(80) % 7})
SHORT = {"num_samples": 10, "num_chains": 1, "seed": 1}
STEPS = {"num_burnin": 60, "thin": 1}
FITS = {
    "HMM": (models.HMM, {"num_states": 2, **SHORT}, (ROWS[:, 0],), {"num_steps": 40}),
    "DPMixture": (models.DPMixture, {"base": "gaussian", **SHORT}, (ROWS,), {"num_steps": 40}),
    "LDA": (models.LDA, {"num_topics": 2, **SHORT}, (sp.csr_array(rng.poisson(1, (20, 12))),), {"num_steps": 40}),
    "blocks": (
        models.StochasticBlockModel,
        {"num_blocks": 2, **SHORT},
        (rng.integers(0, 12, (60, 2)),),
        {"num_steps": 40},
    ),
    "linear": (models.LinearRegression, SHORT | STEPS, (ROWS[:, 1:], ROWS[:, 0]), {}),
    "crossed": (models.GLMM, {"formula": "y ~ x + (1 | g) + (1 | h)", **SHORT, **STEPS}, (FRAME,), {}),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.rotates(2)
def test_a_saved_model_and_a_store_in_any_order(tmp_path, name):
    kind, settings, data, length = FITS[name]
    path = tmp_path / "model"

    def fit(**options):
        return kind(**settings).fit(*data, **length, store=path, progress=False, **options)

    first = fit()
    wanted = np.asarray(next(iter(sc.load(path).draws.values())))
    with pytest.raises(InvalidValueError, match=r"overwrite=True to delete it|already stored"):
        first.save(path)
    assert_kept = lambda: np.testing.assert_array_equal(  # noqa: E731
        np.asarray(next(iter(sc.load(path).draws.values()))), wanted
    )
    fit(resume=True)
    assert_kept()
    saved = tmp_path / "saved"
    models.load(path).save(saved)
    path = saved
    assert_kept()
    try:
        fit(resume=True)
    except SciroccoError as error:
        assert "Pass overwrite=True" in str(error) or "planned as" in str(error)
    assert_kept()
    with pytest.raises(InvalidValueError, match=r"holds a run already .* overwrite=True to delete it"):
        fit()
    fit(overwrite=True)
    assert_kept()
    fit(resume=True)
    assert_kept()
