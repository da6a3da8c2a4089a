"""Rows of the index ops."""
