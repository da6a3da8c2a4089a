"""The Ascend backend: CANN called directly. The interface that the core uses is in backend.py."""
