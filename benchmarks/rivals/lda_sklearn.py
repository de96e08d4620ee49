"""scikit-learn's online variational LDA, topics saved at marks of time or of documents.

    python rivals/lda_sklearn.py corpus.npz sklearn.npz --marks 5 15 30 60

The corpus is what `lda_corpus.py --save` writes. With `--one-pass` it ends when every document has been seen.
"""

import lda_marks
import scipy.sparse as sp
from sklearn.decomposition import LatentDirichletAllocation


def main():
    parser = lda_marks.arguments(__doc__)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--decay", type=float, default=0.5)
    parser.add_argument("--offset", type=float, default=1.0)
    parser.add_argument("--inner", type=int, default=100, help="iterations for a document, at most")
    parser.add_argument("--one-pass", action="store_true")
    options = parser.parse_args()
    indptr, indices, counts, shape = lda_marks.read(options.corpus)
    documents = sp.csr_matrix((counts, indices, indptr), shape=shape)
    marks = lda_marks.Marks(options.marks, options.document_marks, options.clock)
    marks.begin()
    model = LatentDirichletAllocation(
        n_components=options.topics,
        doc_topic_prior=options.alpha,
        topic_word_prior=options.beta,
        learning_method="online",
        learning_decay=options.decay,
        learning_offset=options.offset,
        batch_size=options.batch,
        max_doc_update_iter=options.inner,
        total_samples=shape[0],
        n_jobs=1,
        random_state=options.seed,
    )
    seen, going = 0, True
    while going and not (options.one_pass and seen >= shape[0]):
        first = seen % shape[0]
        batch = documents[first : first + options.batch]
        model.partial_fit(batch)
        seen += batch.shape[0]
        going = marks.look(seen, lambda: model.components_)
    marks.save(options.out)


if __name__ == "__main__":
    main()
