"""``python -m hyper_conformance PLATFORM ...``: print the page of all cases, in Markdown."""

from __future__ import annotations

import sys

from hyper_conformance.harness import find_harness
from hyper_conformance.report import page

if __name__ == "__main__":
    sys.stdout.write(page([find_harness(name) for name in sys.argv[1:]]))
