"""`BPMF`: fits, predictions against their formulas, users and items without ratings, recommendations, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scirocco._tree import pytree_dataclass
from scirocco.errors import InvalidTypeError, InvalidValueError, NotFittedError, SciroccoWarning
from scirocco.run.sizes import RUNNING
from scirocco.samplers import SGLD
from scirocco_latent.factorisation import BPMF, gibbs
from scirocco_latent.factorisation.density import TABLES, Law, Ratings
from scirocco_latent.factorisation.ratings import check_triples

NUM_USERS, NUM_ITEMS, NUM_ROWS, TRUE_SD = 25, 15, 1_200, 0.3
NEW_USER, NEW_ITEM = NUM_USERS, NUM_ITEMS

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("quick_compiler")]


def make_ratings(seed=0):
    """Two factors, biases, little noise; some pairs come more than once."""
    rng = np.random.default_rng([seed, 5])
    liking = rng.normal(size=(NUM_USERS, 2)) @ rng.normal(size=(2, NUM_ITEMS)) * 0.7
    liking += 0.5 * rng.normal(size=(NUM_USERS, 1)) + 0.5 * rng.normal(size=NUM_ITEMS)
    users, items = rng.integers(0, NUM_USERS, NUM_ROWS), rng.integers(0, NUM_ITEMS, NUM_ROWS)
    users[:15], items[:15] = 3, np.arange(15)  # user 3 has rated everything
    keep = (users != 4) | (items >= 10)  # user 4 has not rated the first ten
    users, items = users[keep], items[keep]
    return users, items, 3.0 + liking[users, items] + TRUE_SD * rng.normal(size=len(users))


@pytest.fixture(scope="module")
def fitted():
    return fit()


def fit(**options):
    """With room for one user and one item more."""
    model = BPMF(3, num_users=NUM_USERS + 1, num_items=NUM_ITEMS + 1, num_samples=40, num_chains=1)
    return model.fit(*make_ratings(), num_epochs=200, progress=False, **options)


@pytest.mark.rotates(2, "long fits")
def test_it_learns(fitted):
    users, items, ratings = make_ratings()
    assert fitted.score(users, items, ratings) > 0.85
    mean, low, high = fitted.predict(users, items, interval=0.9)
    assert 0.8 < np.mean((low < ratings) & (ratings < high)) < 0.99
    np.testing.assert_allclose(mean, fitted.predict(users, items), rtol=1e-6)
    assert fitted.run_.draws["users"].shape == (1, 40, NUM_USERS + 1, 3)
    assert np.all(fitted.run_.draws["precisions"] > 0) and np.all(fitted.run_.draws["rating_precision"] > 0)
    assert fitted.offset_ == pytest.approx(ratings.mean(), rel=1e-5)


def z_score(values, expected):
    """Of the mean of independent values."""
    values = np.asarray(values, np.float64)
    return (values.mean() - expected) / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.law
def test_a_sweep_keeps_the_joint_distribution(seed):
    """Parameters from the prior, ratings from the model, two sweeps: the parameters still have the distribution of the
    prior, and the ratings still belong to them."""
    users, items, size, copies = 5, 3, 2, 4_000
    law = Law(shape=6.0, rate=6.0, noise_shape=6.0, noise_rate=6.0)
    rng = np.random.default_rng([seed, 23])
    pairs = Ratings(rng.integers(0, users - 1, 12), rng.integers(0, items, 12), np.arange(12.0))  # one user has none
    data = gibbs.arranged(pairs, users, items, size)

    def copy(key):
        keys = jax.random.split(key, 8)
        shapes = {"users": (users, size), "items": (items, size), "user_bias": (users,), "item_bias": (items,)}
        params = {"precisions": jax.random.gamma(keys[0], 6.0, (4,)) / 6.0}
        params["rating_precision"] = jax.random.gamma(keys[1], 6.0) / 6.0
        for number, name in enumerate(TABLES):
            params[name] = jax.random.normal(keys[2 + number], shapes[name]) / params["precisions"][number] ** 0.5
        mean = jnp.sum(params["users"][pairs.user] * params["items"][pairs.item], axis=1)
        mean += params["user_bias"][pairs.user] + params["item_bias"][pairs.item]
        values = mean + jax.random.normal(keys[6], (12,)) / params["rating_precision"] ** 0.5
        sides = [side._replace(value=values[side.value.astype(int)]) for side in data[:2]]
        mixed = data._replace(by_user=sides[0], by_item=sides[1])
        params, _ = jax.lax.scan(
            lambda now, key: (gibbs.sweep(law, mixed, now, key), None), params, jax.random.split(keys[7], 2)
        )
        fitted = jnp.sum(params["users"][pairs.user] * params["items"][pairs.item], axis=1)
        fitted += params["user_bias"][pairs.user] + params["item_bias"][pairs.item]
        return params, jnp.sum((values - fitted) ** 2) * params["rating_precision"]

    params, misfit = jax.jit(jax.vmap(copy))(jax.random.split(jax.random.key(seed), copies))
    for number, name in enumerate((*TABLES, "rating_precision")):
        drawn = params["precisions"][:, number] if name in TABLES else params[name]
        assert abs(z_score(drawn, 1.0)) < 5, name
        assert abs(z_score((np.asarray(drawn, np.float64) - 1.0) ** 2, 1 / 6)) < 5, name
        if name in TABLES:  # standardised entries are standard normal
            standard = np.asarray(params[name], np.float64).reshape(copies, -1) ** 2 * np.asarray(drawn)[:, None]
            assert abs(z_score(standard.mean(axis=1), 1.0)) < 5, name
    assert abs(z_score(misfit, 12.0)) < 5


def of_draws(model, user, item):
    """Mean and variance of a new rating for each draw, by hand."""
    p = {name: np.asarray(leaf[0], np.float64) for name, leaf in model.run_.draws.items()}
    lam_u, lam_v, lam_a, lam_b = p["precisions"].T
    mean, variance = np.full(40, model.offset_), 1 / p["rating_precision"]
    new_user, new_item, size = user == NEW_USER, item == NEW_ITEM, p["users"].shape[2]
    u2, v2 = np.sum(p["users"][:, user] ** 2, axis=1), np.sum(p["items"][:, item] ** 2, axis=1)
    if not new_user:
        mean = mean + p["user_bias"][:, user]
    if not new_item:
        mean = mean + p["item_bias"][:, item]
    if new_user and new_item:
        variance = variance + size / (lam_u * lam_v) + 1 / lam_a + 1 / lam_b
    elif new_user:
        variance = variance + v2 / lam_u + 1 / lam_a
    elif new_item:
        variance = variance + u2 / lam_v + 1 / lam_b
    else:
        mean = mean + np.sum(p["users"][:, user] * p["items"][:, item], axis=1)
    return mean, variance


PAIRS = [(0, 0), (7, 11), (NEW_USER, 2), (2, NEW_ITEM), (NEW_USER, NEW_ITEM)]


@pytest.mark.parametrize("pair", PAIRS)
def test_predictions_are_mixtures_over_the_draws(fitted, pair):
    """Mean, both ends of an interval and the log density; a new user or item has its prior."""
    mean, variance = of_draws(fitted, *pair)
    users, items = np.full(2, pair[0]), np.full(2, pair[1])
    found, low, high = fitted.predict(users, items, interval=0.8)
    np.testing.assert_allclose(found, mean.mean(), rtol=1e-4)
    for end, level in ((low[0], 0.1), (high[0], 0.9)):
        assert np.mean(stats.norm.cdf(end, mean, np.sqrt(variance))) == pytest.approx(level, abs=1e-3)
    values = np.array([2.5, 4.0])
    density = stats.norm.pdf(values, mean[:, None], np.sqrt(variance)[:, None]).mean(axis=0)
    np.testing.assert_allclose(fitted.log_predictive(users, items, values), np.log(density), rtol=1e-3, atol=1e-3)


def test_without_ratings_intervals_are_wider(fitted):
    """The mean of a new user is offset + b_j; and less is known than of any other user."""
    items = np.arange(NUM_ITEMS)
    bias = np.asarray(fitted.run_.draws["item_bias"])[0].mean(axis=0)[items]
    mean, low, high = fitted.predict(NEW_USER, items, interval=0.9)
    np.testing.assert_allclose(mean, fitted.offset_ + bias, rtol=1e-4, atol=1e-4)
    _, known_low, known_high = fitted.predict(0, items, interval=0.9)
    assert np.all(high - low > known_high - known_low)


def test_the_mean_rating_is_surer_than_a_rating(fitted):
    """Its interval holds quantiles of the draws' means, where both are known."""
    _, low, high = fitted.predict([0], [1], interval=0.5, of="mean")
    mean, _ = of_draws(fitted, 0, 1)
    assert np.mean(mean < low[0]) == pytest.approx(0.25, abs=0.03)
    assert np.mean(mean < high[0]) == pytest.approx(0.75, abs=0.03)
    _, wide_low, wide_high = fitted.predict([0], [1], interval=0.5)
    assert wide_high[0] - wide_low[0] > high[0] - low[0]


