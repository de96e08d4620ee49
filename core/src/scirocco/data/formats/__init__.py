"""Readers for other file formats, and the one-pass conversion to a data folder."""
