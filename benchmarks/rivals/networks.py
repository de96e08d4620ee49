"""Partitions of leidenalg, igraph and graspologic, as JSON. Arguments: file of edges, nodes, blocks, seed.

Each is its name, the partition, CPU seconds, and latent positions whose products are probabilities of edges, or null.
"""

import json
import random
import sys
import time

import igraph
import leidenalg
import numpy as np
from graspologic.cluster import GaussianCluster
from graspologic.embed import AdjacencySpectralEmbed, LaplacianSpectralEmbed
from scipy import sparse

path, nodes, blocks, seed = sys.argv[1], *(int(word) for word in sys.argv[2:])
edges = np.load(path)
graph = igraph.Graph(nodes, edges.tolist())
random.seed(seed)
found = []


def add(name, call):
    begin = time.process_time()
    partition = call()
    found.append((name, list(partition.membership), time.process_time() - begin, None))


# [user leidenalg]
modularity = leidenalg.ModularityVertexPartition
add("Leiden", lambda: leidenalg.find_partition(graph, modularity, n_iterations=-1, seed=seed))
# [end]
for resolution in (2.0, 4.0):
    add(
        f"Leiden, {resolution:g}",
        lambda resolution=resolution: leidenalg.find_partition(
            graph,
            leidenalg.RBConfigurationVertexPartition,
            resolution_parameter=resolution,
            n_iterations=-1,
            seed=seed,
        ),
    )
add("Infomap", lambda: graph.community_infomap())
matrix = sparse.csr_array((np.ones(len(edges)), tuple(edges.T)), shape=(nodes, nodes))
matrix = sparse.csr_array(matrix + matrix.T)
for name, kind in (("adjacency", AdjacencySpectralEmbed), ("Laplacian", LaplacianSpectralEmbed)):
    begin = time.process_time()
    options = {"form": "R-DAD"} if kind is LaplacianSpectralEmbed else {"diag_aug": False, "check_lcc": False}
    positions = kind(algorithm="truncated", svd_seed=seed, **options).fit_transform(matrix)
    labels = GaussianCluster(
        min_components=blocks, max_components=blocks, covariance_type="diag", random_state=seed
    ).fit_predict(positions)
    seconds = time.process_time() - begin
    told = positions.round(6).tolist() if kind is AdjacencySpectralEmbed else None
    found.append((f"graspologic, {name}", labels.tolist(), seconds, told))
json.dump(found, sys.stdout)
