"""Reports: one HTML file a run, which opens anywhere without a network."""

from scirocco.report.writing import Report, html, show, write

__all__ = ["Report", "html", "show", "write"]
