"""scikit-learn's online variational LDA on the synthetic corpus, topics saved at marks of CPU time.

    python rivals/lda_sklearn.py corpus.npz sklearn.npz --marks 5 15 30 60

The corpus is what `lda_corpus.py --save` writes.
"""

import argparse
import time

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import LatentDirichletAllocation


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--marks", type=float, nargs="+", default=[5.0, 15.0, 30.0, 60.0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--beta", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--offset", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = np.load(options.corpus)
    counts = sp.csr_matrix((data["counts"], data["indices"], data["indptr"]), shape=tuple(data["shape"]))
    counts = counts[np.random.default_rng(options.seed).permutation(counts.shape[0])]
    start = time.process_time()
    model = LatentDirichletAllocation(
        n_components=options.topics,
        doc_topic_prior=options.alpha,
        topic_word_prior=options.beta,
        learning_method="online",
        learning_decay=options.decay,
        learning_offset=options.offset,
        batch_size=options.batch,
        total_samples=counts.shape[0],
        n_jobs=1,
        random_state=options.seed,
    )
    cpu, topics, seen, own = [], [], 0, 0.0
    for mark in options.marks:
        while time.process_time() - start - own < mark:
            first = seen % counts.shape[0]
            batch = counts[first : first + options.batch]
            model.partial_fit(batch)
            seen += batch.shape[0]
        before = time.process_time()
        cpu.append(before - start - own)
        topics.append(model.components_.astype(np.float32))
        own += time.process_time() - before  # what saving takes is not the model's time
    np.savez(options.out, cpu_s=cpu, topics=np.stack(topics), documents_seen=seen)


if __name__ == "__main__":
    main()
