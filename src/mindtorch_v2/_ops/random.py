"""Rows of the random ops."""
