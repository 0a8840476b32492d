"""Audits: a proof that nothing is missing, or every resource that differs. See docs/audit.md of rshub."""

from __future__ import annotations

import logging
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Union

from .errors import Error, GoneError, NotHubError
from .follow import position
from .inventory import Inventory, Range, lastmod, prefix_end, version
from .wire import is_a, not_hub_response, read_members

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("rshub")

Resources = Dict[str, Dict[str, Any]]  # by loc

FIRST_PARTS, SUBPARTS = 256, 8  # number of ranges in the first question, and of parts that a range is cut into
MAX_RANGES = 1024
MAX_AUDITS = 5  # how often an audit starts over because the hub no longer has the state
MAX_DETAILS = 64  # resources per request for details
STRENGTH = ("sha-512", "sha-384", "sha-256", "sha-224", "sha-1", "md5")


@dataclass
class Summary:
    """The state of a set at one cursor."""

    cursor: str
    complete: bool  # whether the hub knows all resources; if not, delete nothing because it is not in the set
    count: int
    weak: int  # number of resources whose only evidence is lastmod and length
    position: str  # digest by position
    content: str  # digest by content

    def digest(self, by: str) -> str:
        return self.position if by == "position" else self.content


@dataclass(frozen=True)
class Difference:
    """A resource that differs between the hub and the caller.

    kind is "missing" (only the hub has it), "extra" (only the caller has it), "stale" (both have it, and they differ) or
    "unknown" (both have it, without any evidence in common).
    """

    kind: str
    loc: str


def summary(client: Client, set_name: str, since: str = "", prefix: str = "") -> Summary:
    """See Client.summary."""
    url = client.set_url(set_name) + "/audit"
    query = {k: v for k, v in (("from", since), ("prefix", prefix)) if v}
    asked = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    members = (("set", str), ("cursor", str), ("complete", bool), ("count", int), ("position", str), ("content", str))
    answer = client.retry(lambda: read_members(client.request(asked), url, *members))
    if not is_a(answer.get("weak", 0), int):
        raise not_hub_response(url)
    if answer["set"] != set_name or since and position(answer["cursor"]) < position(since):
        raise NotHubError(f"{url}: got the state of {answer['set']} at {answer['cursor']}, want that of {set_name} at {since or 'any cursor'} or later")
    return Summary(answer["cursor"], answer["complete"], answer["count"], answer.get("weak", 0), answer["position"], answer["content"])


def compare(client: Client, set_name: str, own: Inventory, at: Summary, prefix: str = "", name: str = "") -> Iterator[Difference]:
    """Yields the differences between own, whose locs all have the prefix, and the hub's state at. If the digests are
    equal, the hub is told under name unless that is empty."""
    begin, end = prefix or None, prefix_end(prefix) if prefix else None
    whole = own.range(begin, end)
    if whole["count"] == at.count and whole["digest"] == at.digest(own.by):
        if name:
            _submit_proof(client, set_name, name, {"at": at.cursor, "by": own.by, "ranges": [whole]})
        return
    found = False
    todo = own.cut(begin, end, FIRST_PARTS)
    while todo:
        todo.sort(key=lambda r: r["from"] or "")
        asked, todo = todo[:MAX_RANGES], todo[MAX_RANGES:]
        answers = _ask(client, set_name, {"at": at.cursor, "by": own.by, "ranges": asked})
        for question in asked:
            parts = []
            while answers and (question["to"] is None or (answers[0]["from"] or "") < question["to"]):
                parts.append(answers.pop(0))
            _check_parts(question, parts)
            for part in parts:
                if "resources" not in part:  # a part of a range that differs; if it differs, too, ask about smaller parts
                    mine = own.range(part["from"], part["to"])
                    if (mine["count"], mine["digest"]) != (part["count"], part["digest"]):
                        todo += own.cut(part["from"], part["to"], SUBPARTS)
                    continue
                for difference in _compare_listed(own, part):
                    found = True
                    yield difference
        if answers:
            raise NotHubError(f"{client.hub}: got an answer about a range that was not in the question")
    if not found:
        raise NotHubError(f"{client.hub}: got no difference, although the digests differ")


