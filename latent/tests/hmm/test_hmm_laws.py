"""Exact laws of hidden Markov models: enumerated state paths, and Geweke's joint-distribution test."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln, multigammaln

import scirocco as sc

pytest.importorskip("numba", reason="hidden Markov models need numba (the extra `compiled`)")

from scirocco.simplex import tables
from scirocco_latent.hmm import buffered, emissions, own, priors, scan
from scirocco_latent.hmm.gibbs import Parameters, StateChain, StatePrior, kernels, layout, log_likelihoods
from scirocco_latent.hmm.series import read

pytestmark = pytest.mark.law

K, A, STICKY = 2, 0.7, 0.6
BATCHES = 80  # for errors of means: of so many, five are rarely exceeded by chance
SERIES: dict[str, Any] = {
    # two series, 5 and 1 observations long; one observation is missing
    "categorical": ([[0, 2, np.nan, 1, 1], [2]], {"concentration": 0.8}),
    "poisson": ([[3, 0, np.nan, 7, 5], [1]], {"shape": 1.5, "rate": 0.4}),
    "gaussian": (
        [np.array([[0.3, 1.0], [-1.0, 0.2], [np.nan] * 2, [2.0, 1.5], [1.7, 2.5]]), np.array([[0.0, -1.0]])],
        {"mean": 0.5, "strength": 0.6, "degrees": 4.0, "scale": 1.2},
    ),
}
KINDS = tuple(SERIES)
SERIES["own"] = ([[0.3, -1.0, np.nan, 2.0, 1.7], [0.1]], {"mean": 0.5, "strength": 0.6, "degrees": 4.0, "scale": 1.2})


def own_normal():
    """The normal distribution with its conjugate prior, as a user may write them."""
    prior = SERIES["own"][1]

    def log_density(params, x):
        return -0.5 * ((x - params["mean"]) / params["sd"]) ** 2 - jnp.log(params["sd"])

    def log_prior(params):
        sd, apart = params["sd"], params["mean"] - prior["mean"]
        squares = prior["scale"] ** 2 + prior["strength"] * apart**2
        return -(prior["degrees"] + 2.0) * jnp.log(sd) - 0.5 * squares / sd**2

    return sc.Model(log_density, log_prior, transforms={"sd": sc.transforms.positive})


def problem(kind):
    given = read(SERIES[kind][0])
    if kind == "own":
        emission = own.resolve(own_normal(), {"mean": 0.0, "sd": 1.0}, given)
    else:
        emission = priors.resolve(kind, given, K, SERIES[kind][1], None)
    return StatePrior(K, A, STICKY, emission), emission.encode(given), given


def dirichlet_marginal(shape, counts):
    shape = np.broadcast_to(shape, counts.shape)
    return gammaln(shape.sum()) - gammaln(shape.sum() + counts.sum()) + (gammaln(shape + counts) - gammaln(shape)).sum()


def log_marginal(kind, rows):
    """Of the observations of one state, parameters integrated out; in the units of the user."""
    prior = SERIES[kind][1]
    if kind == "categorical":
        return dirichlet_marginal(prior["concentration"], np.bincount(rows.astype(int), minlength=3))
    if kind == "poisson":
        a, b, n, s = prior["shape"], prior["rate"], len(rows), rows.sum()
        return a * np.log(b) - gammaln(a) + gammaln(a + s) - (a + s) * np.log(b + n) - gammaln(rows + 1).sum()
    n, d = len(rows), rows.size // len(rows)
    m, kappa, nu = np.full(d, prior["mean"]), prior["strength"], prior["degrees"]
    psi = prior["scale"] ** 2 * np.eye(d)
    rows = rows.reshape(n, d)
    kn = kappa + n
    mn = (kappa * m + rows.sum(axis=0)) / kn
    psin = psi + rows.T @ rows + kappa * np.outer(m, m) - kn * np.outer(mn, mn)
    return (
        -0.5 * n * d * np.log(np.pi)
        + multigammaln((nu + n) / 2, d)
        - multigammaln(nu / 2, d)
        + nu / 2 * np.linalg.slogdet(psi)[1]
        - (nu + n) / 2 * np.linalg.slogdet(psin)[1]
        + d / 2 * np.log(kappa / kn)
    )


def enumerated(kind, prior, given):
    """All paths, and their posterior probabilities with all parameters integrated out."""
    values = given.values if given.values.ndim == 2 else given.values[:, None]
    seen = ~np.isnan(values[:, 0])
    paths = np.array(list(itertools.product(range(K), repeat=len(values))))
    logs = []
    for path in paths:
        firsts = np.bincount(path[given.bounds[:-1]], minlength=K)
        moves = np.zeros((K, K))
        for t in range(1, len(path)):
            if t not in given.bounds:
                moves[path[t - 1], path[t]] += 1
        total = dirichlet_marginal(A, firsts)
        total += sum(dirichlet_marginal(prior.transitions[j], moves[j]) for j in range(K))
        for k in range(K):
            rows = values[seen & (path == k)]
            total += log_marginal(kind, rows if rows.shape[1] == 2 else rows[:, 0]) if len(rows) else 0.0
        logs.append(total)
    shares = np.exp(np.array(logs) - max(logs))
    return paths, shares / shares.sum()


def z_scores(draws, expected):
    """Of means of correlated draws (draw, quantity), by batch means."""
    batches = draws.reshape(BATCHES, -1, draws.shape[1]).mean(axis=1)
    return (batches.mean(axis=0) - expected) / (batches.std(axis=0, ddof=1) / np.sqrt(BATCHES))


def features(paths):
    """Equality of neighbours and of distant pairs, and the states themselves."""
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (1, 3), (4, 5)]
    return np.concatenate([paths, np.stack([paths[:, i] == paths[:, j] for i, j in pairs], axis=1)], axis=1)


@pytest.mark.parametrize("kind, piece", [("categorical", 2), ("poisson", 100), ("gaussian", 3), ("own", 3)])
def test_states_have_their_enumerated_posterior(kind, piece, seed):
    """Also if series are cut: pieces given the states between them; batches of pieces.

    Of emissions that a user writes, only what does not depend on labels: they switch more slowly than others.
    """
    prior, data, given = problem(kind)
    paths, shares = enumerated(kind, prior, given)
    chain = StateChain(
        prior, data, given.bounds, batch_size=3, num_starts=0, seed=seed, chain=0, num_threads=1, piece=piece
    )
    chain.advance(50)
    steps, skipped = (1_600, len(given.values)) if kind == "own" else (4_000, 0)
    drawn = np.empty((steps, len(given.values)), np.int8)
    for step in range(steps):
        chain.advance(1)
        drawn[step] = chain.states.z
    assert np.abs(z_scores(features(drawn), shares @ features(paths))[skipped:]).max() < 5


def test_parameters_of_own_emissions_have_their_conditional_law(seed):
    """Given the states: normal-inverse-gamma distributions, with four, one and no observations; 64 chains of each."""
    copies, x = 64, np.array([1.2, -0.3, np.nan, 0.4, 2.0, -1.0])
    given, one = read(np.tile(x, copies)), np.array([0, 0, 0, 0, 0, 1])
    z = (3 * np.arange(copies)[:, None] + one).ravel()
    emission = own.resolve(own_normal(), {"mean": 0.0, "sd": 1.0}, given)
    data, prior, rng = emission.encode(given), SERIES["own"][1], np.random.default_rng(seed)
    count, total, square = (
        np.array([np.nansum((x[one == k] ** power)[~np.isnan(x[one == k])]) for k in range(3)]) for power in range(3)
    )
    kappa, nu = prior["strength"] + count, prior["degrees"] + count
    centre = (prior["strength"] * prior["mean"] + total) / kappa
    psi = prior["scale"] ** 2 + square + prior["strength"] * prior["mean"] ** 2 - kappa * centre**2
    params, found = {"position": np.zeros((3 * copies, 2))}, []
    for step in range(800):
        params = emission.draw(rng, params, data, z, np.empty((3 * copies, 0)))
        if step < 100:
            continue
        mean, log_sd = np.moveaxis(params["position"].reshape(copies, 3, 2), 2, 0)
        apart = (mean - centre) * np.sqrt(kappa) / np.exp(log_sd)
        parts = [apart, apart**2, psi * np.exp(-2 * log_sd), 2 * log_sd - np.log(psi)]
        found.append(np.concatenate(parts, axis=1))
    means = np.mean(found, axis=0)
    expected = np.concatenate([0 * nu, 0 * nu + 1, nu, -digamma(nu / 2) - np.log(2)])
    z_of = (means.mean(axis=0) - expected) / (means.std(axis=0, ddof=1) / np.sqrt(copies))
    assert np.abs(z_of).max() < 5


def test_joint_distribution_is_the_prior_times_the_likelihood(seed):
    """Geweke (2004): observations given states and parameters, then a step of the chain, leave the prior unchanged."""
    prior, data, given = problem("gaussian")
    chain = StateChain(
        prior, data, given.bounds, batch_size=3, num_starts=0, seed=seed, chain=1, num_threads=1, piece=2
    )
    rng = np.random.default_rng([seed, 77])
    chain.advance(20)
    states, found = chain.states, []
    seen = ~np.isnan(data.rows[:, 0])
    for _ in range(6_400):
        params, z = chain.params, states.z.astype(int)
        roots = np.linalg.cholesky(params.emission["covariances"])[z]
        rows = params.emission["means"][z] + (roots @ rng.standard_normal((len(z), 2, 1)))[..., 0]
        data.rows[seen] = rows[seen]
        states.stats[:] = [
            [(own := seen & (z == k)).sum(), *rows[own].sum(axis=0), *np.tril(rows[own].T @ rows[own]).ravel()]
            for k in range(K)
        ]
        chain.advance(1)
        moves, initial, emission = chain.params.transitions, chain.params.initial, chain.params.emission
        precisions = np.linalg.inv(emission["covariances"])
        apart = emission["means"] - prior.emission.mean
        found.append(  # averages over the states, whose prior is the same
            [
                np.diag(moves).mean(),
                (np.diag(moves) ** 2).mean(),
                (initial**2).mean(),
                precisions[:, 0, 0].mean(),
                precisions[:, 0, 1].mean(),
                np.linalg.slogdet(precisions)[1].mean(),
                np.einsum("ki,kij,kj->k", apart, precisions, apart).mean(),
            ]
        )
    stay = A + STICKY
    total, spread = 2 * A + STICKY, np.array(prior.emission.spread)
    nu, kappa = prior.emission.degrees, prior.emission.strength
    log_det = digamma(nu / 2) + digamma((nu - 1) / 2) + 2 * np.log(2) - np.log(spread).sum()
    expected = [
        stay / total,
        stay * (stay + 1) / (total * (total + 1)),
        A * (A + 1) / (2 * A * (2 * A + 1)),
        nu / spread[0],
        0.0,
        log_det,
        2 / kappa,
    ]
    assert np.abs(z_scores(np.array(found), np.array(expected))).max() < 5


def path_likelihoods(prior, params, data, given):
    """All paths and log p(path, observations | parameters), from the kernels' own densities of single observations."""
    alone = np.arange(len(given.values) + 1)
    dense = np.empty((len(given.values), K))
    for k in range(K):
        one = params._replace(initial=np.eye(K)[k])
        dense[:, k] = log_likelihoods(prior.emission, one, data, alone, 1)[0]
    paths = np.array(list(itertools.product(range(K), repeat=len(given.values))))
    logs = dense[np.arange(len(given.values)), paths].sum(axis=1)
    for t in range(paths.shape[1]):
        logs += (
            np.log(params.initial[paths[:, t]])
            if t in given.bounds
            else np.log(params.transitions[paths[:, t - 1], paths[:, t]])
        )
    return paths, logs


