"""`sc.models.DPMixture` as its users meet it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

pytest.importorskip("numba", reason="mixtures need numba (the extra `compiled`)")

import partitions
import scirocco as sc
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.dp import DPMixture, Gamma, Gaussian, Multinomial
from scirocco_latent.dp.prediction import ends, weighted_quantiles

pytestmark = pytest.mark.compile


def clustered(rng: np.random.Generator, kind: str, num_rows: int = 600, num_clusters: int = 4) -> Any:
    """Rows of well separated clusters, and their clusters."""
    labels = rng.integers(0, num_clusters, num_rows)
    if kind == "multinomial":
        shares = np.full((num_clusters, 3 * num_clusters), 0.002)
        for k in range(num_clusters):
            shares[k, 3 * k : 3 * k + 3] = 1.0
        shares /= shares.sum(axis=1, keepdims=True)
        return np.array([rng.multinomial(12, shares[label]) for label in labels]), labels
    centres = 12.0 * np.arange(num_clusters)[:, None] + np.array([[0.0, 5.0, -3.0]])
    return centres[labels] + rng.standard_normal((num_rows, 3)), labels


@pytest.fixture(scope="module")
def fitted() -> Any:
    X, labels = clustered(np.random.default_rng(3), "multinomial")
    return DPMixture(seed=2, batch_size=200, num_chains=2).fit(X, num_epochs=60, progress=False), X, labels


# -- clusters --------------------------------------------------------------------------------------------------------


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kind", ["multinomial", "gaussian"])
@pytest.mark.parametrize("sampler", ["collapsed", "gibbs", "scir"])
def test_finds_separated_clusters(kind: str, sampler: str, seed: int) -> None:
    X, labels = clustered(np.random.default_rng(seed), kind)
    mixture = DPMixture(kind, sampler=sampler, seed=seed, batch_size=150, initial_clusters=12)
    found = mixture.fit_predict(X, num_epochs=120, progress=False)
    assert partitions.adjusted_rand_index(found, labels) > 0.85
    if sampler == "collapsed":
        assert partitions.adjusted_rand_index(found, labels) > 0.97
        low, high = mixture.num_clusters(interval=0.9)
        assert low <= 4 <= high


@pytest.mark.rotates(2)
@pytest.mark.parametrize("kind", ["multinomial", "gaussian"])
def test_eight_clusters_of_four_thousand_rows(kind: str, seed: int) -> None:
    X, labels = clustered(np.random.default_rng(seed), kind, 4_000, 8)
    mixture = DPMixture(kind, seed=seed).fit(X, progress=False)
    assert partitions.adjusted_rand_index(mixture.predict(X), labels) >= 0.95
    low, high = mixture.num_clusters(interval=0.9)
    assert low <= 8 <= high


def test_draws_are_clusters_by_falling_weight(fitted: Any) -> None:
    mixture = fitted[0]
    weights, rest = mixture.run_.draws["weights"], mixture.run_.draws["rest"]
    assert weights.shape == (2, 50, 100) and mixture.run_.draws["components"].shape == (2, 50, 100, 12)
    assert np.all(np.diff(weights, axis=2) <= 0)
    np.testing.assert_allclose(weights.sum(axis=2) + rest, 1.0, rtol=1e-5)
    assert np.array_equal((weights > 0).sum(axis=2), mixture.num_clusters())
    sums = mixture.run_.draws["components"].sum(axis=3)
    np.testing.assert_allclose(sums[weights > 0], 1.0, rtol=1e-5)


def test_means_are_of_the_clusters_that_predict_names(fitted: Any) -> None:
    mixture, X, labels = fitted
    found = mixture.predict(X)
    for label in np.unique(labels):
        name = found[labels == label][0]
        share = X[labels == label].sum(axis=0) / X[labels == label].sum()
        np.testing.assert_allclose(mixture.components_[name], share, atol=0.02)
        assert abs(mixture.weights_[name] - np.mean(labels == label)) < 0.06
    with pytest.raises(AttributeError, match="components_, not means_"):
        mixture.means_  # noqa: B018


def test_clusters_have_intervals(fitted: Any) -> None:
    found = fitted[0].clusters(interval=0.8)
    assert [row.weight for row in found] == sorted((row.weight for row in found), reverse=True)
    assert all(row.low <= row.weight <= row.high for row in found[:4])
    assert len({row.label for row in found}) == len(found)


def test_co_clustering_is_of_labels(fitted: Any) -> None:
    mixture, X, labels = fitted
    together = mixture.co_clustering(X[:50])
    assert np.array_equal(together > 0.5, np.equal.outer(labels[:50], labels[:50]))
    np.testing.assert_allclose(mixture.co_clustering(X[:5], X[5:50]), together[:5, 5:], atol=1e-12)
    np.testing.assert_array_equal(mixture.co_clustering(np.arange(50)), together)
    with pytest.raises(InvalidValueError, match="0 to 599"):
        mixture.co_clustering([1, 600])


def test_probabilities(fitted: Any) -> None:
    mixture, X, _ = fitted
    shares = mixture.predict_proba(sp.csr_array(X))
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert np.array_equal(shares.argmax(axis=1), mixture.predict(X))
    assert np.array_equal(mixture.labels_, mixture.predict(X))


# -- predictive density ----------------------------------------------------------------------------------------------


@pytest.mark.rotates(2)
@pytest.mark.parametrize("sampler", ["collapsed", "gibbs", "scir"])
@pytest.mark.parametrize("kind", ["multinomial", "gaussian"])
def test_predictive_density_is_the_exact_one(kind: str, sampler: str, seed: int) -> None:
    """Against the sum over all partitions of four rows."""
    rng, alpha = np.random.default_rng(seed), 0.8
    base: Any = Multinomial(0.7) if kind == "multinomial" else Gaussian(mean=0.2, strength=0.4, rate=0.5)
    X, new = rng.poisson(1.0, (4, 3)) + np.eye(4, 3, dtype=int), np.array([[1, 2, 0], [0, 0, 3]])
    if kind == "gaussian":
        X, new = rng.standard_normal((4, 2)), rng.standard_normal((2, 2))
    mixture = DPMixture(base, sampler=sampler, concentration=alpha, batch_size=3, seed=seed, initial_clusters=2)
    family = base.resolve(X)
    rows, others = family.rows(X), family.rows(np.concatenate([X, new]))
    exact = np.zeros(2)
    for labels, probability in partitions.posterior(family, rows, alpha).items():
        groups = [[i for i in range(4) if labels[i] == k] for k in range(max(labels) + 1)]
        for place in range(2):
            parts = [alpha * math.exp(partitions.log_evidence(family, others, [4 + place]))]
            for group in groups:
                ratio = partitions.log_evidence(family, others, [*group, 4 + place])
                parts.append(len(group) * math.exp(ratio - partitions.log_evidence(family, others, group)))
            exact[place] += probability * sum(parts) / (4 + alpha)
    chain, found = mixture.chain(X), []
    chain.advance(50)
    wanted = family.rows(new)
    for _ in range(2000):
        chain.advance(1)
        draw, _ = chain.kept()
        found.append(np.exp(sc.models.dp.prediction.log_predictive(family, wanted, draw)))
    assert partitions.furthest(found, exact) < 5.5


def test_log_predictive_averages_densities(fitted: Any) -> None:
    mixture, X, _ = fitted
    from scirocco_latent.dp.prediction import log_predictive

    rows = mixture._family.rows(X[:20])
    each = [log_predictive(mixture._family, rows, mixture._draw(number)) for number in range(100)]
    np.testing.assert_allclose(mixture.log_predictive(X[:20]), np.log(np.mean(np.exp(each), axis=0)))
    assert mixture.score(X) == pytest.approx(mixture.log_predictive(X).mean())


def test_empty_rows_take_no_part(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 200)
    some = np.insert(X, [0, 50, 200], 0, axis=0)
    how: dict[str, Any] = {"num_epochs": 10, "progress": False}
    plain, with_empty = DPMixture(seed=seed).fit(X, **how), DPMixture(seed=seed).fit(some, **how)
    assert np.array_equal(plain.run_.draws["components"], with_empty.run_.draws["components"])
    assert with_empty.log_predictive(np.zeros((1, 12), int))[0] == pytest.approx(0.0, abs=1e-6)
    assert with_empty.predict(some).shape == (203,)


# -- runs ------------------------------------------------------------------------------------------------------------

KINDS = [
    {"sampler": "collapsed"},
    {"sampler": "gibbs"},
    {"sampler": "scir"},
    {"sampler": "scir", "counts": "estimated"},
    {"sampler": "scir_cv", "refresh_size": 100},
    {"sampler": "sgrld"},
    {"base": "gaussian", "sampler": "collapsed"},
    {"base": "gaussian", "sampler": "scir", "counts": "estimated"},
    {"base": "gaussian", "sampler": "gibbs", "device": "jax"},
]


def names(options: dict[str, Any]) -> str:
    return "-".join(map(str, options.values()))


@pytest.mark.rotates(2)
@pytest.mark.parametrize("options", KINDS, ids=names)
def test_gone_on_with_is_as_never_stopped(options: dict[str, Any], tmp_path: Any, seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), options.get("base", "multinomial"), 150)
    made = {"batch_size": 40, "num_samples": 20, "num_chains": 2, "seed": seed, "keep_clusters": 40, **options}
    whole = DPMixture(**made).fit(X, num_steps=80, progress=False)

    def stop(report: Any) -> None:
        if report.step >= 44:
            report.stop()

    where = tmp_path / "run"
    part = DPMixture(**made).fit(X, num_steps=80, progress=False, store=where, callbacks=[stop])
    assert 0 < part.run_.num_draws < 20
    again = DPMixture(**made).fit(X, num_steps=80, progress=False, store=where, resume=True)
    for name, values in whole.run_.draws.items():
        assert np.array_equal(np.asarray(again.run_.draws[name]), values), name
    loaded = DPMixture.load(where)
    np.testing.assert_array_equal(loaded.log_predictive(X[:9]), whole.log_predictive(X[:9]))
    assert loaded.get_params() == whole.get_params()
    with pytest.raises(InvalidValueError, match="data"):
        DPMixture(**made).fit(X[:-1], num_steps=80, progress=False, store=where, resume=True)


def test_arrays_with_too_few_components_make_the_same_chain(seed: int, tmp_path: Any) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 40)
    made = DPMixture(sampler="gibbs", device="jax", initial_clusters=3, num_samples=4, seed=seed)
    few, many = made.chain(X), made.chain(X)
    few.place(few.labels[few.order], few.alpha, 4)
    for chain in (few, many):
        chain.advance(12)
    assert len(few.sizes) > 4
    np.testing.assert_array_equal(few.labels, many.labels)
    # a run of compiled kernels stays one, unless arrays are asked for
    how: dict[str, Any] = {"num_steps": 20, "progress": False, "store": tmp_path / "run"}
    DPMixture(sampler="gibbs", num_samples=4, seed=seed).fit(X, **how)
    with pytest.raises(InvalidValueError, match='resume it with device="cpu"'):
        DPMixture(sampler="gibbs", num_samples=4, seed=seed, device="jax").fit(X, **how, resume=True)


@pytest.mark.parametrize("options", KINDS[1:4], ids=names)
def test_the_same_bits_for_any_number_of_threads(options: dict[str, Any], changed: Any, seed: int) -> None:
    from scirocco_latent.dp.slices import SLICING

    changed(SLICING, threaded=0)
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 700)
    how: dict[str, Any] = {"num_steps": 8, "progress": False}
    made = [DPMixture(seed=seed, num_threads=n, **options).fit(X, **how).run_.draws["components"] for n in (1, 2)]
    assert np.array_equal(*made)


def test_chains_differ_and_arviz_reads_them(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 100)
    run = DPMixture(num_chains=2, seed=seed).fit(X, num_epochs=20, progress=False).run_
    assert not np.array_equal(run.draws["components"][0], run.draws["components"][1])
    assert run.to_arviz()["sample_stats"]["num_clusters"].shape == (2, 10)


def test_saved_and_loaded(fitted: Any, tmp_path: Any) -> None:
    mixture, X, _ = fitted
    mixture.save(tmp_path / "model")
    loaded = DPMixture.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X), mixture.predict(X))
    assert repr(loaded) == repr(mixture)
    with pytest.raises(InvalidValueError, match="pass the rows themselves"):
        loaded.co_clustering([0, 1])
    real = DPMixture(Gaussian(shape=1.5), concentration=Gamma(2.0, 3.0), seed=np.int64(3)).fit(
        np.random.default_rng(0).standard_normal((40, 2)), num_epochs=3, progress=False
    )
    real.save(tmp_path / "real")
    again = DPMixture.load(tmp_path / "real")
    assert (
        again.base == real.base
        and again.seed == 3
        and isinstance(again.seed, int)
        and tuple(again.concentration) == (2.0, 3.0)
    )
    np.testing.assert_array_equal(again.means_, real.means_)


def test_rows_that_come_later(seed: int) -> None:
    X, labels = clustered(np.random.default_rng(seed), "multinomial", 900)
    mixture = DPMixture(seed=seed, batch_size=100, num_samples=5, num_chains=2)
    for part in np.split(np.arange(900), [300, 500, 700]):
        mixture.partial_fit(X[part])
    for _ in range(5):
        mixture.partial_fit(X[:1])
    mixture.partial_fit(np.zeros((2, 12), int))  # says nothing
    chain = mixture._online[0]
    assert chain.labels.shape == (905,) and chain.labels.min() >= 0
    assert mixture.draws_["rest"].shape == (2, 5) and mixture.run_.configuration["num_rows"] == 905
    assert partitions.adjusted_rand_index(mixture.predict(X), labels) > 0.9
    sizes = np.bincount(chain.labels, minlength=len(chain.clusters[0]))
    assert np.array_equal(sizes, chain.clusters[0][: len(sizes)])
    assert chain.clusters[2].sum() == X.sum() + 5 * X[0].sum()


def test_interrupted_in_burn_in_leaves_the_older_fit(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 100)
    mixture = DPMixture(seed=seed).fit(X, num_epochs=10, progress=False)
    before = mixture.log_predictive(X[:3])

    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.warns(match="interrupted"):
        mixture.fit(X, num_epochs=500, progress=False, callbacks=[stop])
    np.testing.assert_array_equal(mixture.log_predictive(X[:3]), before)


def test_more_clusters_than_a_draw_keeps(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 200)
    with pytest.warns(sc.errors.SciroccoWarning, match="keep_clusters="):
        mixture = DPMixture(seed=seed, keep_clusters=2).fit(X, num_epochs=20, progress=False)
    weights, rest = (mixture.run_.draws[name] for name in ("weights", "rest"))
    np.testing.assert_allclose(weights.sum(axis=2) + rest, 1.0, rtol=1e-5)


def test_room_for_clusters_grows(seed: int) -> None:
    """Far more clusters than slots at the beginning, and the counts stay those of the labels."""
    rng = np.random.default_rng(seed)
    X = np.eye(60, dtype=int)[rng.integers(0, 60, 400)] * 9
    for options in ({"sampler": "collapsed"}, {"sampler": "scir"}):
        mixture = DPMixture(Multinomial(0.05), concentration=20.0, initial_clusters=1, seed=seed, **options)
        chain = mixture.chain(X)
        chain.advance(30)
        assert chain.num_clusters > 20
        table = np.zeros_like(chain.clusters[2])
        indptr, indices, counts = chain.data
        np.add.at(table, (indices, np.repeat(chain.labels, np.diff(indptr))), counts)
        assert np.array_equal(table, chain.clusters[2])


def test_validation_is_scored(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 100)
    run = DPMixture(seed=seed).fit(X, num_epochs=10, validation=X[:20], progress=False).run_
    assert run.scores and math.isfinite(run.scores[-1][1]["log_predictive"])


def test_columns_have_the_names_of_a_data_frame(seed: int, tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(np.random.default_rng(seed).normal(size=(40, 2)), columns=["wide", "high"])
    how: dict[str, Any] = {"num_epochs": 5, "progress": False}
    named = DPMixture("gaussian", num_samples=2, num_chains=1, seed=seed).fit(X, store=tmp_path / "run", **how)
    for model in (named, DPMixture.load(tmp_path / "run")):
        assert model.feature_names_in_.tolist() == model.column_names() == ["wide", "high"]
        model.predict(X)
        with pytest.raises(InvalidValueError, match="begin with high, wide, and those of the fit with wide, high"):
            model.predict(X[["high", "wide"]])
    plain = DPMixture("gaussian", num_samples=2, num_chains=1, seed=seed).fit(X.to_numpy(), **how)
    assert plain.column_names() == ["column 0", "column 1"] and not hasattr(plain, "feature_names_in_")
    assert plain.column_names(["a", 2]) == ["a", "2"]
    with pytest.raises(InvalidValueError, match="one name per column"):
        plain.fit(X, names=["a"], **how)


def test_works_in_scikit_learn(seed: int) -> None:
    base = pytest.importorskip("sklearn.base")
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 100)
    copy = base.clone(DPMixture(batch_size=50, concentration=2.0))
    assert copy.get_params()["concentration"] == 2.0
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    steps = make_pipeline(StandardScaler(), DPMixture("gaussian"))
    steps.fit(X, dpmixture__num_epochs=5, dpmixture__progress=False)
    assert steps.predict(X).shape == (100,)


# -- numbers that are hard -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["collapsed", "gibbs"])
def test_long_rows_find_their_cluster(sampler: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(400, 0.5), 2)
    X = np.concatenate([rng.multinomial(3000, share, 20) for share in shares])
    mixture = DPMixture(sampler=sampler, seed=seed, initial_clusters=2, concentration=1.0)
    found = mixture.fit_predict(X, num_epochs=60, progress=False)
    assert len(set(found[:20])) == len(set(found[20:])) == 1 and found[0] != found[-1]


def test_long_rows_are_labelled_by_their_whole_length(seed: int) -> None:
    """Of two components the second is behind by 10⁻⁴⁰⁰ in the first columns, and ahead by 10⁴⁰⁰ in the end."""
    from scirocco_latent.dp.chain import row_kernels

    shares = np.full((40, 2), 1.0)
    shares[:20, 1], shares[20:, 0] = 1e-5, 1e-5
    X = np.concatenate([np.full(20, 4), np.full(20, 8)])[None]
    family = Multinomial().resolve(X)
    chosen = np.empty(1, np.int32)
    row_kernels("multinomial").allocate(
        *(np.array([0]), family.rows(X).data, (shares, shares / shares.sum(axis=0)), np.array([0.5, 0.4])),
        *(np.array([0.1]), np.zeros(1, np.int32), chosen, 2, np.array([seed, 1], np.uint64), 0, 1),
    )
    assert chosen[0] == 1


def test_long_rows_have_the_weights_of_logarithms(seed: int) -> None:
    from scirocco_latent.dp._counts import weigh
    from scirocco_latent.dp.chain import collapsed_kernels

    rng = np.random.default_rng(seed)
    family = Multinomial(0.3).resolve(np.ones((1, 50), int))
    for size in (3, 40, 60, 2000, 10**6):
        X = rng.multinomial(size, rng.dirichlet(np.full(50, 0.3)), 7)
        rows, clusters = family.rows(X), family.clusters(4)
        labels = np.array([0, 0, 0, 1, 1, 2, -1], np.int32)
        collapsed_kernels().count_all(rows.data, labels, clusters)
        weights, space = np.array([3.0, 2.0, 1.0, 0.7]), np.empty((3, 4))
        weigh(6, rows.data, clusters, 4, weights, space)
        logs = []
        for k, group in enumerate(([0, 1, 2], [3, 4], [5], [])):
            both = partitions.log_evidence(family, rows, [*group, 6]) - partitions.log_evidence(family, rows, group)
            logs.append(both + math.log([3.0, 2.0, 1.0, 0.7][k]))
        shares = np.exp(np.array(logs) - max(logs))
        np.testing.assert_allclose(weights / weights.sum(), shares / shares.sum(), rtol=1e-5, atol=1e-12)


def test_real_rows_far_from_zero(seed: int) -> None:
    X, labels = clustered(np.random.default_rng(seed), "gaussian", 300)
    near, far = (DPMixture("gaussian", seed=seed).fit(X + away, num_epochs=60, progress=False) for away in (0, 1e7))
    assert far.score(X + 1e7) == pytest.approx(near.score(X), abs=0.1)
    assert partitions.adjusted_rand_index(far.predict(X + 1e7), labels) > 0.97


def test_a_small_cluster_has_its_own_label(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "gaussian", 8000)
    X = np.concatenate([X, np.random.default_rng(seed + 1).standard_normal((12, 3)) + 200.0])
    mixture = DPMixture("gaussian", seed=seed).fit(X, num_epochs=40, progress=False)
    found = mixture.predict(X)
    assert len(set(found[-12:])) == 1 and found[-1] not in found[:-12]
    assert mixture.weights_[found[-1]] == pytest.approx(12 / 8012, abs=0.003)


def test_means_follow_their_precisions(seed: int) -> None:
    """SCIR of real rows with labels held: κ'τ(μ - μ')² has the mean 1 for any step size."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3, 400))
    base = Gaussian(mean=0.0, strength=0.5, shape=0.5, rate=1.0)
    chain = DPMixture(base, sampler="scir", step_size=0.3, initial_clusters=1, seed=seed).chain(X)
    kappa, mean, _, _ = chain.family.posterior(chain.clusters, np.array([0]))
    found = []
    for number in range(400):
        chain.move_components(1.0, chain.batch_counts, 1.0, (1, 0.3), np.array([seed, number], np.uint64))
        means, precisions = chain.parameters[0][:, 0], chain.parameters[1][:, 0]
        found.append([np.mean(kappa * precisions * (means - mean[:, 0]) ** 2)])
    assert partitions.furthest(found[40:], [1.0]) < 5.5


