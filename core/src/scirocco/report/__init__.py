"""Reports: one self-contained HTML file per run, which opens in any browser without a network.

A model decides what its report shows, as a `View`; your own classes can do the same.
"""

from scirocco.drawing.markup import Html, Section
from scirocco.models._core.view import View
from scirocco.report.writing import Report, html, show, write

__all__ = ["Html", "Report", "Section", "View", "html", "show", "write"]
