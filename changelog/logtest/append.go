package logtest

import (
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var appendTests = []test{
	{"positions have no gap, datetimes strictly increase", false, func(m *memory) {
		m.make(name, k)
		last := m.state().Head
		for _, n := range []int{1, 1, 3, 25, 1, 9} {
			a := m.add(n)
			m.same("after", a.After, last)
			m.same("count", a.Count, n)
			m.same("position", a.Cursor.Position, last.Position+uint64(n))
			s := m.state()
			m.same("head", s.Head, a.Cursor)
			m.same("latest", s.BeforeLatest, a.After)
			last = a.Cursor
		}
		m.same("entries", len(m.all(feed.Cursor{})), 40) // all checks the rest
	}},
	{"datetimes are the store's now, then one microsecond each", true, func(m *memory) {
		m.make(name, k)
		m.clock.advance(time.Second)
		now := m.now()
		a := m.add(25)
		m.same("cursor", a.Cursor, feed.Cursor{Position: 25, Micros: now + 24})
		for i, e := range m.all(a.After) {
			m.same("datetime", e.Micros, now+int64(i))
		}
	}},
	{"the clock stands still", true, func(m *memory) {
		m.make(name, k)
		begin := m.state().Begin
		m.same("cursor", m.add(1).Cursor, feed.Cursor{Position: 1, Micros: begin + 1})
		m.same("cursor", m.add(2).Cursor, feed.Cursor{Position: 3, Micros: begin + 3})
		a := m.publish(publish(1), publish(1), publish(2))
		m.same("cursor", a[2].Cursor, feed.Cursor{Position: 7, Micros: begin + 7})
		m.all(feed.Cursor{})
	}},
	{"the clock steps back", true, func(m *memory) {
		m.make(name, k)
		a := m.add(1)
		m.clock.advance(-30 * time.Second)
		m.same("cursor", m.add(1).Cursor, feed.Cursor{Position: 2, Micros: a.Cursor.Micros + 1})
		m.reopen()
		m.same("cursor", m.add(1).Cursor, feed.Cursor{Position: 3, Micros: a.Cursor.Micros + 2})
		m.clock.advance(time.Minute)
		m.same("cursor", m.add(1).Cursor, feed.Cursor{Position: 4, Micros: m.now()})
	}},
	{"the clock is behind", true, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyed("key", 1))[0]
		s := m.state()
		m.clock.set(s.Head.Time().Add(-skew - time.Microsecond))
		for _, p := range [][]changelog.Publish{{publish(1)}, {keyed("other", 1)}, {keyed("key", 1), publish(1)}} {
			_, err := m.Append(m.ctx, name, p...)
			m.wants(feed.ErrClock, err)
		}
		first.Replayed = true
		m.same("a retry", m.publish(keyed("key", 1))[0], first)
		m.same("state", m.state(), s)
		m.same("entries", len(m.all(feed.Cursor{})), 1)
		m.clock.advance(time.Microsecond)
		m.same("cursor", m.add(1).Cursor, feed.Cursor{Position: 2, Micros: s.Head.Micros + 1})
	}},
	{"publishes of one call", false, func(m *memory) {
		m.make(name, k)
		first := m.add(4)
		p := []changelog.Publish{publish(3), publish(20), publish(1)}
		a := m.publish(p...)
		after := first.Cursor
		for i := range p {
			m.same("after", a[i].After, after)
			m.same("count", a[i].Count, len(p[i].Changes))
			after = a[i].Cursor
		}
		s := m.state()
		m.same("head", s.Head, a[2].Cursor)
		m.same("latest", s.BeforeLatest, a[2].After)
		entries := m.all(first.Cursor)
		for _, p := range p {
			for _, c := range p.Changes {
				m.same("change", entries[0].Change, c)
				entries = entries[1:]
			}
		}
	}},
	{"no publish", false, func(m *memory) {
		m.make(name, k)
		s := m.state()
		a, err := m.Append(m.ctx, name)
		m.ok(err)
		m.same("answers", len(a), 0)
		m.same("state", m.state(), s)
	}},
	{"all or nothing", false, func(m *memory) {
		m.make(name, k)
		m.add(2)
		s := m.state()
		long := keyed(strings.Repeat("k", changelog.MaxKey+1), 1)
		for _, bad := range []changelog.Publish{{}, publish(changelog.MaxBatch + 1), long} {
			_, err := m.Append(m.ctx, name, publish(1), bad, keyed("key", 1))
			m.wants(resourcesync.ErrInvalid, err)
			m.same("state", m.state(), s)
		}
		if a := m.publish(keyed("key", 1))[0]; a.Replayed {
			m.Error("the key of a publish that was not added is remembered")
		}
		m.publish(keyed(strings.Repeat("k", changelog.MaxKey), 1))
	}},
	{"the largest batch", false, func(m *memory) {
		m.make(name, 9_999) // boundaries in the middle of blocks
		m.add(7)
		p := publish(changelog.MaxBatch)
		a := m.publish(p)[0]
		m.same("count", a.Count, changelog.MaxBatch)
		m.same("position", a.Cursor.Position, uint64(changelog.MaxBatch+7))
		m.reopen()
		entries := m.all(a.After)
		m.same("entries", len(entries), len(p.Changes))
		for i := range entries {
			m.same("loc", entries[i].Change.Loc, p.Changes[i].Loc)
		}
		m.same("latest", m.state().BeforeLatest, a.After)
	}},
	{"batches across lists", false, func(m *memory) {
		m.make(name, 3)
		var want []resourcesync.Change
		for n := 1; n <= 12; n++ {
			p := publish(n)
			want = append(want, p.Changes...)
			m.publish(p)
		}
		for limit := 1; limit < 9; limit++ {
			var got []resourcesync.Change
			for c := (feed.Cursor{}); ; {
				b := m.after(c, limit)
				if len(b.Entries) == 0 {
					break
				}
				for _, e := range b.Entries {
					got = append(got, e.Change)
				}
				c = b.Cursor
			}
			m.same("changes", got, want)
		}
	}},
	{"lists of one", false, func(m *memory) {
		m.make(name, 1)
		m.add(5)
		m.same("entries", len(m.all(feed.Cursor{})), 5)
	}},
	{"large entries", false, func(m *memory) {
		m.make(name, k)
		var want []resourcesync.Change
		for i, size := range []int{1, 100_000, 255_000, 256_000, 300_000, 2_000_000, 10, 700_000} {
			p := publish(3)
			p.Changes[1].Attrs = []resourcesync.Attr{{Namespace: "urn:x", Name: "big", Value: noise(size, uint32(i))}}
			want = append(want, p.Changes...)
			m.publish(p)
		}
		for i, e := range m.all(feed.Cursor{}) {
			m.same("change", e.Change, want[i])
		}
		m.reopen()
		for i, e := range m.all(feed.Cursor{}) {
			m.same("change", e.Change, want[i])
		}
	}},
	{"what is read does not change with the publisher's slice", false, func(m *memory) {
		m.make(name, k)
		p := publish(5)
		loc := p.Changes[2].Loc
		m.publish(p)
		p.Changes[2].Loc = "https://example.org/other"
		b := m.after(feed.Cursor{}, 0)
		m.same("loc", b.Entries[2].Change.Loc, loc)
		b.Entries[2].Change.Loc = "https://example.org/mine"
		m.same("loc", m.after(feed.Cursor{}, 0).Entries[2].Change.Loc, loc)
	}},
	{"a change comes back as it was", false, func(m *memory) {
		m.make(name, k)
		changes := everyField()
		m.publish(changelog.Publish{Changes: changes}) // compressed
		for i := range changes {
			m.publish(changelog.Publish{Changes: changes[i : i+1]}) // plain
		}
		check := func() {
			m.Helper()
			for i, e := range m.all(feed.Cursor{}) {
				m.same("change", e.Change, changes[i%len(changes)])
			}
		}
		check()
		m.reopen()
		check()
	}},
}