def test_recommendations(fitted):
    found = fitted.recommend(4, 5)
    assert len(found.items) == 5 and np.all(found.items != 12), "what was rated is left out"
    assert np.all(np.diff(found.expected) <= 0) and np.all(found.sd > 0)
    np.testing.assert_allclose(found.expected, fitted.predict(4, found.items), rtol=1e-5)
    for pair, sd in zip(found.items[:2], found.sd, strict=False):
        mean, variance = of_draws(fitted, 4, pair)
        assert sd == pytest.approx(np.sqrt(np.mean(variance) + np.var(mean)), rel=1e-3)
    assert len(fitted.recommend(4, 100, exclude_seen=False).items) == NUM_ITEMS + 1
    assert fitted.recommend(3, 5).items.tolist() == [NEW_ITEM], "all others were rated"


def test_pieces_change_nothing(fitted, changed):
    users, items, ratings = (part[:30] for part in make_ratings())
    whole = (*fitted.predict(users, items, interval=0.9), fitted.log_predictive(users, items, ratings))
    changed(RUNNING, predicted_numbers=40 * 15)
    parts = (*fitted.predict(users, items, interval=0.9), fitted.log_predictive(users, items, ratings))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert fitted.predict([], []).shape == (0,)


@pytest.mark.rotates(2, "long fits")
def test_fixed_precision_and_another_sampler():
    """As in the thesis; sizes are found; the same seed gives the same draws."""
    users, items, ratings = make_ratings()
    steps = {"users": 1e-3, "items": 1e-3, "user_bias": 1e-3, "item_bias": 1e-3}
    options = {"prior": (1, 300), "rating_precision": 3, "sampler": SGLD(steps), "num_samples": 5, "seed": 7}
    runs = [BPMF(2, **options).fit(users, items, ratings, num_epochs=60, progress=False) for _ in range(2)]
    assert (runs[0].num_users_, runs[0].num_items_) == (NUM_USERS, NUM_ITEMS)
    assert "rating_precision" not in runs[0].run_.draws
    np.testing.assert_array_equal(runs[0].run_.draws["users"], runs[1].run_.draws["users"])
    _, low, high = runs[0].predict([0], [0], interval=0.9)
    assert high[0] - low[0] > 2 * 1.64 / np.sqrt(3)