def test_concentration_near_zero_is_as_by_the_collapsed_sampler(seed: int) -> None:
    """A prior that allows tiny α: quartiles of log α from both exact samplers."""
    X, found = np.full((6, 1), 2), {}
    for sampler in ("collapsed", "gibbs"):
        chain = DPMixture(sampler=sampler, concentration=(0.2, 1.0), initial_clusters=1, seed=seed).chain(X)
        draws = []
        for _ in range(6000):
            chain.advance(1)
            draws.append(chain.alpha)
        found[sampler] = np.log(draws)
    limits = np.quantile(found["collapsed"], [0.25, 0.5, 0.75])
    shares = [np.array([value < limits for value in draws], float) for draws in found.values()]
    spread = [share.reshape(40, -1, 3).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(40) for share in shares]
    away = np.abs(shares[0].mean(axis=0) - shares[1].mean(axis=0))
    assert np.all(away < 5.5 * np.hypot(*spread))


def test_batches_are_of_one_size(seed: int) -> None:
    chain = DPMixture(batch_size=50, seed=seed).chain(np.ones((101, 2), int))
    batches = []
    for _ in range(3):
        batches.append(chain.batch())
        chain.advance(1)
    assert [len(batch) for batch in batches] == [33, 34, 34]
    assert sorted(np.concatenate(batches)) == list(range(101))


