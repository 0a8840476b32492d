"""What somebody holds of a set, and its digests. docs/audit.md of rshub is the specification, and the vectors in
internal/inventory/audit/testdata/digest.json hold this module, docs/audit.py and the hub to it."""

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
    """Writes a lastmod as a hub does: in UTC with Z, and without needless zeros. A time without a zone is in UTC, and
    a date is its midnight."""
    if not text:
        return ""
    fraction = _FRACTION.search(text)
    digits = fraction.group(1).rstrip("0") if fraction else ""
    whole = _FRACTION.sub("", text, count=1)
    try:
        at = datetime.fromisoformat(whole[:-1] + "+00:00" if whole[-1] in "zZ" else whole)
    except ValueError:
        raise ValueError(f"the lastmod {text!r} is no datetime such as 2024-01-02T03:04:05Z") from None
    at = at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{digits}Z" if digits else "Z")


def version(resource: Dict[str, Any], by: str) -> str:
    """The version of a resource, by "position" or by "content"."""
    if by == "position":
        return str(resource["position"])
    hashes = (resource.get("hash") or "").lower().split()
    if hashes:
        return next((h for h in hashes if h.startswith("sha-256:")), min(hashes))
    length = resource.get("length")
    return f"{lastmod(resource.get('lastmod') or '')};{'' if length is None else length}"


def element(loc: str, version: str) -> bytes:
    """The element of a resource: 32 bytes."""
    return hashlib.sha256(f"{loc}\n{version}".encode()).digest()


def digest(total: int, count: int) -> str:
    """The digest of a range whose elements have this sum."""
    varint = [count & 127]
    while count := count >> 7:
        varint.insert(0, count & 127 | 128)
    return hashlib.sha256((total % 2**256).to_bytes(32, "little") + bytes(varint)).hexdigest()[:32]


def behind(prefix: str) -> Optional[str]:
    """Where the range of all locs with a prefix ends; None: at the end."""
    while prefix:
        if prefix[-1] < "\U0010ffff":
            return prefix[:-1] + chr(0xE000 if prefix[-1] == "\ud7ff" else ord(prefix[-1]) + 1)
        prefix = prefix[:-1]
    return None


class Inventory:
    """Resources in the order of loc, with running sums: the digest of any range is two searches and a subtraction.
    It needs about 250 bytes of memory for a resource. by is "position" or "content"."""

    def __init__(self, resources: Iterable[Dict[str, Any]], by: str) -> None:
        every = sorted((r["loc"], element(r["loc"], version(r, by))) for r in resources)
        self.by = by
        self.locs = [loc for loc, _ in every]
        self.elements = [e for _, e in every]
        for one, next_ in zip(self.locs, itertools.islice(self.locs, 1, None)):
            if one == next_:
                raise ValueError(f"{one} is there twice")
        self._sums = list(itertools.accumulate((int.from_bytes(e, "little") for e in self.elements), initial=0))

    def __len__(self) -> int:
        return len(self.locs)

    def span(self, begin: Optional[str], end: Optional[str]) -> Tuple[int, int]:
        """The indexes of the locs from begin on, up to and without end; None: the beginning, or the end."""
        return bisect.bisect_left(self.locs, begin or ""), bisect.bisect_left(self.locs, end) if end else len(self.locs)

    def range(self, begin: Optional[str] = None, end: Optional[str] = None) -> Range:
        """A range with its count and digest, as a question has it."""
        i, j = self.span(begin, end)
        return {"from": begin, "to": end, "count": j - i, "digest": digest(self._sums[j] - self._sums[i], j - i)}

    def cut(self, begin: Optional[str], end: Optional[str], n: int) -> List[Range]:
        """A range as at most n parts, about equal in number."""
        i, j = self.span(begin, end)
        step = max(1, -(-(j - i) // n))
        bounds = [begin, *self.locs[i + step : j : step], end]
        return [self.range(a, b) for a, b in zip(bounds, bounds[1:])]
