"""Rows of the nn ops."""
