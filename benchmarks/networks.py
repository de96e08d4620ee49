"""Block models: time of a step by the size of the network, a large network, coverage, and links of real networks.

    python benchmarks/networks.py steps                     # 10⁴ to 10⁶ edges: CPU time of a step
    python benchmarks/networks.py large                     # 10⁶ edges, 10⁵ nodes, 50 blocks: perplexity by time
    python benchmarks/networks.py chains --unknown          # whether chains of default fits of real networks agree
    python benchmarks/networks.py coverage --sets 100       # 90 % intervals over simulated networks
    python benchmarks/networks.py links --data graphs       # hidden links and departments, also by igraph and leidenalg
    python benchmarks/networks.py kinds --data graphs       # hidden links by all kinds of mixed memberships
    python benchmarks/networks.py samplers --data graphs --epochs 500    # mixed memberships by SCIR-CV, SCIR and SGRLD

steps     a step draws the blocks of 10,000 nodes; networks have ten edges per node. Goal: at most 1.3 times from 10⁴ to
          10⁶ edges.
large     two chains; time counts everything after the network is read. Goal: within 1 % of the final perplexity in 5
          minutes on two cores.
links     a folder with ca-GrQc.npz, ca-HepTh.npz and email-Eu-core.npz (`edges`, `department`). AUC of hidden links
          with a tenth of the edges held out, and the adjusted Rand index of the departments. Rivals have their own
          environment: partitions of leidenalg, igraph and graspologic, whose links are scored by a model with their
          blocks, or by products of latent positions.
chains    also prints how probable the departments are as blocks, beside the draws.
samplers  a fifth of the edges held out with as many pairs without one: the step size of each sampler, from the same
          five, is chosen on one half, and scored on the other. Five seeds; all have the same number of passes. The
          second perplexity is given that half of the pairs are linked, see `_perplexities`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import environments
import numpy as np
from scipy.stats import rankdata

import scirocco as sc
from scirocco.diagnostics import rhat
from scirocco_latent.graph import bernoulli_chains, poisson_chains
from scirocco_latent.graph.edges import read
from scirocco_latent.graph.gibbs import BlockChain, BlockPrior, NodeBlocks, network
from scirocco_latent.graph.starts import Starts

MEAN_DEGREE = 20


def simulated(
    num_nodes: int, num_edges: int, num_blocks: int, seed: int, within: float = 0.7
) -> tuple[np.ndarray, np.ndarray]:
    """Edges and blocks: a share of the edges is inside a block, degrees are spread like gamma(2) numbers."""
    rng = np.random.default_rng(seed)
    z = np.sort(rng.integers(0, num_blocks, num_nodes))
    weight = rng.gamma(2.0, size=num_nodes)
    total, bounds = np.cumsum(weight), np.searchsorted(z, np.arange(num_blocks + 1))
    total = np.concatenate([[0.0], total])

    def node(u: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(total, u, side="right") - 1, num_nodes - 1)

    source = node(rng.random(num_edges) * total[-1])
    low, high = total[bounds[z[source]]], total[bounds[z[source] + 1]]
    inside = rng.random(num_edges) < within
    u = rng.random(num_edges)
    target = node(np.where(inside, low + u * (high - low), u * total[-1]))
    keep = source != target
    pairs = np.sort(np.stack([source, target], axis=1)[keep], axis=1)
    return np.unique(pairs, axis=0), z


def prior_of(graph: Any, num_blocks: int, corrected: bool = True) -> BlockPrior:
    density = graph.weight.sum() / graph.num_pairs
    return BlockPrior(num_blocks, corrected, corrected, 1.0, 0.5, 0.5 / density, 0.5)


def steps(args: argparse.Namespace) -> None:
    """CPU time of a step for three sizes of networks."""
    chains, times = {}, {}
    for num_edges in (10**4, 10**5, 10**6):
        num_nodes = 2 * num_edges // MEAN_DEGREE
        edges, z = simulated(num_nodes, num_edges, args.blocks, 0, 0.1)  # few pairs twice
        graph = read(edges, nodes=num_nodes)
        prior = prior_of(graph, args.blocks)
        net = network(graph, prior, None)
        chain = BlockChain(prior, net, Starts(prior, net, 0, 0), args.batch, 0, 0)
        chain.blocks = NodeBlocks(prior, net, z)
        chain.rates = chain.blocks.draw(np.random.default_rng(0))
        chain.advance(3)
        chains[num_edges], times[num_edges] = chain, []
    for _ in range(args.rounds):  # in turn, so that other work on the machine meets all
        for num_edges, chain in chains.items():
            begin = time.process_time()
            chain.advance(20)
            times[num_edges].append((time.process_time() - begin) / 20)
    found = {n: float(np.median(values)) for n, values in times.items()}
    for num_edges, seconds in found.items():
        print(f"{num_edges:9,} edges: {1e3 * seconds:7.2f} ms a step of {args.batch:,} nodes")
    ratio = found[10**6] / found[10**4]
    print(f"10⁶ / 10⁴: {ratio:.2f} (goal: at most 1.3)")


def large(args: argparse.Namespace) -> None:
    """Held-out perplexity of a network of 10⁶ edges by time, and agreement of the chains."""
    num_nodes = args.edges // 10
    edges, truth = simulated(num_nodes, args.edges, args.blocks, 1)
    pairs, counts = sc.models.held_out_links(edges, 0.01, seed=0, nodes=num_nodes)
    num = None if args.unknown else args.blocks
    told = list[tuple[float, int]]()
    begin, used = time.perf_counter(), time.process_time()

    def watch(report: Any) -> None:
        told.append((time.perf_counter() - begin, report.step))

    model = sc.models.StochasticBlockModel(num, num_chains=2, num_samples=50, num_burnin=0, seed=0)
    model.fit(edges, nodes=num_nodes, held_out=pairs, num_epochs=args.epochs, callbacks=[watch], progress=False)
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    draws, final = model.draws_, model.perplexity(pairs, counts)
    print(
        f"{len(edges):,} edges, {num_nodes:,} nodes, {num or 'unknown number of'} blocks: {seconds:.0f} s in all "
        f"({used:.0f} CPU s), 2 chains"
    )
    print(f"   agreement with the true blocks (adjusted Rand index): {rand_index(truth, model.labels_):.3f}")
    print(f"   {_agreement(model)}")
    per_draw = model.run_.configuration["thin"]
    near = None
    for number in range(draws["blocks"].shape[1]):
        model.draws_ = {name: values[:, : number + 1] for name, values in draws.items()}
        one = model.perplexity(pairs, counts)
        at = next((t for t, step in told if step >= (number + 1) * per_draw), seconds)
        if near is None and one <= 1.01 * final:
            near = at
        if number % 7 == 0:
            print(f"   {at:6.0f} s: perplexity of the draws so far {one:.4f} (of all {final:.4f})")
    print(f"within 1 % after {near:.0f} s (goal: 300 s on two cores)", flush=True)


def _agreement(model: Any) -> str:
    """R-hat over the chains of the second half of a run, and the number of blocks."""
    half = model.draws_["shares"].shape[1] // 2
    stats = {name: np.asarray(model.run_.stats[name])[:, half:] for name in ("log_joint", "num_blocks", "splits")}
    last = model.draws_["blocks"][:, -1]
    found = {"log joint": rhat(stats["log_joint"]), "number of blocks": rhat(stats["num_blocks"])}
    found["shares"] = np.nanmax(rhat(model.draws_["shares"][:, half:]))
    told = ", ".join(f"{name} {float(value):.3f}" for name, value in found.items())
    joint = ", ".join(f"{m:.0f} ± {s:.0f}" for m, s in zip(*_moments(stats["log_joint"]), strict=True))
    return (
        f"R-hat: {told}; blocks {stats['num_blocks'].min():.0f} to {stats['num_blocks'].max():.0f}; log joint of the "
        f"chains {joint}; last draws of two chains agree by {rand_index(last[0], last[-1]):.3f} (Rand index); "
        f"{100 * stats['splits'].mean():.1f} % of splits and merges accepted"
    )


def chains(args: argparse.Namespace) -> None:
    """Whether four chains of the default fit agree, and departments."""
    warnings.simplefilter("ignore")
    for name in (args.graphs or "email-Eu-core,ca-GrQc,ca-HepTh").split(","):
        data = np.load(Path(args.data) / f"{name}.npz")
        edges = data["edges"].astype(np.int64)
        begin = time.process_time()
        model = sc.models.StochasticBlockModel(None if args.unknown else args.blocks, num_burnin=0, seed=args.seed)
        model.fit(edges, nodes=int(edges.max()) + 1, progress=False)
        print(f"{name}: {time.process_time() - begin:.0f} CPU s, {model.run_.stats['passes'].max():.0f} passes")
        print(f"   {_agreement(model)}")
        if "department" in data:
            index = rand_index(data["department"], model.labels_)
            single = [rand_index(data["department"], z) for z in model.draws_["blocks"][:, -1]]
            print(f"   departments: Rand index of labels_ {index:.3f}, of single draws {np.round(single, 3)}")
            joint = _log_joint(edges, data["department"], args.unknown)
            print(f"   log joint density of the departments {joint:.0f}")


def _log_joint(edges: np.ndarray, labels: np.ndarray, process: bool) -> float:
    """log p(edges, partition) of a given partition, as a fit with as many blocks at most reports it."""
    graph = read(edges, nodes=len(labels))
    most = 2 * int(np.ceil(np.sqrt(len(labels)))) if process else int(labels.max()) + 1
    prior = prior_of(graph, most)._replace(process=process)
    blocks, rng, found = NodeBlocks(prior, network(graph, prior, None), labels), np.random.default_rng(0), []
    for number in range(50):
        blocks.impute(np.arange(len(labels)), blocks.draw(rng), (1, number))
        found.append(blocks.log_joint())
    return float(np.mean(found[10:]))


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return values.mean(axis=1), values.std(axis=1)


def rand_index(a: np.ndarray, b: np.ndarray) -> float:
    """The adjusted Rand index of two partitions."""
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)

    def pairs(x: np.ndarray) -> float:
        return float((x * (x - 1) / 2).sum())

    rows, columns, both = pairs(table.sum(axis=1)), pairs(table.sum(axis=0)), pairs(table)
    expected = rows * columns / pairs(np.array([float(len(a))]))
    return (both - expected) / ((rows + columns) / 2 - expected)


KINDS: dict[str, dict[str, Any]] = {
    "degree-corrected": {},
    "degree-corrected, directed": {"directed": True},
    "bernoulli": {"degree_corrected": False},
}


def coverage(args: argparse.Namespace) -> None:
    """How often 90 % intervals contain the truth: parameters are drawn anew for each network."""
    warnings.simplefilter("ignore")
    for kind, options in KINDS.items():
        inside: dict[str, list[float]] = {"block matrix": [], "shares": [], "propensities": [], "P(edge)": []}
        for number in range(args.sets):
            for name, covered in _covered(options, number).items():
                inside[name].append(covered)
        shown = ", ".join(
            f"{name} {100 * np.mean(values):.1f} ± {100 * np.std(values) / np.sqrt(len(values)):.1f} %"
            for name, values in inside.items()
            if values
        )
        print(f"{kind}: {shown} ({args.sets} networks; goal 85-95 %)", flush=True)


def _covered(options: dict[str, Any], number: int) -> dict[str, float]:
    num_nodes, num = 120, 3
    rng = np.random.default_rng([number, 11])
    corrected, directed = options.get("degree_corrected", True), options.get("directed", False)
    shares = rng.dirichlet([8.0] * num)
    z = rng.choice(num, num_nodes, p=shares)
    rates = rng.uniform(0.02, 0.08, (num, num)) + np.diag(rng.uniform(0.2, 0.4, num))
    rates = rates if directed else (rates + rates.T) / 2
    theta = rng.gamma(2.0 if corrected else 1e6, size=(num_nodes, 2 if directed else 1))
    for k in range(num):
        theta[z == k] /= theta[z == k].mean(axis=0)
    mean = theta[:, :1] * theta[:, -1] * rates[z[:, None], z]
    drawn = rng.poisson(mean) if corrected else (rng.random(mean.shape) < mean).astype(int)
    ends = np.argwhere(drawn > 0)
    ends = ends[ends[:, 0] != ends[:, 1]] if directed else ends[ends[:, 0] < ends[:, 1]]
    edges = np.column_stack([ends, drawn[tuple(ends.T)]]) if corrected else ends
    given = {"num_samples": 100, "num_chains": 2, "seed": number, "propensity": 2.0} | options
    model = sc.models.StochasticBlockModel(num, **given)
    model.fit(edges, nodes=num_nodes, num_epochs=400, progress=False)
    table = np.zeros((num, num))
    np.add.at(table, (model.labels_, z), 1)
    order = table.argmax(axis=1)  # the true block of each found one
    if len(set(order)) < num:
        return {}

    def contains(interval: Any, true: np.ndarray) -> float:
        return float(np.mean((interval.low <= true) & (true <= interval.high)))

    some = rng.choice(num_nodes, (200, 2))
    some = some[some[:, 0] != some[:, 1]]
    chance = mean[tuple(some.T)]
    found = {
        "block matrix": contains(model.block_matrix(0.9), rates[order][:, order]),
        "shares": contains(model.shares(0.9), shares[order]),
        "P(edge)": contains(model.predict_proba(some, interval=0.9), -np.expm1(-chance) if corrected else chance),
    }
    return found | ({"propensities": contains(model.propensities(0.9), theta)} if corrected else {})


def links(args: argparse.Namespace) -> None:
    """AUC of hidden links, and departments, of real networks, beside partitions of other packages."""
    warnings.simplefilter("ignore")
    for name in (args.graphs or "ca-GrQc,ca-HepTh,email-Eu-core").split(","):
        num = 42 if name == "email-Eu-core" else 50
        data = np.load(Path(args.data) / f"{name}.npz")
        edges = data["edges"].astype(np.int64)
        nodes = int(edges.max()) + 1
        graph = read(edges, directed=False, nodes=nodes)
        edges = np.stack([graph.source, graph.target], axis=1)
        pairs, counts = sc.models.held_out_links(edges, 0.1, seed=args.seed, nodes=nodes)
        print(f"{name}: {nodes:,} nodes, {len(edges):,} edges, {num} blocks", flush=True)
        for blocks, what in ((None, "unknown number"), (num, f"{num} blocks")):
            begin = time.process_time()
            model = sc.models.StochasticBlockModel(blocks, num_chains=2, num_samples=50, seed=args.seed)
            model.fit(edges, nodes=nodes, held_out=pairs, num_epochs=args.epochs, progress=False)
            print(
                f"   block model, {what}: AUC {model.auc(pairs, counts):.3f}, perplexity "
                f"{model.perplexity(pairs, counts):.3f}, {time.process_time() - begin:.1f} CPU s; {_agreement(model)}",
                flush=True,
            )
        begin = time.process_time()
        mixed = sc.models.MixedMembership(num, num_chains=2, num_samples=50, seed=args.seed)
        mixed.fit(edges, nodes=nodes, held_out=pairs, num_epochs=5 * args.epochs, progress=False)
        seconds = time.process_time() - begin
        print(
            f"   MixedMembership      AUC {mixed.auc(pairs, counts):.3f}, "
            f"perplexity {mixed.perplexity(pairs, counts):.3f}, {seconds:.1f} CPU s"
        )
        if "department" in data:
            for kind, blocks, passes in (
                (sc.models.StochasticBlockModel, None, args.epochs),
                (sc.models.StochasticBlockModel, num, args.epochs),
                (sc.models.MixedMembership, num, 5 * args.epochs),
            ):
                whole: Any = kind(blocks, num_chains=2, num_samples=50, seed=args.seed)
                whole.fit(edges, nodes=nodes, num_epochs=passes, progress=False)
                index = rand_index(data["department"], whole.labels_)
                print(f"   {kind.__name__}({blocks}): adjusted Rand index {index:.3f}", flush=True)
        hidden = {tuple(pair) for pair in pairs}
        seen = np.array([edge for edge in edges.tolist() if tuple(edge) not in hidden])
        if args.alone:
            continue
        for rival, partition, seconds, places in _rivals(seen, nodes, num, args.seed):
            blocks = np.array(partition)
            auc = _auc(seen, blocks, pairs, counts)
            if places is not None:  # by products of positions, where that is better
                a, b = np.array(pairs).T
                auc = max(auc, _area((np.array(places)[a] * np.array(places)[b]).sum(axis=1), counts))
            print(
                f"   {rival:23s} AUC {auc:.3f} (ours / its {model.auc(pairs, counts) / auc:.3f}), {seconds:.1f} CPU s, "
                f"{blocks.max() + 1} blocks"
            )
        if "department" in data:
            for rival, partition, _, _ in _rivals(edges, nodes, num, args.seed):
                index = rand_index(data["department"], np.array(partition))
                print(f"   {rival:23s} adjusted Rand index {index:.3f}, {max(partition) + 1} blocks")


def samplers(args: argparse.Namespace) -> None:
    """Held-out perplexity of mixed memberships by SCIR-CV, SCIR and SGRLD, the step of each chosen on other pairs."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    names = (args.graphs or "ca-GrQc,ca-HepTh").split(",")
    tasks = [
        (args.data, name, kind, start, seed, sampler, step, args.epochs)
        for seed in range(args.seeds)
        for name in names
        for kind in args.kinds.split(",")
        for start in args.starts.split(",")
        for sampler in args.samplers.split(",")
        for step in ([None] if sampler == "gibbs" else [float(one) for one in args.steps.split(",")])
    ]
    _perplexities((*tasks[0][:-1], 2))  # compiles
    found = dict[Any, list[tuple[float, ...]]]()
    with ProcessPoolExecutor(args.processes, get_context("spawn"), warnings.simplefilter, ("ignore",)) as pool:
        for task, result in zip(tasks, pool.map(_perplexities, tasks), strict=True):
            found.setdefault((*task[1:4], task[5]), []).append((task[4], task[6] or 0.0, *result))
            print("  ", *task[1:7], *(f"{value:.4f}" for value in result), flush=True)
    for (name, kind, start, sampler), rows in found.items():
        table = np.array(rows)
        seeds = [table[table[:, 0] == seed] for seed in range(args.seeds)]
        print(f"{name} {kind} from {start}, {sampler}:")
        for by, column in (("perplexity", 2), ("second", 3)):
            best = np.array([rows[rows[:, column].argmin()] for rows in seeds])
            (perplexity, auc, second), spread = best[:, 4:7].mean(axis=0), best[:, 4:7].std(axis=0)
            print(
                f"   step chosen by {by:10s} perplexity {perplexity:.3f} (sd {spread[0]:.3f}), second "
                f"{second:.4f} (sd {spread[2]:.4f}), AUC {auc:.4f}; steps {best[:, 1].tolist()}",
                flush=True,
            )
        for step in np.unique(table[:, 1]):
            perplexity, auc, second, seconds = table[table[:, 1] == step, 4:].mean(axis=0)
            print(
                f"   step {step:<6g} perplexity {perplexity:.3f}, second {second:.4f}, AUC {auc:.4f}, "
                f"{seconds:.1f} CPU s"
            )


