"""Markup, tables and charts of reports as text. This room knows neither runs nor models."""

__all__: list[str] = []
