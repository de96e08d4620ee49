"""Networks: coauthors of physicists and of network scientists, mails inside an institution."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco import _checks
from scirocco.datasets.files import Entry, File, Folder, find

GRAPHS = Entry(
    "graphs",
    (
        File("ca-GrQc.npz", "5abddb507b9a58a2f59ddcaadc6c295412eb23be0d7109ece9204c6d26b9549a", 51_744),
        File("ca-HepTh.npz", "1094f6d324cda5f0c1bd098480ed6ba90ed4451b1e38cc6c45691f891143d566", 99_150),
        File("ca-HepPh.npz", "bd902cbdea40b574c98517a9e6c59da7635b025123a55ebae4b2369f1b2b4881", 326_808),
        File("email-Eu-core.npz", "849770b0085cc7360645022fd8ce4123bdc07cde33e70645be17ad15ed0562e7", 53_117),
        File("netscience.npz", "285cba975706fc48f33a0a0d8f8ac6343b38db52b7d376f14c45c095f9e9b83e", 22_400),
    ),
    "SNAP: ca-GrQc, ca-HepTh, ca-HepPh (Leskovec, Kleinberg and Faloutsos 2007), email-Eu-core (Yin et al. 2017); "
    "netscience (Newman 2006)",
    "Each .npz holds edges (edges, 2) of nodes from 0 on: those of ca-* and netscience once, without loops, those of "
    "email-Eu-core from sender to receiver. Also department (email-Eu-core), name and weight (netscience), node_id.",
    "no formal licence; the authors ask to be cited.",
)
NAMES = tuple(file.name.removesuffix(".npz") for file in GRAPHS.files)


class Links(NamedTuple):
    """A network."""

    edges: np.ndarray
    """int64 (edges, 2): nodes from 0 on, without loops."""
    num_nodes: int
    """Number of nodes."""
    directed: bool
    """Whether edges go from the first node to the second."""
    labels: np.ndarray | None
    """Departments of the nodes (email-Eu-core), otherwise None."""
    names: tuple[str, ...] | None
    """Names of the nodes (netscience), otherwise None."""
    source: str
    """Origin and licence."""


def graphs(folder: Folder = None, which: str = "ca-GrQc") -> Links:
    """One of five networks of 1,005 to 12,008 nodes and 2,742 to 118,489 edges.

    Parameters
    ----------
    folder
        Folder with the files, or with a subfolder `graphs` that has them. Default: see `scirocco.datasets`.
    which
        "ca-GrQc", "ca-HepTh", "ca-HepPh" (coauthors), "email-Eu-core" (mails, with departments) or "netscience"
        (coauthors, with names).

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.graphs(which="email-Eu-core")          # doctest: +SKIP
    >>> data.num_nodes, len(data.edges), data.directed         # doctest: +SKIP
    (1005, 24929, True)
    """
    _checks.choice(which, "which", NAMES)
    file = f"{which}.npz"
    path = find(GRAPHS.some(file), folder)[file]
    with np.load(path) as stored:
        edges = stored["edges"].astype(np.int64)
        labels = stored["department"] if "department" in stored else None
        names = tuple(map(str, stored["name"])) if "name" in stored else None
        counts = (len(each) for each in (labels, names) if each is not None)
        num_nodes = next(counts, int(edges.max()) + 1)
    apart = edges[edges[:, 0] != edges[:, 1]]
    return Links(apart, num_nodes, which == "email-Eu-core", labels, names, GRAPHS.source(path))
