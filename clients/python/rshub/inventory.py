"""Resources of a set and their digests, as docs/audit.md of rshub specifies them. This module, docs/audit.py and the hub
are tested with the vectors in internal/inventory/audit/testdata/digest.json."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import re
from datetime import datetime, timezone
from typing import Any, Dict, Iterable, List, Optional, Tuple

Range = Dict[str, Any]  # "from", "to", "count", "digest"

_FRACTION = re.compile(r"\.(\d+)")


def lastmod(text: str) -> str:
    """Formats a lastmod as a hub does: in UTC with Z, without trailing zeros. A time without a zone is in UTC, and a date
    means its midnight."""
    if not text:
        return ""
    fraction = _FRACTION.search(text)
    digits = fraction.group(1).rstrip("0") if fraction else ""
    whole = _FRACTION.sub("", text, count=1)
    try:
        at = datetime.fromisoformat(whole[:-1] + "+00:00" if whole[-1] in "zZ" else whole)
    except ValueError:
        raise ValueError(f"invalid lastmod {text!r}: want a datetime such as 2024-01-02T03:04:05Z") from None
    at = at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{digits}Z" if digits else "Z")


def version(resource: Dict[str, Any], by: str) -> str:
    """Returns the version of a resource by "position" or by "content"."""
    if by == "position":
        return str(resource["position"])
    hashes = (resource.get("hash") or "").lower().split()
    if hashes:
        return next((h for h in hashes if h.startswith("sha-256:")), min(hashes))
    length = resource.get("length")
    return f"{lastmod(resource.get('lastmod') or '')};{'' if length is None else length}"


def element(loc: str, version: str) -> bytes:
    """Returns the element of a resource, which has 32 bytes."""
    return hashlib.sha256(f"{loc}\n{version}".encode()).digest()


def digest(total: int, count: int) -> str:
    """Returns the digest of a range whose count elements have the sum total."""
    varint = [count & 127]
    while count := count >> 7:
        varint.insert(0, count & 127 | 128)
    return hashlib.sha256((total % 2**256).to_bytes(32, "little") + bytes(varint)).hexdigest()[:32]


def prefix_end(prefix: str) -> Optional[str]:
    """Returns the exclusive end of the range of all locs with a prefix; None if it has no end."""
    while prefix:
        if prefix[-1] < "\U0010ffff":
            return prefix[:-1] + chr(0xE000 if prefix[-1] == "\ud7ff" else ord(prefix[-1]) + 1)
        prefix = prefix[:-1]
    return None


class Inventory:
    """Resources in the order of loc, with running sums, so that the digest of a range takes two searches and a subtraction.
    It uses about 250 bytes of memory per resource. by is "position" or "content"."""

    def __init__(self, resources: Iterable[Dict[str, Any]], by: str) -> None:
        every = sorted((r["loc"], element(r["loc"], version(r, by))) for r in resources)
        self.by = by
        self.locs = [loc for loc, _ in every]
        self.elements = [e for _, e in every]
        for one, next_ in zip(self.locs, itertools.islice(self.locs, 1, None)):
            if one == next_:
                raise ValueError(f"duplicate resource {one}")
        self._sums = list(itertools.accumulate((int.from_bytes(e, "little") for e in self.elements), initial=0))

    def __len__(self) -> int:
        return len(self.locs)

    def span(self, begin: Optional[str], end: Optional[str]) -> Tuple[int, int]:
        """Returns the indexes of the locs from begin (inclusive) to end (exclusive). None means the start or the end."""
        return bisect.bisect_left(self.locs, begin or ""), bisect.bisect_left(self.locs, end) if end else len(self.locs)

    def range(self, begin: Optional[str] = None, end: Optional[str] = None) -> Range:
        """Returns a range with its count and digest, as in a question."""
        i, j = self.span(begin, end)
        return {"from": begin, "to": end, "count": j - i, "digest": digest(self._sums[j] - self._sums[i], j - i)}

    def cut(self, begin: Optional[str], end: Optional[str], n: int) -> List[Range]:
        """Returns a range as at most n parts of about equal count."""
        i, j = self.span(begin, end)
        step = max(1, -(-(j - i) // n))
        bounds = [begin, *self.locs[i + step : j : step], end]
        return [self.range(a, b) for a, b in zip(bounds, bounds[1:])]