// noise is text that does not compress.
func noise(n int, seed uint32) string {
	b := make([]byte, n)
	x := seed + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = ' ' + byte(x>>8)%95
	}
	return string(b)
}

// everyField returns changes that have each field, in its edge cases too.
func everyField() []resourcesync.Change {
	zero, big := int64(0), int64(1<<53)
	day := time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC)
	nano := time.Date(2026, 12, 31, 23, 59, 59, 123_456_789, time.UTC)
	first, last := time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	attrs := []resourcesync.Attr{
		{Namespace: "https://example.org/terms/", Name: "a", Value: ""},
		{Namespace: "https://example.org/terms/", Name: "b", Value: "<&\"'\n\t\u2028 ünï \U0001F600"},
		{Namespace: "urn:other", Name: "a", Value: "1"},
	}
	return []resourcesync.Change{
		{Loc: "https://example.org/a", Change: resourcesync.Created},
		{Loc: "https://example.org/b", Change: resourcesync.Updated, Length: &zero},
		{Loc: "https://example.org/c", Change: resourcesync.Deleted, Length: &big},
		{Loc: "https://example.org/d", Change: resourcesync.Created, Datetime: nano, Lastmod: day},
		{Loc: "https://example.org/e", Change: resourcesync.Created, Datetime: first, Lastmod: last},
		{Loc: "https://example.org/f?q=ü&<", Change: resourcesync.Updated, Changefreq: "daily", Hash: "md5:00 sha-256:ff",
			Type: "text/html; charset=utf-8", Encoding: "gzip", Path: "/a b"},
		{Loc: "https://example.org/g", Change: resourcesync.Updated, Attrs: attrs},
		{Loc: "https://example.org/h", Change: resourcesync.Updated, Links: []resourcesync.Link{{Rel: "canonical", Href: "https://example.org/i"}}},
		{Loc: "https://example.org/j", Change: resourcesync.Updated, Datetime: nano, Lastmod: nano, Changefreq: "never", Hash: "md5:00",
			Length: &big, Type: "text/plain", Encoding: "br", Path: "/x", Attrs: attrs[:1], Links: []resourcesync.Link{
				{Rel: "duplicate", Href: "https://example.org/k", Pri: 1, Modified: nano, Hash: "sha-1:aa", Length: &zero,
					Type: "a/b", Encoding: "gzip", Path: "/y", Profile: "https://example.org/p", Attrs: attrs},
				{Rel: "describedby", Href: "https://example.org/l", Pri: 999_999, Modified: first, Length: &big},
				{Rel: "memento", Href: "https://example.org/m", Modified: day, Profile: "urn:p"},
			}},
	}
}
