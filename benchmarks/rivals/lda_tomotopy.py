"""tomotopy's collapsed Gibbs sampler, topics saved at marks of time.

    python rivals/lda_tomotopy.py corpus.npz tomotopy.npz --marks 5 15 30 60

Adding the documents is not timed; the hyper-parameters are fixed, as they are for the others, unless
`--optimize` asks for tomotopy's own updates of α.
"""

import itertools

import lda_marks
import numpy as np
import tomotopy


def main():
    parser = lda_marks.arguments(__doc__)
    parser.add_argument("--optimize", type=int, default=0, help="update alpha every so many sweeps")
    options = parser.parse_args()
    indptr, indices, counts, (num_documents, num_words) = lda_marks.read(options.corpus)
    model = tomotopy.LDAModel(
        k=options.topics, alpha=options.alpha, eta=options.beta, seed=options.seed, tw=tomotopy.TermWeight.ONE
    )
    model.optim_interval = options.optimize
    names = np.array([str(i) for i in range(num_words)])
    for a, b in itertools.pairwise(indptr):
        model.add_doc(names[np.repeat(indices[a:b], counts[a:b])].tolist())
    marks = lda_marks.Marks(options.marks, options.document_marks, options.clock)
    marks.begin()
    model.train(0, workers=1)
    sweeps, going = 0, True
    while going:
        model.train(1, workers=1)
        sweeps += 1
        going = marks.look(sweeps * num_documents, lambda: topics(model, num_words, options.beta))
    marks.save(options.out)


def topics(model, num_words, beta):
    """All words: those without a token have only their prior weight, which tomotopy leaves out."""
    columns = np.array([int(word) for word in model.used_vocabs])
    full = np.empty((model.k, num_words), np.float32)
    full[:] = (beta / (model.get_count_by_topics() + beta * num_words))[:, None]
    for topic in range(model.k):
        full[topic, columns] = model.get_topic_word_dist(topic)
    return full


if __name__ == "__main__":
    main()
