"""Every op by name, for composites, formulas and what describes ops; table.py fills it. Imports no other file of the table."""
from __future__ import annotations

import types

ops = types.SimpleNamespace()
