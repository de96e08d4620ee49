"""scikit-learn's checks of estimators, with counts in place of their real numbers; and why some cannot apply."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("numba", reason="topic models need numba (the extra `compiled`)")
pytest.importorskip("sklearn", reason="its checks")

from scirocco.models import LDA

pytestmark = [pytest.mark.compile, pytest.mark.filterwarnings("ignore")]

CANNOT_APPLY = {
    "check_dtype_object": "an array of objects is a list of documents, each a list of words",
    "check_methods_sample_order_invariance": "topics of documents are drawn; the streams of random numbers have the "
    "numbers of the documents",
    "check_methods_subset_invariance": "the same",
    "check_complex_data": "complex counts are refused as other types are",
    "check_estimators_empty_data_messages": "other words: an empty corpus",
    "check_positive_only_tag_during_fit": "other words: the document and the word that have a negative count",
    "check_transformer_data_not_an_array": "counts cannot be made of its real numbers here",
}


def counts(X):
    """Real numbers as counts, with enough tokens to score."""
    if sparse.issparse(X):
        X = X.tocsr(copy=True)
        X.data = np.round(10 * X.data)
        return X
    is_real = isinstance(X, np.ndarray) and X.dtype.kind == "f" and np.isfinite(X).all()
    return np.round(10 * X) if is_real or hasattr(X, "columns") else X


class OfCounts(LDA):
    """An LDA that rounds what it is given."""

    def fit(self, X, y=None):
        return super().fit(counts(X), num_steps=12, progress=False)

    def partial_fit(self, X, y=None):
        return super().partial_fit(counts(X))

    def transform(self, X):
        return super().transform(counts(X))

    def fit_transform(self, X, y=None):
        return self.fit(X).transform(X)

    def score(self, X, y=None):
        return super().score(counts(X))

    def perplexity(self, X):
        return super().perplexity(counts(X))


def test_the_checks_of_scikit_learn():
    """All pass except those named above, and those need their reason."""
    checks = importlib.import_module("sklearn.utils.estimator_checks")
    model = OfCounts(2, num_samples=5, num_burnin=2, num_threads=1, growth=None)
    found = checks.check_estimator(model, on_fail=None, on_skip=None)
    failed = {each["check_name"]: str(each["exception"])[:300] for each in found if each["status"] == "failed"}
    assert failed.keys() == CANNOT_APPLY.keys(), {name: why for name, why in failed.items() if name not in CANNOT_APPLY}
    assert sum(each["status"] == "passed" for each in found) >= 35
