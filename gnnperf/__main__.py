"""``python -m gnnperf``."""

from __future__ import annotations

import sys

from gnnperf.cli import main

sys.exit(main())
