"""Validation of model inputs: tables of features, class labels, numeric targets."""

from scirocco.models.inputs.tables import ColumnLike, Features, TableLike, Units, column_name, features, float_type
from scirocco.models.inputs.targets import gamma_law, labels, targets

__all__ = [
    "ColumnLike",
    "Features",
    "TableLike",
    "Units",
    "column_name",
    "features",
    "float_type",
    "gamma_law",
    "labels",
    "targets",
]
