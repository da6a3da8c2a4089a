"""python -m cann_sim is the command cann-sim."""

from .cli import main

raise SystemExit(main())
