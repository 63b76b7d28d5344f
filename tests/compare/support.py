"""What the tests of tools/compare and tools/measure share."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import measure  # noqa: E402  (the path above must come first)

STUB = Path(__file__).with_name("stub.py")


def stub(mode: str) -> measure.ServerSpec:
    """The lying server as a contestant."""
    return measure.ServerSpec(name=f"stub-{mode}", command=["/usr/bin/python3", str(STUB), mode, "{port}"])