@pytest.mark.parametrize("kind", [*KINDS, "own"])
def test_recursions_agree_with_all_paths(kind, seed):
    """Log likelihoods, smoothed probabilities and expected counts; windows with buffers as long as the series."""
    prior, data, given = problem(kind)
    rng = np.random.default_rng(seed)
    params = Parameters(rng.dirichlet([1, 1]), rng.dirichlet([1, 1], 2), prior.emission.first(rng, data, K))
    paths, logs = path_likelihoods(prior, params, data, given)
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    found, _ = log_likelihoods(prior.emission, params, data, given.bounds, 1)
    np.testing.assert_allclose(found.sum(), np.logaddexp.reduce(logs), rtol=1e-9)

    pieces = np.array([[0, 2, 0, 1], [2, 5, 1, 0], [5, 6, 0, 0]])
    sums = buffered.expected(prior, params, data, buffered.with_buffers(pieces, given.bounds, 9), 1)
    moves = np.zeros((K, K))
    for path, share in zip(paths, shares, strict=True):
        for t in (1, 2, 3, 4):
            moves[path[t - 1], path[t]] += share
    np.testing.assert_allclose(sums.moves.sum(axis=0), moves, atol=1e-9)
    firsts = [[shares @ (paths[:, t] == k) for k in range(K)] for t in (0, 5)]
    np.testing.assert_allclose(sums.firsts.sum(axis=0), np.sum(firsts, axis=0), atol=1e-9)
    seen = np.flatnonzero(~data.is_missing)
    held = np.array([(shares @ (paths[:, seen] == k)).sum() for k in range(K)])
    if kind != "own":  # it has no sums
        told = sums.stats.sum(axis=(0, 2)) if len(data.codes) else sums.stats.sum(axis=0)[:, 0]
        np.testing.assert_allclose(told, held, atol=1e-9)

    short = [
        np.abs(
            buffered.expected(prior, params, data, buffered.with_buffers(pieces, given.bounds, b), 1).moves.sum(0)
            - moves
        ).max()
        for b in (0, 9)
    ]
    assert short[1] < 1e-9 < short[0]