def test_it_follows_scikit_learns_conventions():
    model = BPMF(5, seed=3)
    assert model.get_params()["num_factors"] == 5 and repr(model) == "BPMF(num_factors=5, seed=3)"
    assert BPMF(**model.get_params()).get_params() == model.get_params()


# -- ids of any kind ---------------------------------------------------------------------------------------------------


def named(numbers, kind):
    """Ids that sort as the numbers do."""
    if kind == "strings":
        return np.array([f"id {number:03}" for number in np.atleast_1d(numbers)])
    if kind == "bytes":  # they are texts
        return np.char.encode(named(numbers, "strings"))
    return np.atleast_1d(numbers).astype(np.int64) + {"far": 200_000, "very far": 10**12}[kind]


@pytest.mark.parametrize("kind", ["strings", "bytes", "far", "very far"])
def test_ids_of_any_kind_are_numbered_and_remembered(kind, tmp_path):
    users, items, ratings = make_ratings()
    options = {"num_epochs": 50, "progress": False}
    plain = BPMF(2, num_samples=5).fit(users, items, ratings, **options)
    model = BPMF(2, num_samples=5).fit(named(users, kind), named(items, kind), ratings, **options)
    assert (model.num_users_, model.num_items_) == (NUM_USERS, NUM_ITEMS)
    model.save(tmp_path / "model")
    for fitted in (model, BPMF.load(tmp_path / "model")):
        np.testing.assert_array_equal(
            fitted.predict(named([3, 7], kind), named([2, 5], kind)), plain.predict([3, 7], [2, 5])
        )
        found, expected = fitted.recommend(named(4, kind)[0], 3), plain.recommend(4, 3)
        assert found.items.tolist() == named(expected.items, "strings" if kind == "bytes" else kind).tolist()
        with pytest.raises(InvalidValueError, match=r"pair 1 has the user .*no rating in the fit"):
            fitted.predict(named([3, 99], kind), named([2, 2], kind))
        with pytest.raises(InvalidTypeError, match="in the fit, and are"):
            fitted.predict(np.array([3]) if kind in ("strings", "bytes") else ["ann"], named(2, kind))


@pytree_dataclass
class Own(SGLD):
    """A sampler of a user."""


def test_a_saved_model_has_its_sampler_and_one_of_your_own_is_passed_again(tmp_path):
    users, items, ratings = make_ratings()
    options = {"num_samples": 5, "num_chains": 1}
    steps = dict.fromkeys(("users", "items", "user_bias", "item_bias", "rating_precision"), 1e-3)
    for sampler in (SGLD(steps), Own(1e-3)):
        model = BPMF(2, sampler=sampler, **options).fit(users, items, ratings, num_epochs=5, progress=False)
        model.save(tmp_path / "model", overwrite=True)
        again = BPMF.load(tmp_path / "model")
        if type(sampler) is Own:  # a file contains no code
            assert again.sampler is None
            again = BPMF.load(tmp_path / "model", sampler=sampler)
        assert again.get_params() == model.get_params()
        np.testing.assert_array_equal(again.predict(users[:5], items[:5]), model.predict(users[:5], items[:5]))


