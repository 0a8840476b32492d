#!/usr/bin/env python3
"""The reference of audit.md: digest, baseline and audit. URL is that of a set, like https://hub.example.org/sets/peps
audit.py URL             reads all resources of the set, proves them by position, and prints them, one JSON object a line
audit.py URL FILE        compares such lines (loc; hash, lastmod, length) by content, and prints every difference
audit.py --vectors FILE  checks digests that others have computed
The exit status is 1 if anything differs."""
import bisect, hashlib, itertools, json, math, sys, urllib.request

def version(r, by):
    hashes = r.get("hash", "").lower().split()
    if by == "position" or hashes:
        return str(r["position"]) if by == "position" else next((h for h in hashes if h.startswith("sha-256:")), min(hashes))
    return f"{r.get('lastmod', '')};{r.get('length', '')}"  # lastmod is as a hub writes it: in UTC, without needless zeros

def digest(total, count):
    varint = [count & 127]
    while count := count >> 7:
        varint.insert(0, count & 127 | 128)
    return hashlib.sha256((total % 2**256).to_bytes(32, "little") + bytes(varint)).hexdigest()[:32]

class Inventory:
    def __init__(self, resources, by):
        every = sorted((r["loc"], hashlib.sha256(f"{r['loc']}\n{version(r, by)}".encode()).digest()) for r in resources)
        self.by, self.locs, self.e = by, [loc for loc, _ in every], [e for _, e in every]
        self.sums = list(itertools.accumulate((int.from_bytes(e, "little") for e in self.e), initial=0))

    def span(self, begin, end):
        return bisect.bisect_left(self.locs, begin or ""), bisect.bisect_left(self.locs, end) if end else len(self.locs)

    def range(self, begin, end):
        i, j = self.span(begin, end)
        return {"from": begin, "to": end, "count": j - i, "digest": digest(self.sums[j] - self.sums[i], j - i)}

    def cut(self, begin, end, n):
        i, j = self.span(begin, end)
        step = max(1, -(-(j - i) // n))
        return [self.range(*ends) for ends in itertools.pairwise([begin, *self.locs[i + step:j:step], end])]

def call(url, question=None):
    body = question and json.dumps(question).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(url, body, {"Accept": "application/json", "Content-Type": "application/json"})))

def audit(url, own, at):
    """Yields (kind, loc) of every difference between own and what the hub held at a cursor."""
    todo = own.cut(None, None, 256)
    while todo:
        todo.sort(key=lambda r: r["from"] or "")
        asked, todo = todo[:1024], todo[1024:]
        for r in call(url + "/audit", {"at": at, "by": own.by, "ranges": asked})["ranges"]:
            if "resources" not in r:  # a part of a range that differs: if it differs too, it is asked about in smaller parts
                todo += own.cut(r["from"], r["to"], 8) if own.range(r["from"], r["to"]) != r else []
                continue
            have = {own.locs[i]: own.e[i][:16].hex() for i in range(*own.span(r["from"], r["to"]))}
            there = {x["loc"]: x["e"] for x in r["resources"]}
            yield from (("missing" if loc not in have else "extra" if loc not in there else "stale", loc)
                        for loc in sorted(have | there) if have.get(loc) != there.get(loc))

def read(url, since, held, look=None):
    """Puts all pages from since on into held, up to a look. It is made at the end of a baseline, and returned."""
    while look is None or int(since.split("-")[0]) < int(look["cursor"].split("-")[0]):
        page = call(f"{url}/changes?since={since}")
        since = page["cursor"]
        if page.get("restart"):
            held.clear()
        if page.get("baseline") is False:
            look = call(f"{url}/audit?from={since}")
        last = int(look["cursor"].split("-")[0]) if look else math.inf
        held.update((r["loc"], r) for r in page.get("resources", page.get("changes")) if r["position"] <= last)
    return look

def check(v):
    assert all(version(c["change"], "content") == c["version"] for c in v["versions"])
    assert all(digest(int.from_bytes(bytes.fromhex(c["sum"]), "little"), c["count"]) == c["digest"] for c in v["digests"])
    for s, by in itertools.product(v["sets"], ("position", "content")):
        own = Inventory(s["resources"], by)
        assert all(own.range(r["from"], r["to"]) == {k: r[k] for k in ("from", "to", "count")} | {"digest": r[by]} for r in s["ranges"]), s["name"]

def main(url, file=None):
    if url == "--vectors":
        return check(json.load(open(file)))
    if file is None:
        look = read(url, "baseline", held := {})
        held = {loc: r for loc, r in sorted(held.items()) if r["change"] != "deleted"}
        found = list(audit(url, Inventory(held.values(), "position"), look["cursor"]))
        sys.stdout.writelines(json.dumps(r) + "\n" for r in held.values())
    else:
        own, first = Inventory(map(json.loads, open(file)), "content"), call(url + "/audit")
        if found := list(audit(url, own, first["cursor"])):  # a second look, and what the log says between the two
            read(url, first["cursor"], named := {}, second := call(f"{url}/audit?from={first['cursor']}"))
            found = [d for d in audit(url, own, second["cursor"]) if d in found and d[1] not in named]
    (sys.stdout if file else sys.stderr).writelines(json.dumps({"difference": kind, "loc": loc}) + "\n" for kind, loc in found)
    return 1 if found else 0

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
