"""Rows and their classes: forest cover types (as the two-class problem of the papers) and handwritten digits."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scirocco.datasets.files import Arrays, DownloadRecipe, Entry, File, Folder, Original, find

QUANTITATIVE = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
)
_AREAS, _SOILS = 4, 40  # wilderness areas and soil types


def make_covertype(files: list[Path]) -> Arrays:
    """covtype.data.gz: 55 integers per row."""
    with gzip.open(files[0], "rt", encoding="ascii") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int16)
    first, second = len(QUANTITATIVE), len(QUANTITATIVE) + _AREAS
    return {
        "quantT": np.ascontiguousarray(table[:, :first].T),
        "quant_names": np.array(QUANTITATIVE),
        "wilderness": table[:, first:second].argmax(axis=1).astype(np.uint8),
        "soil": table[:, second : second + _SOILS].argmax(axis=1).astype(np.uint8),
        "cover_type": table[:, -1].astype(np.uint8),
    }


def make_mnist(files: list[Path]) -> Arrays:
    """Four files of bytes with idx headers."""
    names = ("x_train", "y_train", "x_test", "y_test")
    return {name: _idx(path) for name, path in zip(names, files, strict=True)}


def _idx(path: Path) -> np.ndarray:
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


COVERTYPE = Entry(
    "covertype",
    (File("covertype.npz", "4255b002eae080e54c323a72a25f54699b7e329a6fd20c65bf154564042710bd", 5_224_053),),
    "Covertype of UCI (Blackard and Dean 1999): covtype.data",
    "The .npz holds the ten quantitative columns, a row each (quantT, quant_names), the numbers of the wilderness area "
    "(0 to 3) and of the soil type (0 to 39) in place of 44 columns of zeros and ones (wilderness, soil), and the "
    "class 1 to 7 (cover_type), all in the original order.",
    "reuse is unlimited with retention of the notice: Copyright Jock A. Blackard and Colorado State University.",
    DownloadRecipe(
        (
            Original(
                "covtype.data.gz",
                "https://ndownloader.figshare.com/files/5976039",
                "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            ),
        ),
        make_covertype,
        "b6922c4e852954dea3cfbe56789d121b7e747b17829f7e2f10a316c8553aed71",
    ),
)
SECOND = 2
"""The positive class: lodgepole pine, about half of the rows."""


class Covertype(NamedTuple):
    """Patches of forest and whether their cover type is the second."""

    X: np.ndarray
    """(581012, 54): ten measured columns, then 4 wilderness areas and 40 soil types as zeros and ones."""
    y: np.ndarray
    """int8: 1 for class 2, 0 for the other six; with `raw` the classes 1 to 7."""
    names: tuple[str, ...]
    """Names of the columns."""
    source: str
    """Origin and licence."""


def covertype(folder: Folder = None, *, raw: bool = False) -> Covertype:
    """581,012 patches, 54 features scaled to [0, 1], class 2 (48.8 % of the rows) against the rest.

    Every column is scaled by its smallest and largest value, as in LIBSVM's `covtype.libsvm.binary.scale`. There is no
    column of ones: the wilderness areas sum to one, and so do the soil types. Soil type 15 has only three patches, so
    the posterior of the coefficients has very different scales.

    Parameters
    ----------
    folder
        Folder with the file, or with a subfolder `covertype` that has it. Default: see `scirocco.datasets`.
    raw
        Return the original values (int16) and all seven classes.

    Returns
    -------
    Covertype
        With `X` (float32), `y`, `names` and `source`.

    Examples
    --------
    >>> from scirocco import datasets
    >>> data = datasets.covertype()                    # doctest: +SKIP
    >>> data.X.shape, int(data.y.sum())                # doctest: +SKIP
    ((581012, 54), 283301)
    """
    path = find(COVERTYPE, folder)["covertype.npz"]
    with np.load(path) as stored:
        measured, areas, soils, classes = (stored[name] for name in ("quantT", "wilderness", "soil", "cover_type"))
        names = tuple(str(name) for name in stored["quant_names"])
    names += tuple(f"Wilderness_Area{number}" for number in range(1, _AREAS + 1))
    names += tuple(f"Soil_Type{number}" for number in range(1, _SOILS + 1))
    X = np.zeros((len(classes), len(names)), np.int16 if raw else np.float32)
    for column, values in enumerate(measured):
        X[:, column] = values if raw else _unit(values)
    rows, first = np.arange(len(X)), len(measured)
    X[rows, first + areas] = 1
    X[rows, first + _AREAS + soils] = 1
    y = classes.astype(np.int8) if raw else (classes == SECOND).astype(np.int8)
    source = COVERTYPE.source(path)
    return Covertype(X, y, names, source)


def _unit(values: np.ndarray) -> Any:
    """Scale values linearly to [0, 1]."""
    low, high = float(values.min()), float(values.max())
    return (values.astype(np.float32) - np.float32(low)) / np.float32(high - low)


MNIST = Entry(
    "mnist",
    (File("mnist.npz", "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64", 11_490_519),),
    "MNIST (LeCun and Cortes 2010): train-images-idx3-ubyte, t10k-images-idx3-ubyte and their labels",
    "The .npz holds the four files as arrays of bytes in the original order, under the names x_train, y_train, x_test "
    "and y_test.",
    "CC BY-SA 3.0: copyright Yann LeCun and Corinna Cortes, derived from data of NIST.",
    DownloadRecipe(
        tuple(
            Original(f"{name}.gz", f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz", f"md5:{md5}")
            for name, md5 in (
                ("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                ("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432"),
                ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
                ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
            )
        ),
        make_mnist,
        "51ea33bae9f51e6756a3648edb97929917a6645bdcda51a9229a2a37956685cd",
    ),
)


class Digits(NamedTuple):
    """Images of digits, and their labels."""

    X: np.ndarray
    """(60000, 28, 28), uint8: 0 is paper, 255 is ink."""
    y: np.ndarray
    """(60000,), uint8: 0 to 9."""
    X_test: np.ndarray
    """(10000, 28, 28), by other writers."""
    y_test: np.ndarray
    source: str
    """Origin and licence."""


def mnist(folder: Folder = None) -> Digits:
    """60,000 images of handwritten digits for training and 10,000 for testing, 28 × 28 bytes each.

    Parameters
    ----------
    folder
        Folder with the file, or with a subfolder `mnist` that has it. Default: see `scirocco.datasets`.

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
    path = find(MNIST, folder)["mnist.npz"]
    with np.load(path) as stored:
        X, y, X_test, y_test = (stored[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    source = MNIST.source(path)
    return Digits(X, y, X_test, y_test, source)