def test_a_missing_id_is_named():
    with pytest.raises(InvalidValueError, match=r"`users` has a missing id in row 1 \(None\)"):
        BPMF(2).fit(["ann", None], [0, 1], [1.0, 2.0], progress=False)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "items", "ratings", "kind", "message"),
    [
        ([0, 1], [0, 1700], [3.0, 4.0], InvalidValueError, "rating 1 has the item 1700, beyond the 1682 declared"),
        ([0, -1], [0, 1], [3.0, 4.0], InvalidValueError, "rating 1 has the user -1; ids start at 0"),
        ([0, 1], [0, 1], [3.0, np.nan], InvalidValueError, "rating 1 is nan; 1 of 2 are not finite"),
        ([0, 1, 2], [0, 1], [3.0, 4.0], InvalidValueError, "users has 3, items has 2, ratings has 2"),
        (
            ["ann", "bob"],
            [0, 1],
            [3.0, 4.0],
            InvalidTypeError,
            r"integers from 0 on, because num_users is declared .* got 'ann'",
        ),
        (
            [0.0, 1.0],
            [0, 1],
            [3.0, 4.0],
            InvalidTypeError,
            r"integers or strings, got float64\. Use users\.astype\(int\)",
        ),
        ([0, 1], [0, 1], ["good", "bad"], InvalidTypeError, "`ratings` must be numbers"),
        ([], [], [], InvalidValueError, "`ratings` is empty"),
        ([[0, 1]], [0, 1], [3.0, 4.0], InvalidValueError, r"one per rating; got shape \(1, 2\)"),
    ],
)
def test_bad_ratings(users, items, ratings, kind, message):
    model = BPMF(2, num_users=943, num_items=1_682)
    ratings = np.asarray(ratings) if ratings else np.zeros(0)
    with pytest.raises(kind, match=message):
        model.fit(users, items, ratings, progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_factors": 0}, "`num_factors` must be at least 1"),
        ({"prior": 3.0}, "`prior` of BPMF must be a pair"),
        ({"prior": (1.0, -1.0)}, "`rate` of prior must be finite and > 0"),
        ({"rating_precision": "draw"}, "`rating_precision` must be one of 'sample'"),
        ({"rating_precision": -3.0}, "`rating_precision` of BPMF must be finite and > 0"),
        ({"num_burnin": 1.0}, "`num_burnin` must be a number of steps \\(int\\) or a fraction of the run below 1"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(InvalidValueError, match=message):
        BPMF(**options).fit([0, 1], [0, 1], [3.0, 4.0], progress=False)


def test_wrong_questions(fitted):
    with pytest.raises(NotFittedError, match="this BPMF is not fitted yet: call fit"):
        BPMF().predict([0], [0])
    with pytest.raises(InvalidValueError, match=f"has the user 99, beyond the {NUM_USERS + 1} declared"):
        fitted.predict([99], [0])
    with pytest.raises(InvalidValueError, match="`interval` must be between 0 and 1"):
        fitted.predict([0], [0], interval=90)
    with pytest.raises(InvalidValueError, match="`of` must be one of 'rating', 'mean'"):
        fitted.predict([0], [0], interval=0.9, of="noise")
    with pytest.raises(InvalidValueError, match="users has 2, items has 3"):
        fitted.predict([0, 1], [0, 1, 2])


def test_ratings_on_another_scale_are_noted():
    with pytest.warns(SciroccoWarning, match=r"standard deviation 50; .*divide"):
        check_triples([0, 1], [0, 1], [0.0, 100.0], None, None)


def test_a_chain_that_still_moves_is_noted():
    model = BPMF(3, sampler=SGLD(1e-6), num_samples=60, batch_size=300)  # by gradients
    with pytest.warns(SciroccoWarning, match=r"BPMF have not converged: R-hat of `.*larger `num_epochs`"):
        model.fit(*make_ratings(), num_epochs=30, progress=False)


def test_a_stopped_fit_is_taken_up_bit_for_bit(fitted, tmp_path):
    def stop_half_way(report):
        if report.step > 100:
            report.stop()

    with RUNNING.changed(second_chunk=30, chunk_seconds=1e-9):
        part = fit(store=tmp_path / "fit", callbacks=[stop_half_way])
    assert part.run_.status == "stopped" and part.run_.num_draws < 40
    again = fit(store=tmp_path / "fit", resume=True)
    for name, draws in fitted.run_.draws.items():
        np.testing.assert_array_equal(np.asarray(again.run_.draws[name]), draws)
