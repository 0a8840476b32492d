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
			m.wantEqual("after", a.After, last)
			m.wantEqual("count", a.Count, n)
			m.wantEqual("position", a.Cursor.Position, last.Position+uint64(n))
			s := m.state()
			m.wantEqual("head", s.Head, a.Cursor)
			m.wantEqual("latest", s.BeforeLatest, a.After)
			last = a.Cursor
		}
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 40) // readAll checks the rest
	}},
	{"datetimes start at the store's time, one microsecond apart", true, func(m *memory) {
		m.make(name, k)
		m.clock.advance(time.Second)
		now := m.now()
		a := m.add(25)
		m.wantEqual("cursor", a.Cursor, feed.Cursor{Position: 25, Micros: now + 24})
		for i, e := range m.readAll(a.After) {
			m.wantEqual("datetime", e.Micros, now+int64(i))
		}
	}},
	{"the clock stands still", true, func(m *memory) {
		m.make(name, k)
		begin := m.state().Begin
		m.wantEqual("cursor", m.add(1).Cursor, feed.Cursor{Position: 1, Micros: begin + 1})
		m.wantEqual("cursor", m.add(2).Cursor, feed.Cursor{Position: 3, Micros: begin + 3})
		a := m.publish(publish(1), publish(1), publish(2))
		m.wantEqual("cursor", a[2].Cursor, feed.Cursor{Position: 7, Micros: begin + 7})
		m.readAll(feed.Cursor{})
	}},
	{"the clock steps back", true, func(m *memory) {
		m.make(name, k)
		a := m.add(1)
		m.clock.advance(-30 * time.Second)
		m.wantEqual("cursor", m.add(1).Cursor, feed.Cursor{Position: 2, Micros: a.Cursor.Micros + 1})
		m.reopen()
		m.wantEqual("cursor", m.add(1).Cursor, feed.Cursor{Position: 3, Micros: a.Cursor.Micros + 2})
		m.clock.advance(time.Minute)
		m.wantEqual("cursor", m.add(1).Cursor, feed.Cursor{Position: 4, Micros: m.now()})
	}},
	{"the clock is behind", true, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyedPublish("key", 1))[0]
		s := m.state()
		m.clock.set(s.Head.Time().Add(-skew - time.Microsecond))
		for _, p := range [][]changelog.Publish{{publish(1)}, {keyedPublish("other", 1)}, {keyedPublish("key", 1), publish(1)}} {
			_, err := m.Append(m.ctx, name, p...)
			m.wantErr(feed.ErrClock, err)
		}
		first.Replayed = true
		m.wantEqual("a retry", m.publish(keyedPublish("key", 1))[0], first)
		m.wantEqual("state", m.state(), s)
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 1)
		m.clock.advance(time.Microsecond)
		m.wantEqual("cursor", m.add(1).Cursor, feed.Cursor{Position: 2, Micros: s.Head.Micros + 1})
	}},
	{"publishes of one call", false, func(m *memory) {
		m.make(name, k)
		first := m.add(4)
		p := []changelog.Publish{publish(3), publish(20), publish(1)}
		a := m.publish(p...)
		after := first.Cursor
		for i := range p {
			m.wantEqual("after", a[i].After, after)
			m.wantEqual("count", a[i].Count, len(p[i].Changes))
			after = a[i].Cursor
		}
		s := m.state()
		m.wantEqual("head", s.Head, a[2].Cursor)
		m.wantEqual("latest", s.BeforeLatest, a[2].After)
		entries := m.readAll(first.Cursor)
		for _, p := range p {
			for _, c := range p.Changes {
				m.wantEqual("change", entries[0].Change, c)
				entries = entries[1:]
			}
		}
	}},
	{"no publish", false, func(m *memory) {
		m.make(name, k)
		s := m.state()
		a, err := m.Append(m.ctx, name)
		m.ok(err)
		m.wantEqual("answers", len(a), 0)
		m.wantEqual("state", m.state(), s)
	}},
	{"all or nothing", false, func(m *memory) {
		m.make(name, k)
		m.add(2)
		s := m.state()
		long := keyedPublish(strings.Repeat("k", changelog.MaxKey+1), 1)
		for _, bad := range []changelog.Publish{{}, publish(changelog.MaxBatch + 1), long} {
			_, err := m.Append(m.ctx, name, publish(1), bad, keyedPublish("key", 1))
			m.wantErr(resourcesync.ErrInvalid, err)
			m.wantEqual("state", m.state(), s)
		}
		if a := m.publish(keyedPublish("key", 1))[0]; a.Replayed {
			m.Error("Replayed = true for the key of a publish that was not added")
		}
		m.publish(keyedPublish(strings.Repeat("k", changelog.MaxKey), 1))
	}},
	{"the largest batch", false, func(m *memory) {
		m.make(name, 9_999) // boundaries in the middle of blocks
		m.add(7)
		p := publish(changelog.MaxBatch)
		a := m.publish(p)[0]
		m.wantEqual("count", a.Count, changelog.MaxBatch)
		m.wantEqual("position", a.Cursor.Position, uint64(changelog.MaxBatch+7))
		m.reopen()
		entries := m.readAll(a.After)
		m.wantEqual("entries", len(entries), len(p.Changes))
		for i := range entries {
			m.wantEqual("loc", entries[i].Change.Loc, p.Changes[i].Loc)
		}
		m.wantEqual("latest", m.state().BeforeLatest, a.After)
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
				b := m.readBatch(c, limit)
				if len(b.Entries) == 0 {
					break
				}
				for _, e := range b.Entries {
					got = append(got, e.Change)
				}
				c = b.Cursor
			}
			m.wantEqual("changes", got, want)
		}
	}},
	{"lists of one", false, func(m *memory) {
		m.make(name, 1)
		m.add(5)
		m.wantEqual("entries", len(m.readAll(feed.Cursor{})), 5)
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
		for i, e := range m.readAll(feed.Cursor{}) {
			m.wantEqual("change", e.Change, want[i])
		}
		m.reopen()
		for i, e := range m.readAll(feed.Cursor{}) {
			m.wantEqual("change", e.Change, want[i])
		}
	}},
	{"entries do not share the publisher's slice", false, func(m *memory) {
		m.make(name, k)
		p := publish(5)
		loc := p.Changes[2].Loc
		m.publish(p)
		p.Changes[2].Loc = "https://example.org/other"
		b := m.readBatch(feed.Cursor{}, 0)
		m.wantEqual("loc", b.Entries[2].Change.Loc, loc)
		b.Entries[2].Change.Loc = "https://example.org/mine"
		m.wantEqual("loc", m.readBatch(feed.Cursor{}, 0).Entries[2].Change.Loc, loc)
	}},
	{"changes are read unmodified", false, func(m *memory) {
		m.make(name, k)
		changes := everyField()
		m.publish(changelog.Publish{Changes: changes}) // compressed
		for i := range changes {
			m.publish(changelog.Publish{Changes: changes[i : i+1]}) // plain
		}
		check := func() {
			m.Helper()
			for i, e := range m.readAll(feed.Cursor{}) {
				m.wantEqual("change", e.Change, changes[i%len(changes)])
			}
		}
		check()
		m.reopen()
		check()
	}},
}

// noise returns a string of n bytes that does not compress.
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

// everyField returns changes with each field, including edge cases.
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
