"""gensim's online variational LDA on the synthetic corpus, topics saved at marks of CPU time.

    python rivals/lda_gensim.py corpus.npz gensim.npz --marks 5 15 30 60

The corpus is what `lda_corpus.py --save` writes; making gensim's lists of pairs is not timed.
"""

import argparse
import itertools
import time

import numpy as np
from gensim.models import LdaModel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--marks", type=float, nargs="+", default=[5.0, 15.0, 30.0, 60.0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--beta", type=float, default=0.05)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--offset", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = np.load(options.corpus)
    indptr, indices, counts = (data[name] for name in ("indptr", "indices", "counts"))
    num_documents, num_words = data["shape"]
    documents = [
        list(zip(indices[a:b].tolist(), counts[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(indptr)
    ]
    start = time.process_time()
    model = LdaModel(
        id2word={i: str(i) for i in range(num_words)},
        num_topics=options.topics,
        alpha=options.alpha,
        eta=options.beta,
        chunksize=options.batch,
        decay=options.decay,
        offset=options.offset,
        eval_every=None,
        random_state=options.seed,
    )
    order = np.random.default_rng(options.seed).permutation(num_documents)
    cpu, topics, seen, own = [], [], 0, 0.0
    for mark in options.marks:
        while time.process_time() - start - own < mark:
            first = seen % num_documents
            batch = [documents[i] for i in order[first : first + options.batch]]
            # gensim scales a batch up to all documents it knows of, and counts each batch as new ones
            model.state.numdocs = num_documents - len(batch)
            model.update(batch, chunksize=options.batch, passes=1, update_every=1)
            seen += len(batch)
        before = time.process_time()
        cpu.append(before - start - own)
        topics.append(model.get_topics().astype(np.float32))
        own += time.process_time() - before  # what saving takes is not the model's time
    np.savez(options.out, cpu_s=cpu, topics=np.stack(topics), documents_seen=seen)


if __name__ == "__main__":
    main()