def _ask(client: Client, set_name: str, question: Dict[str, Any], query: str = "") -> List[Range]:
    url = client.set_url(set_name) + "/audit"
    members = (("set", str), ("cursor", str), ("ranges", list))
    answer = client.retry(lambda: read_members(client.request(url + query, body=question), url, *members))
    if answer["set"] != set_name or answer["cursor"] != question["at"]:
        raise NotHubError(f"{url}: got an answer about {answer['set']} at {answer['cursor']}, want {set_name} at {question['at']}")
    ranges: List[Range] = answer["ranges"]
    for part in ranges:
        read_members(part, url, ("count", int))
        if any(not is_a(part.get(end, 0), str) and part.get(end, 0) is not None for end in ("from", "to")):
            raise not_hub_response(url)
        if "resources" not in part:
            read_members(part, url, ("digest", str))
            continue
        for r in read_members(part, url, ("resources", list))["resources"]:
            read_members(r, url, ("loc", str), ("e", str))
    return ranges


def _submit_proof(client: Client, set_name: str, name: str, proof: Dict[str, Any]) -> None:
    try:
        _ask(client, set_name, proof, "?" + urllib.parse.urlencode({"name": name}))
    except Error as e:
        log.warning("submit the proof to the hub: %s", e)


def _check_parts(question: Range, parts: List[Range]) -> None:
    """Checks that the answer covers the whole range: otherwise a broken hub looks like a copy in sync."""
    if not parts:
        return  # the range is equal
    ends = [part["to"] for part in parts]
    begins = [question["from"] or "", *(end or "" for end in ends[:-1])]
    right = [part["from"] or "" for part in parts] == begins and ends[-1] == question["to"]
    closer = len(parts) > 1 or "resources" in parts[0]
    if not right or not closer or any(not end or end <= begin for begin, end in zip(begins, ends[:-1])):
        raise NotHubError(f"answer about the range from {question['from']!r}: got parts with a gap, or the range itself")


def _compare_listed(own: Inventory, part: Range) -> Iterator[Difference]:
    """Yields the differences in a range whose resources the hub has listed."""
    locs = [r["loc"] for r in part["resources"]]
    inside = all(loc >= (part["from"] or "") and (part["to"] is None or loc < part["to"]) for loc in locs)
    if not inside or len(locs) != part["count"] or any(a >= b for a, b in zip(locs, locs[1:])):
        raise NotHubError(f"answer about the range from {part['from']!r}: got resources outside of it, out of order, or not as many as it says")
    have = {own.locs[i]: own.elements[i][:16].hex() for i in range(*own.span(part["from"], part["to"]))}
    there = {r["loc"]: r["e"] for r in part["resources"]}
    for loc in sorted(have.keys() | there.keys()):
        if have.get(loc) != there.get(loc):
            yield Difference("missing" if loc not in have else "extra" if loc not in there else "stale", loc)


def retry_gone(audit: Callable[[], List[Difference]]) -> List[Difference]:
    """Repeats an audit if the hub no longer has the state."""
    for _ in range(MAX_AUDITS - 1):
        try:
            return audit()
        except GoneError:
            pass
    return audit()


def changes(client: Client, set_name: str, since: str, prefix: str, to: str) -> Iterator[Dict[str, Any]]:
    """Yields the changes after a cursor up to a later one."""
    if since == to:
        return
    for batch in client.follow(set_name, since, prefix=prefix):  # not once: the hub that answers may be behind the one that gave the summary
        if batch.diverged:
            raise GoneError(410, {"title": "Gone", "detail": "the hub's log has lost its newest changes", "type": "/problems/gone"})
        for change in batch.changes:
            if change["position"] <= position(to):
                yield change
        if position(batch.cursor) >= position(to):
            return


