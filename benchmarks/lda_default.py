"""`LDA(K, num_chains=1).fit(X)` with nothing else given, beside tomotopy with the same CPU time, one thread each.

    python benchmarks/lda_default.py                          # all corpora of the data folder, K = 50
    python benchmarks/lda_default.py newsgroups20 --topics 200 --other .venv-tomotopy/bin/python

The defaults (sampler, starts, passes, draws) were chosen on kos, ap, synthetic corpora and the docstrings of the
installed packages (16,600 documents; here a corpus of fewer packages); newsgroups20, acl_abstracts and wikipedia are
scored only. A tenth of the documents is held out. tomotopy runs with α = 0.1 and three values of β
(its best is printed), in the Python of `--other`, for the CPU seconds that our fit took; adding documents is not timed.
Both are scored by the same function on one matrix of topics: perplexity of every tenth word given the others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse

FILES = {
    "kos": "kos/kos.npz",
    "ap": "ap/ap.npz",
    "newsgroups20": "newsgroups20/newsgroups20_dictnostops.npz",
    "acl_abstracts": "acl_abstracts/acl_abstracts_dictnostops.npz",
    "wikipedia": "wikipedia/wikipedia_dictnostops.npz",
}
CHOSEN_ON = ("kos", "ap", "docstrings")
BETAS = (0.01, 0.05, 0.1)


def read(name: str, most: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Documents to fit and held-out documents."""
    X = _docstrings() if name == "docstrings" else _stored(FILES[name])
    shape = X.shape
    order = np.random.default_rng(0).permutation(shape[0])[:most]
    cut = len(order) // 10
    return X[np.sort(order[cut:])], X[np.sort(order[:cut])]


def _stored(path: str) -> sparse.csr_array:
    with np.load(Path(os.environ["SCIROCCO_DATA"]) / path, allow_pickle=False) as file:
        indptr, words, counts = (file[key] for key in ("indptr", "indices", "counts"))
    shape = (len(indptr) - 1, int(words.max()) + 1)
    return sparse.csr_array((counts.astype(np.int32), words.astype(np.int32), indptr.astype(np.int64)), shape=shape)


def _docstrings() -> sparse.csr_array:
    from scirocco_latent.lda.embedded import embedded_corpus

    return sparse.csr_array(embedded_corpus()[0])


def score(held: sparse.csr_array, topics: np.ndarray) -> float:
    """Perplexity of document completion, given one matrix of topics."""
    from scirocco_latent.lda import prediction
    from scirocco_latent.lda.corpus import as_corpus

    corpus = as_corpus(held)
    seen, hidden = prediction.split(corpus.take_csr(np.arange(corpus.num_documents)))
    how = prediction.FoldIn(np.full(len(topics), 0.1), 40, 10, 1, 0)
    return prediction.perplexity(seen, hidden, [topics.astype(np.float32)], how)


def tomotopy(python: str, X: sparse.csr_array, num_topics: int, seconds: float) -> dict[float, np.ndarray]:
    """Topics after so many CPU seconds, for each β."""
    folder, out = Path(tempfile.mkdtemp()), {}
    np.savez(folder / "corpus.npz", indptr=X.indptr, indices=X.indices, counts=X.data, shape=X.shape)
    here = Path(__file__).parent
    for beta in BETAS:
        options = ["--topics", str(num_topics), "--alpha", "0.1", "--beta", str(beta), "--marks", f"{seconds:.1f}"]
        command = [python, here / "rivals" / "lda_tomotopy.py", folder / "corpus.npz", folder / "out.npz", *options]
        paths = os.pathsep.join([str(here), str(here / "rivals")])
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.DEVNULL)
        with np.load(folder / "out.npz") as file:
            out[beta] = file["topics"][-1]
    return out


def main() -> None:
    """Print a line for each corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", default=[*FILES, "docstrings"])
    parser.add_argument("--topics", type=int, nargs="+", default=[50])
    parser.add_argument("--documents", type=int, default=60_000, help="the most documents of a corpus")
    parser.add_argument("--other", help="a Python that has tomotopy")
    options = parser.parse_args()
    import scirocco as sc

    warm = np.random.default_rng(0).poisson(0.3, (50, 30))
    sc.models.LDA(30, num_threads=1, num_chains=1).fit(warm, num_epochs=2, progress=False)  # compile
    for name in options.corpora:
        X, held = read(name, options.documents)
        for num_topics in options.topics:
            began = time.process_time()
            lda = sc.models.LDA(num_topics, num_threads=1, num_chains=1).fit(X, progress=False)
            seconds = time.process_time() - began
            ours = score(held, lda.components_)
            line = f"{name:14} K {num_topics:4}  {X.shape[0]:6,} documents  {seconds:6.1f} CPU s  ours {ours:8.1f}"
            if options.other:
                found = {
                    beta: score(held, topics)
                    for beta, topics in tomotopy(options.other, X, num_topics, seconds).items()
                }
                best = min(found, key=found.__getitem__)
                line += f"  tomotopy {found[best]:8.1f} (beta {best})  ratio {ours / found[best]:.3f}"
            print(line + ("  (defaults were chosen on it)" if name in CHOSEN_ON else ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
