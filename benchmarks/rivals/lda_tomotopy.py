"""tomotopy's collapsed Gibbs sampler on the synthetic corpus, topics saved at marks of CPU time.

    python rivals/lda_tomotopy.py corpus.npz tomotopy.npz --marks 5 15 30 60 --beta 0.05

Adding the documents is not timed; the hyper-parameters are fixed, as they are for the others, unless
`--optimize` asks for tomotopy's own updates of α.
"""

import argparse
import itertools
import time

import numpy as np
import tomotopy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--marks", type=float, nargs="+", default=[5.0, 15.0, 30.0, 60.0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--beta", type=float, default=0.05)
    parser.add_argument("--optimize", type=int, default=0, help="update alpha every so many sweeps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = np.load(options.corpus)
    indptr, indices, counts = (data[name] for name in ("indptr", "indices", "counts"))
    num_words = int(data["shape"][1])
    model = tomotopy.LDAModel(
        k=options.topics, alpha=options.alpha, eta=options.beta, seed=options.seed, tw=tomotopy.TermWeight.ONE
    )
    model.optim_interval = options.optimize
    names = np.array([str(i) for i in range(num_words)])
    for a, b in itertools.pairwise(indptr):
        model.add_doc(names[np.repeat(indices[a:b], counts[a:b])].tolist())
    start = time.process_time()
    model.train(0, workers=1)
    columns = np.array([int(word) for word in model.used_vocabs])
    cpu, topics, own = [], [], 0.0
    for mark in options.marks:
        while time.process_time() - start - own < mark:
            model.train(1, workers=1)
        before = time.process_time()
        cpu.append(before - start - own)
        full = np.full((options.topics, num_words), 0.0, np.float32)
        for topic in range(options.topics):
            full[topic, columns] = model.get_topic_word_dist(topic)
        # words without a token have only their prior weight, which tomotopy leaves out
        missing = np.setdiff1d(np.arange(num_words), columns)
        tokens = model.get_count_by_topics()
        full[:, missing] = (options.beta / (tokens + options.beta * num_words))[:, None]
        topics.append(full)
        own += time.process_time() - before  # what saving takes is not the model's time
    np.savez(options.out, cpu_s=cpu, topics=np.stack(topics), sweeps=model.global_step)


if __name__ == "__main__":
    main()
