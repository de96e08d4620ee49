"""Readers for other people's formats, and the one pass that turns them into a data folder."""
