"""Audits: proof that nothing is missing, or the name of each resource that is. See docs/audit.md of rshub."""

from __future__ import annotations

import logging
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Union

from .errors import Error, Gone, NotAHub
from .follow import position
from .inventory import Inventory, Range, behind, lastmod, version
from .wire import is_a, read_members, strange

if TYPE_CHECKING:
    from .client import Client

log = logging.getLogger("rshub")

Resources = Dict[str, Dict[str, Any]]  # by loc

OPENING, SMALLER = 256, 8  # parts that a question begins with, and that a part is cut into
MAX_RANGES = 1024
MAX_AUDITS = 5  # how often an audit begins anew because the hub does not keep the state any more
SINGLES = 64  # resources whose details are asked for at once
STRENGTH = ("sha-512", "sha-384", "sha-256", "sha-224", "sha-1", "md5")


@dataclass
class Look:
    """What the hub knows of a set at one cursor."""

    cursor: str
    complete: bool  # the hub knows all resources of the set; if not, delete nothing because the hub does not have it
    count: int
    weak: int  # how many say nothing of their content but lastmod and length
    position: str  # digest
    content: str  # digest

    def digest(self, by: str) -> str:
        return self.position if by == "position" else self.content


@dataclass(frozen=True)
class Difference:
    """A resource by which the two ends differ.

    kind is "missing": only the hub has it. "extra": only the caller has it. "stale": both have it, and they differ.
    "unknown": both have it, and say nothing of it that can be compared.
    """

    kind: str
    loc: str


def look(client: Client, set_name: str, since: str = "", prefix: str = "") -> Look:
    """See Client.look."""
    url = client.set_url(set_name) + "/audit"
    query = {k: v for k, v in (("from", since), ("prefix", prefix)) if v}
    asked = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    members = (("set", str), ("cursor", str), ("complete", bool), ("count", int), ("position", str), ("content", str))
    answer = client.patiently(lambda: read_members(client.request(asked), url, *members))
    if not is_a(answer.get("weak", 0), int):
        raise strange(url)
    if answer["set"] != set_name or since and position(answer["cursor"]) < position(since):
        raise NotAHub(f"{url} answers with a look at {answer['cursor']} of the set {answer['set']}")
    return Look(answer["cursor"], answer["complete"], answer["count"], answer.get("weak", 0), answer["position"], answer["content"])


def compare(client: Client, set_name: str, own: Inventory, at: Look, prefix: str = "", name: str = "") -> Iterator[Difference]:
    """Yields every difference between own, which has nothing without the prefix, and what the hub held at a look. If
    there is none and the digests are equal, the hub is told so under a name."""
    begin, end = prefix or None, behind(prefix) if prefix else None
    whole = own.range(begin, end)
    if whole["count"] == at.count and whole["digest"] == at.digest(own.by):
        if name:
            _tell(client, set_name, name, {"at": at.cursor, "by": own.by, "ranges": [whole]})
        return
    found = False
    todo = own.cut(begin, end, OPENING)
    while todo:
        todo.sort(key=lambda r: r["from"] or "")
        asked, todo = todo[:MAX_RANGES], todo[MAX_RANGES:]
        answers = _ask(client, set_name, {"at": at.cursor, "by": own.by, "ranges": asked})
        for question in asked:
            parts = []
            while answers and (question["to"] is None or (answers[0]["from"] or "") < question["to"]):
                parts.append(answers.pop(0))
            _follow_each_other(question, parts)
            for part in parts:
                if "resources" not in part:  # part of a range that differs: if it differs too, it is asked about in smaller parts
                    mine = own.range(part["from"], part["to"])
                    if (mine["count"], mine["digest"]) != (part["count"], part["digest"]):
                        todo += own.cut(part["from"], part["to"], SMALLER)
                    continue
                for difference in _listed(own, part):
                    found = True
                    yield difference
        if answers:
            raise NotAHub(f"{client.hub} answers about a range that was not asked about")
    if not found:
        raise NotAHub(f"{client.hub} shows no difference, and another digest")


def _ask(client: Client, set_name: str, question: Dict[str, Any], query: str = "") -> List[Range]:
    url = client.set_url(set_name) + "/audit"
    members = (("set", str), ("cursor", str), ("ranges", list))
    answer = client.patiently(lambda: read_members(client.request(url + query, body=question), url, *members))
    if answer["set"] != set_name or answer["cursor"] != question["at"]:
        raise NotAHub(f"{url} answers about {answer['cursor']} of the set {answer['set']}")
    ranges: List[Range] = answer["ranges"]
    for part in ranges:
        read_members(part, url, ("count", int))
        if any(not is_a(part.get(end, 0), str) and part.get(end, 0) is not None for end in ("from", "to")):
            raise strange(url)
        if "resources" not in part:
            read_members(part, url, ("digest", str))
            continue
        for r in read_members(part, url, ("resources", list))["resources"]:
            read_members(r, url, ("loc", str), ("e", str))
    return ranges


def _tell(client: Client, set_name: str, name: str, proof: Dict[str, Any]) -> None:
    try:
        _ask(client, set_name, proof, "?" + urllib.parse.urlencode({"name": name}))
    except Error as e:
        log.warning("the hub is not told that nothing differs: %s", e)


