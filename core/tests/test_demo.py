"""The demo with fewer rows, its numbers checked against the exact mode."""

import re
import sys

import numpy as np
import pytest

from report.reading import made_run
from scirocco import demo
from scirocco.demo import NUM_FEATURES, PRIOR_VARIANCE, make_problem
from scirocco.errors import MissingExtraError

pytestmark = pytest.mark.compile


def test_laplace_is_the_mode():
    problem = make_problem(2_000, seed=1)
    x, y = problem.data["x"].astype(np.float64), problem.data["y"].astype(np.float64)

    def log_density(beta):
        logit = x @ beta
        return np.sum(y * logit - np.logaddexp(0, logit)) - 0.5 * np.sum(beta**2) / PRIOR_VARIANCE

    for k in range(NUM_FEATURES):
        step = np.eye(NUM_FEATURES)[k] * 1e-4
        up, down = log_density(problem.mode + step), log_density(problem.mode - step)
        here = log_density(problem.mode)
        assert abs(up - down) / 2e-4 * problem.sd[k] < 1e-4, "the gradient vanishes at the mode"
        assert problem.sd[k] ** -2 <= -(up + down - 2 * here) / 1e-8 * 1.001, "marginal sd ≥ conditional sd"


def test_data_come_from_the_seed_alone():
    first, again, other = (make_problem(100, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.data["x"], again.data["x"])
    assert not np.array_equal(first.data["y"], other.data["y"])


def test_autocorrelation_of_a_known_process(seed):
    rng = np.random.default_rng(seed)
    chains = np.zeros((8, 20_000))
    noise = rng.normal(size=chains.shape)
    for step in range(1, chains.shape[1]):
        chains[:, step] = 0.8 * chains[:, step - 1] + noise[:, step]
    np.testing.assert_allclose(demo.autocorrelation(chains, 6), 0.8 ** np.arange(6), atol=0.05)


@pytest.mark.rotates(2, "demo")
def test_demo_agrees_with_the_exact_mode(tmp_path, capsys, monkeypatch, seed):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or True)
    done = demo.run_demo(tmp_path / "out", seed, num_rows=20_000, open_page=True, progress=False)
    table = done.table
    assert done.run.num_chains == 4 and done.run.num_draws == 1_000
    # the mean of some hundred effective draws, and the posterior's skewness of order 1/√N
    assert np.abs(table["offset"]).max() < 0.3
    assert table["sd_ratio"].between(0.85, 1.2).all()
    assert table["r_hat"].max() < 1.05 and table["ess_bulk"].min() > 200
    inside = (np.abs(done.problem.truth - done.problem.mode) < 5 * done.problem.sd).all()
    assert inside, "the truth lies within the posterior"
    assert done.picture.read_bytes().startswith(b"\x89PNG")
    page = done.page.read_text()
    assert done.page == tmp_path / "out" / "demo.html" and "beta[11]" in page
    shown = capsys.readouterr().out
    for words in (demo.CALL, "β₁₁", "R-hat", "ESS", "mean-mode", "Certificate: ", "Chosen: "):
        assert words in shown
    assert opened == [done.page.resolve().as_uri()] and "Open it with" not in shown


def test_models_have_a_line_each_and_those_that_are_missing_say_what_to_install(capsys):
    def missing(rng):
        raise MissingExtraError("Install it.", name="latent")

    shown = demo.MODELS
    made = (demo.ShownModel("model.fit()", lambda rng: f"found {rng.integers(9)}"), demo.ShownModel("other", missing))
    demo.show_models(3, made)
    lines = capsys.readouterr().out.splitlines()
    found = f"    found {np.random.default_rng(3).integers(9)}  (0 s)"
    assert lines[lines.index("  model.fit()") + 1] == found
    assert lines[lines.index("  other") + 1] == "    Install it." and "What to type next:" in lines
    assert [model.fit for model in shown] == [demo.fit_formula, demo.fit_texts, demo.fit_network]


def test_the_formula_of_the_demonstration_finds_what_the_data_have(seed):
    name, mean, low, high = re.match(
        r"(\w+): (\S+) \(90 %: (\S+) to (\S+);", demo.fit_formula(np.random.default_rng(seed))
    ).groups()
    assert name == "price" and abs(float(mean) + 2) < 5 * (float(high) - float(low)) / 3.3


@pytest.fixture
def made():
    """A problem, and a run of few draws."""
    problem = make_problem(100, seed=0)
    draws = np.random.default_rng(0).normal(size=(2, 50, NUM_FEATURES)).astype(np.float32)
    return made_run({"beta": draws}), problem


def test_without_matplotlib_only_the_figure_is_missing(made, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page, picture = demo.save(*made, tmp_path)
    assert picture is None and [path.name for path in tmp_path.iterdir()] == [page.name] == ["demo.html"]
    shown = capsys.readouterr().out
    assert "no figure" in shown and "pip install matplotlib" in shown


def test_ctrl_c_while_it_is_saved_leaves_nothing(made, tmp_path):
    """When the page is written and the figure is drawn."""

    class Pressed:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.save(made[0], Pressed(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [0, 7, 11])
def test_subscripts(number):
    assert demo.subscript(number).translate(str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")) == str(number)
