"""What the machine has."""

from __future__ import annotations

import os
from pathlib import Path


def available_memory() -> int:
    """Bytes that the system could give to the page cache, within the limits of a container."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    for path, name in (("/proc/meminfo", "MemAvailable:"), ("/sys/fs/cgroup/memory.max", "")):
        try:
            text = Path(path).read_text()
        except OSError:
            continue
        words = text.partition(name)[2].split() if name else text.split()
        if words and words[0].isdigit():
            room = min(room, int(words[0]) * (1024 if name else 1))
    return room
