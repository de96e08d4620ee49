"""Markup, tables and charts of reports as text. This package depends on neither runs nor models."""

__all__: list[str] = []