def _perplexities(task: tuple[Any, ...]) -> tuple[float, ...]:
    """Both perplexities of validation pairs; perplexity, AUC and second perplexity of test pairs; CPU seconds.

    Half of the pairs are linked, a share in the network of, say, 0.001. The first perplexity ignores that, and prefers
    probabilities that are far too large: ½ for all pairs has 2. The second one is that of the probabilities given how
    pairs were chosen, with odds times the ratio of the shares of links: the density for all pairs has 2.
    """
    folder, name, kind, start, seed, sampler, step, epochs = task
    edges = np.load(Path(folder) / f"{name}.npz")["edges"].astype(np.int64)
    nodes = int(edges.max()) + 1
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    pairs, counts = sc.models.held_out_links(edges, 0.2, seed=seed, nodes=nodes)
    half = np.random.default_rng(seed).permutation(len(pairs)) % 2 == 0
    pairs, counts = np.array(pairs), np.minimum(counts, 1)
    begin = time.process_time()
    model = sc.models.MixedMembership(
        20, sampler=sampler, step_size=step, num_chains=1, num_samples=40, seed=seed, **KINDS_OF_MIXED[kind]
    )
    try:
        with _starting(start):
            model.fit(edges, nodes=nodes, held_out=pairs, num_epochs=epochs, progress=False)
    except sc.errors.DivergenceError:
        return np.inf, np.inf, np.inf, 0.5, np.inf, time.process_time() - begin
    seconds = time.process_time() - begin
    density = 2 * len(edges) / nodes / (nodes - 1)
    scores = list[float]()
    for chosen in (half, ~half):
        scores += [model.perplexity(pairs[chosen], counts[chosen], known) for known in (None, density)]
    return *scores[:3], model.auc(pairs[~half], counts[~half]), scores[3], seconds


