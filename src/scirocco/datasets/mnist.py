"""MNIST: 70,000 handwritten digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scirocco.datasets import making
from scirocco.datasets.files import Entry, File, Folder, find
from scirocco.datasets.originals import Original, Recipe

ENTRY = Entry(
    "mnist",
    (File("mnist.npz", "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64", 11_490_519),),
    "MNIST (LeCun and Cortes 2010): train-images-idx3-ubyte, t10k-images-idx3-ubyte and their labels",
    "The .npz holds the four files as arrays of bytes in the original order, under the names x_train, y_train, x_test "
    "and y_test.",
    "CC BY-SA 3.0: copyright Yann LeCun and Corinna Cortes, derived from data of NIST.",
    Recipe(
        tuple(
            Original(f"{name}.gz", f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz", f"md5:{md5}")
            for name, md5 in (
                ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
                ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
                ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
            )
        ),
        making.mnist,
        "51ea33bae9f51e6756a3648edb97929917a6645bdcda51a9229a2a37956685cd",
    ),
)


class Digits(NamedTuple):
    """Images of digits, and which digits they are."""

    X: np.ndarray
    """(60000, 28, 28), uint8: 0 is paper, 255 is ink."""
    y: np.ndarray
    """(60000,), uint8: 0 to 9."""
    X_test: np.ndarray
    """(10000, 28, 28), by other writers."""
    y_test: np.ndarray
    source: str
    """Where it comes from, and its licence."""


def mnist(folder: Folder = None) -> Digits:
    """60,000 images of handwritten digits for training and 10,000 for testing, 28 × 28 bytes each.

    Parameters
    ----------
    folder
        With the file, or with a folder `mnist` that has it. Default: see `scirocco.datasets`.

    Returns
    -------
    Digits
        With `X`, `y`, `X_test`, `y_test` and `source`.

    Examples
    --------
    >>> from scirocco import datasets
    >>> digits = datasets.mnist()                      # doctest: +SKIP
    >>> digits.X.shape, digits.X_test.shape            # doctest: +SKIP
    ((60000, 28, 28), (10000, 28, 28))
    """
    path = find(ENTRY, folder)["mnist.npz"]
    with np.load(path) as stored:
        X, y, X_test, y_test = (stored[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    source = f"{ENTRY.name}: {ENTRY.origin}. Licence: {ENTRY.licence} Read from {path}."
    return Digits(X, y, X_test, y_test, source)