def test_reference_of_control_variates_is_of_its_rows(seed: int) -> None:
    X, _ = clustered(np.random.default_rng(seed), "multinomial", 400)
    chain = DPMixture(sampler="scir_cv", refresh_every=1, refresh_size=90, batch_size=50, seed=seed).chain(X)
    for _ in range(20):
        chain.advance(1)
        assert chain.reference[0][: chain.num].sum() <= 90
        assert chain.reference[0].sum() <= 90


# -- priors ----------------------------------------------------------------------------------------------------------


def test_rows_that_say_nothing_leave_the_law_of_the_process(seed: int) -> None:
    """One category: every row is alike in every cluster, so labels have the prior law of a Chinese restaurant."""
    X, alpha = np.ones((12, 1), int), 1.7
    chain = DPMixture(concentration=alpha, batch_size=5, seed=seed, initial_clusters=3).chain(X)
    found = []
    for _ in range(6000):
        chain.advance(1)
        found.append(chain.num_clusters == np.arange(1, 8))
    assert partitions.furthest(found, partitions.law_of_num_clusters(12, alpha)[1:8]) < 5.5


def test_concentration_has_its_posterior(seed: int) -> None:
    """Given the partition: p(α | k, N) ∝ p(α) α^k Γ(α)/Γ(α + N)."""
    from scirocco_latent.dp.settings import Gamma, given_partition

    rng, alpha, found = np.random.default_rng(seed), 1.0, []
    for _ in range(20_000):
        alpha = given_partition(rng, alpha, Gamma(2.0, 0.5), 7, 100)
        found.append([alpha, math.log(alpha), alpha > 2.0])
    grid = np.exp(np.linspace(-8, 5, 20_000))
    logs = stats.gamma(2.0, scale=2.0).logpdf(grid) + 7 * np.log(grid)
    logs += np.array([math.lgamma(a) - math.lgamma(a + 100) for a in grid]) + np.log(grid)  # log-spaced
    law = np.exp(logs - logs.max())
    law /= law.sum()
    assert partitions.furthest(found, [law @ grid, law @ np.log(grid), law @ (grid > 2.0)]) < 5.5