def _follow_each_other(question: Range, parts: List[Range]) -> None:
    """Refuses answers about a range that are not all of it: else a broken hub looks like a copy in sync."""
    if not parts:
        return  # the range is equal
    ends = [part["to"] for part in parts]
    begins = [question["from"] or "", *(end or "" for end in ends[:-1])]
    right = [part["from"] or "" for part in parts] == begins and ends[-1] == question["to"]
    closer = len(parts) > 1 or "resources" in parts[0]
    if not right or not closer or any(not end or end <= begin for begin, end in zip(begins, ends[:-1])):
        raise NotAHub(f"the answer about the range from {question['from']!r} has a gap, or does not come closer")


def _listed(own: Inventory, part: Range) -> Iterator[Difference]:
    """Yields the differences in a range of which the hub lists all resources."""
    locs = [r["loc"] for r in part["resources"]]
    inside = all(loc >= (part["from"] or "") and (part["to"] is None or loc < part["to"]) for loc in locs)
    if not inside or len(locs) != part["count"] or any(a >= b for a, b in zip(locs, locs[1:])):
        raise NotAHub(f"the answer lists resources where they do not belong, in the range from {part['from']!r}")
    have = {own.locs[i]: own.elements[i][:16].hex() for i in range(*own.span(part["from"], part["to"]))}
    there = {r["loc"]: r["e"] for r in part["resources"]}
    for loc in sorted(have.keys() | there.keys()):
        if have.get(loc) != there.get(loc):
            yield Difference("missing" if loc not in have else "extra" if loc not in there else "stale", loc)


def again(audit: Callable[[], List[Difference]]) -> List[Difference]:
    """Makes an audit anew while the hub does not keep the state that it looked at."""
    for _ in range(MAX_AUDITS - 1):
        try:
            return audit()
        except Gone:
            pass
    return audit()


def changes(client: Client, set_name: str, since: str, prefix: str, to: str) -> Iterator[Dict[str, Any]]:
    """Yields the changes after a cursor up to a later one."""
    if since == to:
        return
    for batch in client.follow(set_name, since, prefix=prefix):  # not once: what answers now may be behind what was looked at
        if batch.diverged:
            raise Gone(410, {"title": "Gone", "detail": "the hub's log has lost its newest changes", "type": "/problems/gone"})
        for change in batch.changes:
            if change["position"] <= position(to):
                yield change
        if position(batch.cursor) >= position(to):
            return


def by_content(
    client: Client,
    set_name: str,
    own: Union[Iterable[Dict[str, Any]], Callable[[], Iterable[Dict[str, Any]]]],
    prefix: str,
    settle: float,
    name: str,
) -> List[Difference]:
    """See Client.audit."""
    see: Callable[[], Iterable[Dict[str, Any]]]
    if callable(own):
        see = own
    else:
        every = list(own)
        see = lambda: every  # noqa: E731

    def by_loc() -> Resources:
        found: Resources = {}
        for r in see():
            if r["loc"] in found:
                raise ValueError(f"{r['loc']} is there twice")
            if r["loc"].startswith(prefix):
                found[r["loc"]] = r
        return found

    def once() -> List[Difference]:
        first = look(client, set_name, prefix=prefix)  # before own: then the log names all that changes meanwhile
        mine = by_loc()
        candidates = _judged(client, set_name, mine, compare(client, set_name, Inventory(mine.values(), "content"), first, prefix, name), first)
        if not candidates:
            return []
        client.sleep(settle)
        mine_now = by_loc()
        second = look(client, set_name, first.cursor, prefix)
        named = {c["loc"] for c in changes(client, set_name, first.cursor, prefix, second.cursor)}
        # What one end says of a resource may have changed without the difference being another one.
        steady: Set[str] = {d.loc for d in candidates if _version(mine.get(d.loc)) == _version(mine_now.get(d.loc))}
        now = _judged(client, set_name, mine_now, compare(client, set_name, Inventory(mine_now.values(), "content"), second, prefix), second)
        return [d for d in now if d in candidates and d.loc in steady and d.loc not in named]

    return again(once)


def _version(resource: Optional[Dict[str, Any]]) -> Optional[str]:
    return None if resource is None else version(resource, "content")


def _judged(client: Client, set_name: str, own: Resources, found: Iterable[Difference], at: Look) -> List[Difference]:
    """Judges what is stale by the strongest evidence that both ends have. One may know the sha-256, the other only
    lastmod and length."""
    differences = list(found)
    stale = [d.loc for d in differences if d.kind == "stale"]
    verdicts: Dict[str, Optional[bool]] = {}
    while stale:
        # A count of 0 makes the hub list each of them: no range with a resource is equal to nothing.
        ranges = [Inventory((), "content").range(loc, loc + "\0") for loc in stale[:SINGLES]]
        before = len(verdicts)
        for part in _ask(client, set_name, {"at": at.cursor, "by": "content", "ranges": ranges}, "?details=1"):
            for theirs in part.get("resources", ()):
                if "datetime" in theirs:  # else its details did not fit into the answer, and are asked for again
                    verdicts[theirs["loc"]] = same_content(own[theirs["loc"]], theirs)
        if len(verdicts) == before:
            break  # this hub gives no details
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
    """Whether two ends speak of the same content: by a hash of the same algorithm, else by lastmod and length as far as
    both have them. None: they have nothing in common."""
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
