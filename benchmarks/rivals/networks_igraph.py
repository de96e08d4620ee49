"""Partitions of leidenalg and igraph, as JSON. Arguments: file of edges, number of nodes, seed."""

import json
import random
import sys
import time

import igraph
import leidenalg
import numpy as np

path, nodes, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
graph = igraph.Graph(nodes, np.load(path).tolist())
random.seed(seed)
found = []


def add(name, call):
    begin = time.process_time()
    partition = call()
    found.append((name, list(partition.membership), time.process_time() - begin))


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
json.dump(found, sys.stdout)