def audit_content(
    client: Client,
    set_name: str,
    own: Union[Iterable[Dict[str, Any]], Callable[[], Iterable[Dict[str, Any]]]],
    prefix: str,
    settle: float,
    name: str,
) -> List[Difference]:
    """See Client.audit."""
    read_own: Callable[[], Iterable[Dict[str, Any]]]
    if callable(own):
        read_own = own
    else:
        every = list(own)
        read_own = lambda: every  # noqa: E731

    def by_loc() -> Resources:
        found: Resources = {}
        for r in read_own():
            if r["loc"] in found:
                raise ValueError(f"duplicate resource {r['loc']}")
            if r["loc"].startswith(prefix):
                found[r["loc"]] = r
        return found

    def once() -> List[Difference]:
        first = summary(client, set_name, prefix=prefix)  # before own is read, so that the log has everything that changes in the meantime
        mine = by_loc()
        candidates = _compare_evidence(client, set_name, mine, compare(client, set_name, Inventory(mine.values(), "content"), first, prefix, name), first)
        if not candidates:
            return []
        client.sleep(settle)
        mine_now = by_loc()
        second = summary(client, set_name, first.cursor, prefix)
        named = {c["loc"] for c in changes(client, set_name, first.cursor, prefix, second.cursor)}
        # The evidence for a resource may have changed although the kind of difference is the same.
        steady: Set[str] = {d.loc for d in candidates if _version(mine.get(d.loc)) == _version(mine_now.get(d.loc))}
        now = _compare_evidence(client, set_name, mine_now, compare(client, set_name, Inventory(mine_now.values(), "content"), second, prefix), second)
        return [d for d in now if d in candidates and d.loc in steady and d.loc not in named]

    return retry_gone(once)


def _version(resource: Optional[Dict[str, Any]]) -> Optional[str]:
    return None if resource is None else version(resource, "content")


def _compare_evidence(client: Client, set_name: str, own: Resources, found: Iterable[Difference], at: Summary) -> List[Difference]:
    """Compares stale resources by the strongest evidence that both sides have, since one may know the sha-256, the other
    only lastmod and length."""
    differences = list(found)
    stale = [d.loc for d in differences if d.kind == "stale"]
    verdicts: Dict[str, Optional[bool]] = {}
    while stale:
        # With a count of 0, the hub lists each of them, because none of these ranges is empty.
        ranges = [Inventory((), "content").range(loc, loc + "\0") for loc in stale[:MAX_DETAILS]]
        before = len(verdicts)
        for part in _ask(client, set_name, {"at": at.cursor, "by": "content", "ranges": ranges}, "?details=1"):
            for theirs in part.get("resources", ()):
                if "datetime" in theirs:  # otherwise its details did not fit into the answer, and are requested again
                    verdicts[theirs["loc"]] = same_content(own[theirs["loc"]], theirs)
        if len(verdicts) == before:
            break  # this hub has no details
        stale = [loc for loc in stale if loc not in verdicts]
    kinds = {False: "stale", None: "unknown"}
    judged = []
    for d in differences:
        if d.kind != "stale":
            judged.append(d)
            continue
        same = verdicts.get(d.loc, False)
        if same is not True:
            judged.append(Difference(kinds[same], d.loc))
    return judged


def same_content(a: Dict[str, Any], b: Dict[str, Any]) -> Optional[bool]:
    """Reports whether two entries have the same content: by a hash of the same algorithm, otherwise by lastmod and
    length as far as both have them. None if they have no evidence in common."""
    one, other = _hashes(a), _hashes(b)
    both = sorted(one.keys() & other.keys())
    if both:
        best = next((algorithm for algorithm in STRENGTH if algorithm in both), both[0])
        return one[best] == other[best]
    known = []
    if a.get("lastmod") and b.get("lastmod"):
        known.append(lastmod(a["lastmod"]) == lastmod(b["lastmod"]))
    if a.get("length") is not None and b.get("length") is not None:
        known.append(a["length"] == b["length"])
    return all(known) if known else None


def _hashes(resource: Dict[str, Any]) -> Dict[str, str]:
    return {h.partition(":")[0]: h.partition(":")[2] for h in (resource.get("hash") or "").lower().split()}
