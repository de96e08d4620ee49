"""Validation of model inputs: tables of features, class labels, numeric targets."""

from scirocco.models.inputs.tables import ColumnLike, Features, TableLike, column_name, features, float_type
from scirocco.models.inputs.targets import labels, targets

__all__ = [
    "ColumnLike",
    "Features",
    "TableLike",
    "column_name",
    "features",
    "float_type",
    "labels",
    "targets",
]
