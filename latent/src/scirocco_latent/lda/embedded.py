"""A corpus that needs no download: the docstrings of installed scientific packages."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scirocco._checks import positive_int
from scirocco._extras import require
from scirocco.errors import InvalidTypeError, InvalidValueError
from scirocco_latent.lda.sizes import FITTING

PACKAGES = ("numpy", "scipy", "jax", "optax", "arviz")
"""Packages that are read by default, if installed."""
# of a text, of a word (documents)
LEAST_WORDS, LEAST_DOCUMENTS = 20, 5
STOP_WORDS = frozenset(
    """
    about above after all also although always and another any are aren because been before being below between both
    but can cannot could did does doesn doing don done down during each either else even every few first for from
    further get gets give given gives had has have having hence her here him his how however if into its itself just
    last least less let like made make makes many may maybe might more most much must near need needs neither never
    next non none nor not note now off often once one ones only onto other others otherwise our out over own per
    perhaps rather same second see seen several shall she should since some still such take than that the their them
    then there therefore these they this those though three through thus too toward two under unless until upon use
    used uses using usual usually very via was way ways were what when where whether which while who whose why will
    with within without would yes yet you your http https www com org doi
    """.split()
)
"""English stop words, and parts of URLs."""

_WORD = re.compile(r"[a-z]{3,}")
_SKIPPED = {"tests", "test", "_testing", "conftest.py", "_vendor", "_lib", "f2py"}


def embedded_corpus(
    packages: Sequence[str] = PACKAGES, max_documents: int | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Word counts of the docstrings of installed packages; nothing is downloaded or imported.

    A document is the docstring of a module, or of a public class, function or method, with at least 20 words;
    duplicates are used once. Files are parsed, not run. Words are sequences of three or more letters in lower case,
    without stop words; the vocabulary has the words in at least 5 documents and at most 40 % of them, in alphabetical
    order. The result depends only on the installed versions and is cached in memory.

    Parameters
    ----------
    packages
        Names of top-level packages. Those that are not installed are skipped.
    max_documents
        Use a sample of at most this many documents: always the same one, spread over all packages.

    Returns
    -------
    counts, vocabulary
        A SciPy CSR array of int32, documents × words, and the words.

    Examples
    --------
    >>> counts, vocabulary = embedded_corpus(("optax",), max_documents=200)
    >>> counts.shape == (200, len(vocabulary)), "gradient" in vocabulary
    (True, True)
    """
    if isinstance(packages, str) or not all(isinstance(name, str) for name in packages):
        raise InvalidTypeError(f'`packages` must be a sequence of names, e.g. ("numpy",), got {packages!r}.')
    limit = None if max_documents is None else positive_int(max_documents, "max_documents")
    counts, vocabulary = counted(tuple(packages), limit)
    return counts.copy(), vocabulary  # the caller may modify the copy


@functools.lru_cache(maxsize=4)
def counted(packages: tuple[str, ...], max_documents: int | None) -> tuple[Any, tuple[str, ...]]:
    """Word counts and the vocabulary of the docstrings of these packages."""
    texts = texts_of(packages)
    if max_documents is not None and len(texts) > max_documents:
        # in the order of a hash, independent of packages: a random sample that is always the same
        chosen = sorted(range(len(texts)), key=lambda i: hashlib.sha256(texts[i].encode()).digest())
        texts = [texts[i] for i in sorted(chosen[:max_documents])]
    bags = [Counter(tokens(text)) for text in texts]
    seen_in = Counter(word for bag in bags for word in bag)
    most = FITTING.word_share * len(bags)
    vocabulary = tuple(sorted(word for word, n in seen_in.items() if LEAST_DOCUMENTS <= n <= most))
    if not vocabulary:
        raise InvalidValueError(
            f"{len(bags)} docstrings were found in {', '.join(packages) or 'no package'}: too few for a corpus. Pass "
            f"installed packages with documentation, such as {PACKAGES}, or increase max_documents."
        )
    return _matrix(bags, vocabulary), vocabulary


def _matrix(bags: list[Counter[str]], vocabulary: tuple[str, ...]) -> Any:
    sparse = require("scipy.sparse", "the embedded corpus")
    number = {word: i for i, word in enumerate(vocabulary)}
    rows = [sorted((number[word], n) for word, n in bag.items() if word in number) for bag in bags]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    words = np.array([word for row in rows for word, _ in row], np.int32)
    counts = np.array([n for row in rows for _, n in row], np.int32)
    return sparse.csr_array((counts, words, indptr), shape=(len(rows), len(vocabulary)))


def tokens(text: str) -> list[str]:
    """Words of three or more letters in lower case, without stop words.

    Examples
    --------
    >>> tokens("The FFT of a 2-D array, and its axes.")
    ['fft', 'array', 'axes']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


def texts_of(packages: Iterable[str]) -> list[str]:
    """The docstrings of these packages."""
    texts: dict[str, None] = {}
    for package in packages:
        for path in _files(package):
            for text in _docstrings(path):
                if len(text.split()) >= LEAST_WORDS:
                    texts.setdefault(text)
    return list(texts)


def _files(package: str) -> Iterator[Path]:
    """The Python files of a package in a fixed order; finding a top-level package does not import it."""
    if "." in package:
        raise InvalidValueError(f"{package!r} is not a top-level package; use {package.partition('.')[0]!r}.")
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).rglob("*.py"), key=lambda path: path.as_posix()):
            inside = path.relative_to(folder).parts
            if not (_SKIPPED.intersection(inside) or inside[-1].startswith("test_")):
                yield path


def _docstrings(path: Path) -> Iterator[str]:
    try:
        source = path.read_bytes()
        if b'"""' not in source and b"'''" not in source:
            return  # parsing is the slow part
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party strings
            module = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return
    yield from _inside(module)


def _inside(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    text = ast.get_docstring(node)
    if text:
        yield text
    for child in node.body if isinstance(node, (ast.Module, ast.ClassDef)) else ():
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if not child.name.startswith("_"):
                yield from _inside(child)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _added(child.value)


def _added(call: ast.Call) -> Iterator[str]:
    """Docstrings of C functions, from calls of `add_newdoc(..., name, text)` (NumPy, SciPy)."""
    if isinstance(call.func, ast.Name) and call.func.id == "add_newdoc":
        strings = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant)]
        texts = [inspect.cleandoc(string) for string in strings if isinstance(string, str)]
        if texts:
            yield max(texts, key=len)
