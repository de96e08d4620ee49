"""The host loop: what is kept, what is told, and that nothing is lost when a run ends early."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scirocco as sc
from scirocco.errors import DivergenceError, SciroccoWarning
from scirocco.run import session

pytestmark = pytest.mark.compile

ROWS = np.random.default_rng(0).normal(1.0, 1.0, 256).astype(np.float32)
MODEL = sc.Model(lambda p, x: -0.5 * (x - p["mean"]) ** 2, lambda p: -0.5 * p["other"] @ p["other"])
START = {"mean": 0.0, "other": np.zeros(3, np.float32)}


def run(**changes):
    arguments = {
        "sampler": sc.SGLD(1e-3),
        "estimator": sc.Minibatch(32),
        "num_samples": 40,
        "num_chains": 3,
        "progress": False,
    }
    return sc.sample(MODEL, ROWS, START, **(arguments | changes))


def assert_same(a, b, rtol=0.0):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-6 * rtol), a, b)


def test_draws_have_the_structure_of_the_parameters():
    result = run()
    assert {name: leaf.shape for name, leaf in result.draws.items()} == {"mean": (3, 40), "other": (3, 40, 3)}
    assert (result.num_chains, result.num_draws, result.status) == (3, 40, "complete")
    assert result.gradients is None


def test_threads_and_vmap_give_the_same_chains():
    threads, vmap = (run(chain_method=method).draws for method in ("threads", "vmap"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), threads, vmap)


def test_a_chain_does_not_depend_on_its_company():
    alone, together = run(num_chains=1).draws, run(num_chains=4).draws
    assert_same(alone, jax.tree.map(lambda leaf: leaf[:1], together))


def test_kept_gradients_belong_to_the_draws_they_are_kept_with():
    result = run(estimator=sc.Full(), keep_gradients=True)
    exact = ROWS.sum() - len(ROWS) * result.draws["mean"]
    np.testing.assert_allclose(result.gradients["mean"], exact, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(result.gradients["other"], -result.draws["other"], rtol=1e-5)
    norm = np.sqrt(result.gradients["mean"] ** 2 + (result.gradients["other"] ** 2).sum(axis=-1))
    np.testing.assert_allclose(result.stats["gradient_norm"], norm, rtol=1e-4)


def test_a_divergence_keeps_every_draw_before_it_and_says_where():
    """The gradient turns to NaN where the chain cannot miss it; the draws before are those of a run without."""
    edge = 0.02
    broken = sc.Model(lambda p, x: -0.5 * (x - p) ** 2 * jnp.where(p > edge, jnp.nan, 1.0))
    sound = sc.Model(lambda p, x: -0.5 * (x - p) ** 2)
    arguments = {
        "sampler": sc.SGLD(1e-5),
        "estimator": sc.Full(),
        "num_samples": 500,
        "num_chains": 2,
        "progress": False,
    }
    with pytest.raises(DivergenceError, match="finite") as caught:
        sc.sample(broken, ROWS, 0.0, **arguments)
    kept = caught.value.run
    whole = sc.sample(sound, ROWS, 0.0, **arguments)
    first_out = min(int(np.argmax(chain > edge)) for chain in whole.draws if np.any(chain > edge))
    assert kept.status == "diverged"
    assert 0 < kept.num_draws <= first_out + 1
    assert kept.num_draws >= first_out
    np.testing.assert_array_equal(kept.draws, whole.draws[:, : kept.num_draws])
    for phrase in (f"chain {caught.value.chain}", f"step {caught.value.step}", "step_size=", "error.run"):
        assert phrase in str(caught.value)


def test_a_step_that_is_far_too_large_names_the_parameter_and_a_step_that_works():
    with pytest.raises(DivergenceError, match="`mean`") as caught:
        run(sampler=sc.SGLD(10.0), num_samples=2_000)
    advised = float(str(caught.value).split("step_size=")[1].split(" ")[0])
    assert run(sampler=sc.SGLD(advised), num_samples=2_000).status == "complete"


def test_ctrl_c_keeps_what_was_drawn(monkeypatch):
    monkeypatch.setattr(session, "_FIRST_CHUNK", 8)
    monkeypatch.setattr(session, "_SECOND_CHUNK", 8)

    def interrupt(report):
        if report.step >= 16:
            raise KeyboardInterrupt

    with pytest.warns(SciroccoWarning, match="interrupted after 16 of 40 draws"):
        result = run(callbacks=[interrupt])
    assert result.status == "interrupted"
    assert_same(result.draws, jax.tree.map(lambda leaf: leaf[:, :16], run().draws))


def test_callbacks_see_every_draw_once_and_their_scores_are_kept():
    seen = []

    def callback(report):
        if report.draws is None:
            return None
        seen.append(report.draws["mean"])
        return {"average": float(report.draws["mean"].mean())}

    result = run(num_burnin=5, callbacks=[callback])
    np.testing.assert_array_equal(np.concatenate(seen, axis=1), result.draws["mean"])
    assert result.scores[-1][0] == 45
    assert result.scores[-1][1] == {"average": pytest.approx(float(seen[-1].mean()))}


def test_a_callback_can_stop_the_run(monkeypatch):
    monkeypatch.setattr(session, "_FIRST_CHUNK", 10)
    result = run(callbacks=[lambda report: report.stop()])
    assert (result.status, result.num_draws) == ("stopped", 10)


def test_defaults_alone_give_the_posterior():
    """No sampler, no estimator: both are chosen, and the mean of a Gaussian comes out."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(sampler=None, estimator=None, num_samples=4_000, num_chains=4)
    assert abs(result.draws["mean"].mean() - ROWS.mean()) < 0.05 / np.sqrt(len(ROWS)) * 16
    assert result.draws["mean"].std() * np.sqrt(len(ROWS)) == pytest.approx(1.0, abs=0.15)


def test_nothing_is_shown_where_there_is_no_terminal(capfd):
    run(progress=True)
    assert capfd.readouterr() == ("", "")