def test_scans_have_the_densities_of_counts_in_columns():
    """Up to a constant of each row, those of the host; the other kinds are part of the next test."""
    given = read(np.array([[3, 1], [0, 0], [np.nan, np.nan], [7, 2], [5, 1]]))
    emission = priors.resolve("poisson", given, K, None, None)
    data, params = emission.encode(given), {"rates": np.array([[1.0, 2.0], [6.0, 0.5]])}
    states = scan.DeviceStates(StatePrior(K, A, STICKY, emission), data, given.bounds, 1)
    kind, values = states.values_of(params)
    found = scan.log_densities(kind, jax.tree.map(lambda part: part[0], states.rows), values)
    rates, counts = params["rates"][:, None, :], np.nan_to_num(given.values)
    wanted = ((counts * np.log(rates) - rates).sum(axis=2) * ~data.is_missing).T
    np.testing.assert_allclose(found[:, 1] - found[:, 0], wanted[:, 1] - wanted[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_scans_draw_the_states_of_the_host(kind, seed, monkeypatch):
    """Filters equal the recursion, paths have their enumerated probabilities, sums are those of the states.

    1,000 copies of two series in blocks of four rows: series go on from block to block.
    """
    copies, rng = 1_000, np.random.default_rng(seed)
    given, again = read(SERIES[kind][0]), read(SERIES[kind][0] * copies)
    emission = priors.resolve(kind, given, K, SERIES[kind][1], None)
    prior, data = StatePrior(K, A, STICKY, emission), emission.encode(given)
    params = Parameters(rng.dirichlet([2, 2]), rng.dirichlet([2, 2], 2), emission.first(rng, data, K))
    states = scan.DeviceStates(prior, emission.encode(again), again.bounds, 1, longest=4)
    states.step(params, None, None, (seed, 5))

    paths, logs = path_likelihoods(prior, params, data, given)
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    drawn = states.z.reshape(copies, -1).astype(int)
    told, wanted = features(drawn).mean(axis=0), shares @ features(paths)
    z_of = (told - wanted) / np.sqrt(np.maximum(wanted * (1 - wanted), 1e-12) / copies)
    assert np.abs(z_of[(wanted > 0.05) & (wanted < 0.95)]).max(initial=0.0) < 5  # of rare ones counts are not normal

    *arguments, key = *states.values_of(params.emission), jax.random.key(0)
    first, moves = np.float32(params.initial), np.float32(params.transitions)
    width = states.stats.shape[1]
    _, _, filters = scan.sweep(arguments[0], width, states.rows, arguments[1], first, moves, key)
    filters = np.asarray(filters).reshape(-1, K)
    for t in range(1, len(given.values) + 1):  # the law of the last state of a series that ends there
        begin = int(given.bounds[np.searchsorted(given.bounds, t - 1, side="right") - 1])
        _, ends = log_likelihoods(emission, params, data.take(np.arange(begin, t)), np.array([0, t - begin]), 1)
        for copy in (0, 500, 999):
            np.testing.assert_allclose(filters[copy * len(given.values) + t - 1], ends[0], atol=1e-5)

    found = states.firsts, states.moves, states.stats
    sums, arguments = [np.zeros(part.shape) for part in found], emission.kernel(params.emission, states.data)
    for piece in layout(again.bounds, 10**6, 0).pieces:
        kernels().tally(1.0, arguments, states.z, piece, *sums)
    for part, wanted in zip(found, sums, strict=True):
        np.testing.assert_allclose(part, wanted, rtol=1e-5, atol=1e-3)


def test_own_emissions_move_along_the_gradient_of_the_likelihood(seed):
    """Fisher's identity: gradients averaged over the states, at full batch, are those of the marginal likelihood."""
    prior, data, given = problem("own")
    rng = np.random.default_rng(seed)
    u = np.round(rng.normal(scale=0.5, size=(K, 2)), 2)
    params = Parameters(rng.dirichlet([2, 2]), rng.dirichlet([2, 2], 2), {"position": u})
    begins, ends = given.bounds[:-1], given.bounds[1:]
    windows = np.stack([begins, ends, begins, ends, 0 * begins], axis=1)
    shares = np.zeros((data.num_rows, K))
    buffered.expected(prior, params, data, windows, 1, shares)
    found = prior.emission.terms(u, data, shares).gradient

    def log_posterior(mean, log_sd):  # in double precision
        x, sd = data.rows, np.exp(log_sd)
        logs = np.where(np.isnan(x), 0.0, -0.5 * ((x - mean) / sd) ** 2 - log_sd)
        start, total = params.initial * np.exp(logs[0]), 0.0
        for t in range(1, len(x)):
            start = start @ params.transitions if t not in given.bounds else start.sum() * params.initial
            start = start * np.exp(logs[t])
        told = SERIES["own"][1]
        squares = told["scale"] ** 2 + told["strength"] * (mean - told["mean"]) ** 2
        total = np.sum(-(told["degrees"] + 1.0) * log_sd - 0.5 * squares / sd**2)
        return np.log(start.sum()) + total

    for k, d in np.ndindex(K, 2):
        shift = np.zeros((K, 2))
        shift[k, d] = 1e-5
        slope = (log_posterior(*(u + shift).T) - log_posterior(*(u - shift).T)) / 2e-5
        np.testing.assert_allclose(found[k, d], slope, rtol=1e-4, atol=1e-4)


def test_stochastic_samplers_at_full_batch_have_the_exact_law(seed):
    """If states are certain: Dirichlet rows and normal-inverse-Wishart emissions of two columns, for any step size.

    SCIR-CV has no noise to reduce then, and moves as SCIR does.
    """
    z = np.array([0, 0, 1, 1, 1, 0, 0, 0, 1, 0])
    noise = np.array([[0.3, 1.0], [-1.0, 0.2], [2.0, 1.5], [1.7, 2.5], [0.0, -1.0]] * 2)
    given = read(1e3 * z[:, None] + noise)
    told = {"mean": 0.5, "strength": 1e-4, "degrees": 4.0, "scale": 1.2}
    emission = priors.resolve("gaussian", given, K, told, None)
    prior, data, x = StatePrior(K, A, STICKY, emission), emission.encode(given), emission.encode(given).rows
    known = buffered.settings("scir", prior, data, given.bounds, 10**6, 2.0, 20, 4, seed)
    chain, other = (
        buffered.BufferedChain(prior, data, given.bounds, known._replace(sampler=sampler), seed, 0, 1)
        for sampler in ("scir", "scir_cv")
    )
    for each in (chain, other):
        each.advance(20)
    np.testing.assert_allclose(chain.params().transitions, other.params().transitions, rtol=1e-9)
    order = np.argsort(chain.params().emission["means"][:, 0])
    count = np.array([np.sum(z == k) for k in range(K)])
    kappa, nu = emission.strength + count, emission.degrees + count
    m, total = np.array(emission.mean), np.array([x[z == k].sum(axis=0) for k in range(K)])
    centre = (emission.strength * m + total) / kappa[:, None]
    psi = np.diag(emission.spread) + np.array(
        [
            x[z == k].T @ x[z == k] + emission.strength * np.outer(m, m) - kappa[k] * np.outer(centre[k], centre[k])
            for k in range(K)
        ]
    )
    moves = prior.transitions + np.array([[3.0, 2.0], [2.0, 2.0]])
    found = []
    for _ in range(1_200):
        chain.advance(1)
        first, rows, normal = chain.params()
        rows, apart = rows[order][:, order], normal["means"][order] - centre
        precision = np.linalg.inv(normal["covariances"][order])
        squares = kappa * np.einsum("ki,kij,kj->k", apart, precision, apart)
        scaled = np.trace(psi @ precision, axis1=1, axis2=2)
        crossed = (psi @ precision)[:, 0, 1]
        dets = np.linalg.slogdet(psi @ precision)[1]
        parts = rows[:, 0], rows[:, 0] ** 2, first[order][:1], squares, scaled, crossed, dets, apart.ravel()
        found.append(np.concatenate(parts))
    share, sums = moves[:, 0] / moves.sum(axis=1), moves.sum(axis=1)
    expected = [
        *share,
        *(share * (moves[:, 0] + 1) / (sums + 1)),
        (A + 1) / (2 * A + 1),
        *(2.0, 2.0),
        *(2 * nu),
        *(0.0, 0.0),
        *(digamma(nu / 2) + digamma((nu - 1) / 2) + 2 * np.log(2)),
        *np.zeros(4),
    ]
    assert np.abs(z_scores(np.array(found), np.array(expected))).max() < 5


def test_the_filter_forgets_at_the_rate_of_the_chain():
    """Without information in the observations, filters from two states differ by λᵗ, the second eigenvalue."""
    given = read([*np.full(30, np.nan).tolist(), 0, 1])
    emission = emissions.Categorical((0, 1), 1.0)
    params = Parameters(np.full(2, 0.5), np.array([[0.9, 0.1], [0.2, 0.8]]), {"probabilities": np.full((2, 2), 0.5)})
    out = np.empty((1, 30))
    kernels().forget(emission.kernel(params.emission, emission.encode(given)), params.chain(), np.array([[0, 30]]), out)
    np.testing.assert_allclose(out[0], 0.7 ** np.arange(1, 31), rtol=1e-9)


def test_control_variates_keep_the_mean_of_a_rare_category(seed):
    """E[x] = a for any noise of the estimates: x must not grow while batches miss the category."""
    rng = np.random.default_rng(seed)
    copies, scale, chance = 4_000, 8.0, 1 / 8
    reference, variance = np.full((copies, 1), 0.1 + scale * chance), np.full((copies, 1), scale**2 * chance)
    x = rng.gamma(reference)
    for step in range(120):
        counts = scale * rng.poisson(chance, (copies, 1))
        x = tables.moved((seed, step), x, 0.1 + counts, 0.1, reference, variance)
    most = (
        reference + variance
    ).mean()  # the variance of x is smaller: that of a gamma variable, and less than the noise
    assert abs(x.mean() - reference.mean()) < 5 * np.sqrt(most / copies)
