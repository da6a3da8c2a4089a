"""The Ascend backend: CANN called directly. What the core asks of it is in backend.py."""