# -- wrong inputs ----------------------------------------------------------------------------------------------------

GOOD = np.array([[1, 0, 2], [0, 3, 1], [2, 2, 0]])
WRONG_ROWS = {
    "negative": (np.array([[1, -1, 0]]), "row 0, column 1 holds -1"),
    "fractional": (np.array([[1.0, 0.5, 0]]), "holds 0.5"),
    "not a number": (np.array([[1.0, np.nan, 0]]), "holds nan"),
    "infinite": (np.array([[1.0, np.inf, 0]]), "holds inf"),
    "sparse and negative": (sp.csr_array(np.array([[0, 0, -2.0]])), "row 0, column 2 holds -2"),
    "one dimension": (np.array([1, 2]), "one row per observation"),
    "words": (np.array([["a", "b"]]), "must hold numbers"),
    "no rows": (np.empty((0, 3)), "is empty"),
    "all empty": (np.zeros((4, 3), int), "all 4 rows are empty"),
    "huge": (np.array([[1, 2.0**40, 0]]), "column 1 sum to"),
    "huge in all": (np.array([[2**30, 1], [2**30, 1]]), "column 0 sum to"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows(name: str) -> None:
    X, words = WRONG_ROWS[name]
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        DPMixture().fit(X, num_steps=1, progress=False)


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "base": ({"base": "poisson"}, "multinomial"),
    "base of another type": ({"base": 3}, "`base` must be"),
    "sampler": ({"sampler": "hmc"}, "collapsed"),
    "concentration": ({"concentration": -1.0}, "concentration"),
    "prior": ({"concentration": (1.0, 0.0)}, "concentration"),
    "three numbers": ({"concentration": (1, 2, 3)}, "Gamma"),
    "batch": ({"batch_size": 0}, "batch_size"),
    "clusters": ({"initial_clusters": 0}, "initial_clusters"),
    "step of an exact sampler": ({"step_size": 0.1}, "no step size"),
    "estimated and exact": ({"counts": "estimated"}, "keeps the counts"),
    "kept and reduced": ({"sampler": "scir_cv", "counts": "kept"}, "scir"),
    "step": ({"sampler": "sgrld", "step_size": -0.1}, "step"),
    "burn-in": ({"num_burnin": 1.0}, "num_burnin"),
    "negative burn-in": ({"num_burnin": -1}, "num_burnin"),
    "thin": ({"thin": 0}, "thin"),
    "draws": ({"num_samples": 0}, "num_samples"),
    "prior of components": ({"base": Multinomial(0.0)}, "concentration"),
    "flat": ({"base": Multinomial(1e12)}, "at most"),
    "threads": ({"num_threads": 0}, "num_threads"),
    "device": ({"device": "tpu"}, "device"),
    "device of a sampler": ({"device": "jax"}, 'requires sampler="gibbs"'),
    "no device": ({"sampler": "gibbs", "device": "gpu"}, "no accelerator"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_wrong_options(name: str) -> None:
    options, words = WRONG_OPTIONS[name]
    with pytest.raises((InvalidValueError, InvalidTypeError), match=words):
        DPMixture(**options).fit(GOOD, num_steps=2, progress=False)


def test_other_wrong_uses(fitted: Any) -> None:
    mixture, X, _ = fitted
    with pytest.raises(InvalidValueError, match="13 categories, but the model was fitted with 12"):
        mixture.log_predictive(np.ones((2, 13), int))
    with pytest.raises(InvalidValueError, match="fitted with 12"):
        mixture.predict(np.ones((2, 11), int))
    with pytest.raises(InvalidValueError, match="call fit"):
        DPMixture().predict(X)
    assert not hasattr(DPMixture(), "weights_")
    with pytest.raises(InvalidValueError, match="interval"):
        mixture.num_clusters(interval=1.5)
    for call in (mixture.num_clusters, mixture.clusters, mixture.intervals):
        with pytest.raises(InvalidValueError, match=r"99.99 % requires at least \d+ draws"):
            call(interval=0.9999)
    with pytest.raises(InvalidValueError, match="collapsed"):
        DPMixture(sampler="gibbs").partial_fit(X)
    for sampler in ("scir_cv", "sgrld"):
        with pytest.raises(InvalidValueError, match="multinomial"):
            DPMixture("gaussian", sampler=sampler).fit(np.eye(3), num_steps=1, progress=False)
    with pytest.raises(InvalidValueError, match="column 1 is constant"):
        DPMixture("gaussian").fit(np.array([[1.0, 0.1], [2.0, 0.1], [3.0, 0.1]]), num_steps=1, progress=False)
    with pytest.raises(InvalidValueError, match=r"collapsed"):
        DPMixture(sampler="gibbs", concentration=1e5).fit(X, num_steps=1, progress=False)
    with pytest.warns(sc.errors.SciroccoWarning, match="GiB of memory"):
        DPMixture(keep_clusters=500_000).fit(X[:2], num_steps=1, progress=False)
    with pytest.raises(InvalidValueError, match="holds nan"):
        DPMixture("gaussian").fit(np.array([[1.0, np.nan], [2.0, 2.0]]), num_steps=1, progress=False)
    with pytest.raises(InvalidValueError, match="baker2018"):
        DPMixture.preset("baker")


# -- intervals of parameters ------------------------------------------------------------------------------------------


def test_weighted_quantiles_are_those_of_repeated_values(seed):
    rng = np.random.default_rng(seed)
    values, counts = rng.normal(size=(30, 2, 3)), rng.integers(0, 4, (30, 2))
    found = weighted_quantiles(values, counts.astype(float), (0.1, 0.9))
    for cluster in range(2):
        repeated = np.repeat(values[:, cluster], counts[:, cluster], axis=0)
        expected = np.quantile(repeated, [0.1, 0.9], axis=0, method="inverted_cdf")
        np.testing.assert_allclose(found[:, cluster], expected)
    assert np.isnan(weighted_quantiles(values, np.zeros((30, 2)), (0.5,))).all()


def test_clusters_that_are_one_in_the_reference_are_averaged_by_their_weights():
    """Two draws, the clusters of both all in the one cluster of the reference; the second draw counts a tenth."""
    draws = [{"means": np.array([[1.0], [5.0]])}, {"means": np.array([[10.0], [20.0]])}]
    weights = [np.array([0.6, 0.2]), np.array([0.06, 0.02])]
    ones = [np.ones((2, 1))] * 2
    low, middle, high = ends(
        draws.__getitem__, weights.__getitem__, ones, ["means"], np.array([[0]]), (0.1, 0.9, 0.95)
    )["means"]
    np.testing.assert_allclose([low, middle, high], [[[2.0]], [[2.0]], [[12.5]]])


def test_intervals_of_clusters_hold_what_is_true(seed):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal([-5, 0], 1, (60, 2)), rng.normal([5, 0], 1, (30, 2))])
    model = DPMixture("gaussian", num_samples=60, seed=seed).fit(rows, num_epochs=80, progress=False)
    found = model.intervals(0.95)
    assert set(found) == {"means", "precisions"} and model.base_ == "gaussian"
    low, high = found["means"]
    assert low.shape == model.means_.shape and (low <= high).all()
    largest = [row.label for row in model.clusters()[:2]]
    for label, centre in zip(largest, (-5, 5), strict=True):
        assert low[label, 0] < model.means_[label, 0] < high[label, 0]
        assert abs(model.means_[label, 0] - centre) < 1 and high[label, 0] - low[label, 0] < 2
    few = model.intervals(0.95, columns=[[1]] * len(low))["means"]
    np.testing.assert_allclose(few[0][:, 0], low[:, 1], rtol=1e-12)
    np.testing.assert_allclose(few[1][:, 0], high[:, 1], rtol=1e-12)
    assert model.draws_["weights"].shape[:2] == model.stats_["num_clusters"].shape
