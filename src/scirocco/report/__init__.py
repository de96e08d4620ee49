"""Reports: one HTML file a run, which opens anywhere without a network.

A model brings what a report shows of it: `View` says what, and objects of your own may do the same.
"""

from scirocco.drawing.markup import Html, Section
from scirocco.models.view import View
from scirocco.report.writing import Report, html, show, write

__all__ = ["Html", "Report", "Section", "View", "html", "show", "write"]
