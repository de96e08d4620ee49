"""gensim's online variational LDA, topics saved at marks of time or of documents.

    python rivals/lda_gensim.py corpus.npz gensim.npz --marks 5 15 30 60

The corpus is what `lda_corpus.py --save` writes; making gensim's lists of pairs is not timed.
"""

import itertools

import lda_marks
from gensim.models import LdaModel


def main():
    parser = lda_marks.arguments(__doc__)
    parser.add_argument("--batch", type=int, default=2_000)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--offset", type=float, default=1.0)
    parser.add_argument("--inner", type=int, default=50, help="iterations for a document, at most")
    options = parser.parse_args()
    indptr, indices, counts, (num_documents, num_words) = lda_marks.read(options.corpus)
    documents = [
        list(zip(indices[a:b].tolist(), counts[a:b].tolist(), strict=True))
        for a, b in itertools.pairwise(indptr)
    ]
    marks = lda_marks.Marks(options.marks, options.document_marks, options.clock)
    marks.begin()
    model = LdaModel(
        id2word={i: str(i) for i in range(num_words)},
        num_topics=options.topics,
        alpha=options.alpha,
        eta=options.beta,
        chunksize=options.batch,
        iterations=options.inner,
        decay=options.decay,
        offset=options.offset,
        eval_every=None,
        random_state=options.seed,
    )
    seen, going = 0, True
    while going:
        first = seen % num_documents
        batch = documents[first : first + options.batch]
        # gensim scales a batch up to all documents it knows of, and counts each batch as new ones
        model.state.numdocs = num_documents - len(batch)
        model.update(batch, chunksize=options.batch, passes=1, update_every=1)
        seen += len(batch)
        going = marks.look(seen, model.get_topics)
    marks.save(options.out)


if __name__ == "__main__":
    main()