KINDS_OF_MIXED: dict[str, dict[str, Any]] = {
    "poisson": {},
    "general": {"kind": "general"},
    "bernoulli": {"degree_corrected": False},
    "general-bernoulli": {"degree_corrected": False, "kind": "general"},
}


def kinds(args: argparse.Namespace) -> None:
    """AUC and perplexity of hidden links, a tenth of the edges, by kinds of mixed memberships."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    names = (args.graphs or "netscience,email-Eu-core,ca-GrQc,ca-HepTh,ca-HepPh").split(",")
    tasks = [
        (args.data, name, kind, seed, args.epochs)
        for seed in range(args.seeds)
        for name in names
        for kind in args.kinds.split(",")
    ]
    found = dict[Any, list[tuple[float, ...]]]()
    with ProcessPoolExecutor(args.processes, get_context("spawn"), warnings.simplefilter, ("ignore",)) as pool:
        for task, result in zip(tasks, pool.map(_kind, tasks), strict=True):
            found.setdefault(task[1:3], []).append(result)
            print("  ", *task[1:4], *(f"{value:.4f}" for value in result), flush=True)
    for (name, kind), rows in found.items():
        auc, perplexity, seconds = np.mean(rows, axis=0)
        print(
            f"{name:14s} {kind:20s} AUC {auc:.4f} (sd {np.std(rows, axis=0)[0]:.4f}), perplexity {perplexity:.3f}, "
            f"{seconds:.0f} CPU s"
        )


def _kind(task: tuple[Any, ...]) -> tuple[float, ...]:
    folder, name, kind, seed, epochs = task
    edges = np.load(Path(folder) / f"{name}.npz")["edges"].astype(np.int64)
    nodes, directed = int(edges.max()) + 1, kind.endswith("directed")
    edges = edges[edges[:, 0] != edges[:, 1]]
    edges = np.unique(edges if directed else np.sort(edges, axis=1), axis=0)
    pairs, counts = sc.models.held_out_links(edges, 0.1, seed=seed, nodes=nodes, directed=directed)
    num = 42 if name == "email-Eu-core" else 50
    begin = time.process_time()
    options = KINDS_OF_MIXED[kind.removesuffix("-directed")]
    model = sc.models.MixedMembership(num, num_chains=1, num_samples=50, seed=seed, directed=directed, **options)
    model.fit(edges, nodes=nodes, held_out=pairs, num_epochs=epochs, progress=False)
    return model.auc(pairs, counts), model.perplexity(pairs, counts), time.process_time() - begin


@contextlib.contextmanager
def _starting(start: str) -> Iterator[None]:
    """Chains start from random communities ("random"), or where they start by default ("clusters")."""
    usual = poisson_chains.clusters
    if start == "random":
        for module in (poisson_chains, bernoulli_chains):
            module.clusters = lambda rows, num, rng: rng.integers(0, num, len(rows))
    try:
        yield
    finally:
        poisson_chains.clusters = bernoulli_chains.clusters = usual


def _rivals(
    edges: np.ndarray, nodes: int, num: int, seed: int
) -> list[tuple[str, list[int], float, list[list[float]] | None]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.npy"
        np.save(path, edges)
        script = Path(__file__).parent / "rivals" / "networks.py"
        words = [environments.networks_python(), str(script), str(path), str(nodes), str(num), str(seed)]
        found = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [tuple(one) for one in json.loads(found)]  # type: ignore[misc]


def _auc(edges: np.ndarray, blocks: np.ndarray, pairs: Any, counts: np.ndarray) -> float:
    """AUC of a partition: rates of a degree-corrected block model given its blocks."""
    num = int(blocks.max()) + 1
    i, j = edges.T
    table = np.zeros((num, num))
    np.add.at(table, (blocks[i], blocks[j]), 1.0)
    table = table + table.T
    degrees = np.bincount(edges.ravel(), minlength=len(blocks)) + 0.5
    sums = np.bincount(blocks, degrees, num)
    rate = (table + 0.5) / np.outer(sums, sums)
    a, b = np.array(pairs).T
    score = degrees[a] * degrees[b] * rate[blocks[a], blocks[b]]
    return _area(score, counts)


def _area(score: np.ndarray, counts: np.ndarray) -> float:
    order = rankdata(score)
    ones = int((counts > 0).sum())
    return float((order[counts > 0].sum() - ones * (ones + 1) / 2) / (ones * (len(counts) - ones)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("steps", "large", "chains", "coverage", "links", "kinds", "samplers"))
    parser.add_argument("--unknown", action="store_true", help="large, chains: the number of blocks is unknown")
    parser.add_argument("--blocks", type=int, default=50)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--edges", type=int, default=10**6)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="graphs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--starts", default="clusters,random", help="where chains of `samplers` start")
    parser.add_argument("--kinds", default="poisson", help="models of `samplers`")
    parser.add_argument("--samplers", default="scir_cv,scir_cv_counts,scir,sgrld,gibbs", help="samplers of `samplers`")
    parser.add_argument("--steps", default="0.03,0.1,0.3,1,3", help="step sizes of `samplers`")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--graphs", help="some of the networks: ca-GrQc,ca-HepTh")
    parser.add_argument("--alone", action="store_true", help="links without other packages")
    args = parser.parse_args()
    globals()[args.what](args)


if __name__ == "__main__":
    main()
