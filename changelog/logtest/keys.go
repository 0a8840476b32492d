package logtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

var keyTests = []test{
	{"the same again", false, func(m *memory) {
		m.make(name, k)
		m.add(2)
		p := publish(25)
		p.Key, p.Hash = "key", [32]byte{1}
		first := m.publish(p)[0]
		m.same("replayed", first.Replayed, false)
		m.add(3)
		want := first
		want.Replayed = true
		s := m.state()
		m.same("answer", m.publish(p)[0], want)
		m.same("state", m.state(), s)
		m.reopen()
		m.same("answer", m.publish(p)[0], want)
		m.same("state", m.state(), s)
	}},
	{"with other content", false, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyed("key", 1))[0]
		a := m.publish(publish(2), keyed("key", 2), publish(3))
		m.wants(feed.ErrKeyReused, a[1].Err)
		m.same("answer", a[1], changelog.Appended{Err: a[1].Err})
		m.same("after", a[0].After, first.Cursor)
		m.same("after", a[2].After, a[0].Cursor)
		m.same("head", m.state().Head, a[2].Cursor)
		m.same("replayed", m.publish(keyed("key", 1))[0].Replayed, true)
	}},
	{"only other content", false, func(m *memory) {
		m.make(name, k)
		m.publish(keyed("key", 1))
		s := m.state()
		m.wants(feed.ErrKeyReused, m.publish(keyed("key", 2))[0].Err)
		m.same("state", m.state(), s)
	}},
	{"unless another key was used", false, func(m *memory) {
		m.make(name, k)
		unless := func(key string, hash byte, other string) changelog.Publish {
			p := keyed(key, hash)
			p.Unless = other
			return p
		}
		first := m.publish(keyed("key", 1))[0]
		s := m.state()
		m.wants(feed.ErrKeyReused, m.publish(unless("other", 1, "key"))[0].Err)
		nameless := publish(1)
		nameless.Unless = "key"
		m.wants(feed.ErrKeyReused, m.publish(nameless)[0].Err)
		m.same("state", m.state(), s)
		first.Replayed = true
		m.same("answer", m.publish(unless("key", 1, "nobody"))[0], first)

		// In the same call too.
		a := m.publish(unless("a", 1, "b"), unless("b", 1, "a"), unless("c", 1, "a"), publish(1), unless("a", 1, "b"))
		m.same("after", a[0].After, first.Cursor)
		m.wants(feed.ErrKeyReused, a[1].Err)
		m.wants(feed.ErrKeyReused, a[2].Err)
		m.same("after", a[3].After, a[0].Cursor)
		m.same("replayed", a[4].Replayed, true)
		m.same("head", m.state().Head, a[3].Cursor)
		m.reopen()
		m.wants(feed.ErrKeyReused, m.publish(unless("b", 1, "a"))[0].Err)

		// A known Key counts before Unless: an older version may have used both.
		m.publish(keyed("b", 1))
		m.same("replayed", m.publish(unless("a", 1, "b"))[0].Replayed, true)
		m.wants(feed.ErrKeyReused, m.publish(unless("a", 2, "b"))[0].Err)
		_, err := m.Append(m.ctx, name, unless("d", 1, strings.Repeat("x", changelog.MaxKey+1)))
		m.wants(resourcesync.ErrInvalid, err)
	}},
	{"refused", false, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyed("key", 1))[0]
		first.Replayed = true
		why := errors.New("the set is full")
		refused := func(p changelog.Publish) changelog.Publish {
			p.Refused = why
			return p
		}
		m.same("a retry", m.publish(refused(keyed("key", 1)))[0], first)
		s := m.state()
		for _, p := range []changelog.Publish{refused(publish(25)), refused(keyed("other", 1))} {
			m.same("answer", m.publish(p)[0], changelog.Appended{Err: why})
		}
		m.wants(feed.ErrKeyReused, m.publish(refused(keyed("key", 2)))[0].Err)
		m.same("state", m.state(), s)
		a := m.publish(refused(publish(3)), publish(20), refused(keyed("key", 1)), refused(keyed("other", 1)), keyed("other", 2))
		m.same("answer 0", a[0].Err, why)
		m.same("after", a[1].After, s.Head)
		m.same("answer 2", a[2], first)
		m.same("answer 3", a[3].Err, why)
		m.same("after", a[4].After, a[1].Cursor)
		m.same("head", m.state().Head, a[4].Cursor)
	}},
	{"an excluded key expires", true, func(m *memory) {
		m.make(name, k)
		m.publish(keyed("key", 1))
		p := keyed("other", 1)
		p.Unless = "key"
		m.clock.advance(changelog.KeyAge - time.Second)
		m.wants(feed.ErrKeyReused, m.publish(p)[0].Err)
		m.clock.advance(2 * time.Second)
		m.same("replayed", m.publish(p)[0].Replayed, false)
		_, err := m.Trim(m.ctx, name, changelog.Retention{}) // key expires, other does not
		m.ok(err)
		m.same("replayed", m.publish(keyed("other", 1))[0].Replayed, true)
		m.same("replayed", m.publish(keyed("key", 2))[0].Replayed, false)
	}},
	{"twice in one call", false, func(m *memory) {
		m.make(name, k)
		a, err := m.Append(m.ctx, name, keyed("key", 1), publish(2), keyed("key", 1), keyed("key", 2), keyed("other", 2), keyed("key", 1))
		m.ok(err)
		for i := range a {
			a[i].Blocks = nil // the others have none
		}
		again := a[0]
		again.Replayed = true
		m.same("answer 2", a[2], again)
		m.wants(feed.ErrKeyReused, a[3].Err)
		m.same("after", a[4].After, a[1].Cursor)
		m.same("answer 5", a[5], again)
		s, err := m.State(m.ctx, name)
		m.ok(err)
		m.same("head", s.Head, a[4].Cursor)
		m.same("latest", s.BeforeLatest, a[4].After)
	}},
	{"keys are of one set", false, func(m *memory) {
		m.make(name, k)
		m.make("other", k)
		m.publish(keyed("key", 1))
		_, err := m.Append(m.ctx, "other", keyed("another", 1)) // the sets number their keys alike
		m.ok(err)
		a, err := m.Append(m.ctx, "other", keyed("key", 2))
		m.ok(err)
		if a[0].Err != nil || a[0].Replayed {
			m.Errorf("answer is %+v", a[0])
		}
	}},
	{"keys of any bytes", false, func(m *memory) {
		m.make(name, k)
		keys := []string{"a", "a/", "a/b", "a\x00", "\x00", "\xff\xfe", "ü", "a b", "/"}
		for range 2 {
			for i, key := range keys {
				a := m.publish(keyed(key, byte(i)))[0]
				m.same("position", a.Cursor.Position, uint64(i+1))
			}
			m.reopen()
		}
	}},
	{"a key outlives its entries", false, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyed("key", 1))[0]
		m.add(50)
		removed, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		if removed == 0 {
			m.Fatal("nothing was trimmed")
		}
		first.Replayed = true
		m.same("answer", m.publish(keyed("key", 1))[0], first)
	}},
	{"expire by age", true, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyed("key", 1))[0]
		trim := func() {
			m.Helper()
			_, err := m.Trim(m.ctx, name, changelog.Retention{})
			m.ok(err)
		}
		m.clock.advance(changelog.KeyAge - time.Second)
		trim()
		m.same("replayed", m.publish(keyed("key", 1))[0].Replayed, true)
		m.clock.advance(2 * time.Second)
		again := m.publish(keyed("key", 2))[0] // nobody trimmed
		if again.Replayed || again.Err != nil || again.After != first.Cursor {
			m.Fatalf("a key is known after %v: %+v", changelog.KeyAge, again)
		}
		trim() // must not take the new one for the old
		m.clock.advance(changelog.KeyAge - time.Second)
		trim()
		want := again
		want.Replayed = true
		m.same("answer", m.publish(keyed("key", 2))[0], want)
		m.clock.advance(2 * time.Second)
		trim()
		m.reopen()
		m.same("replayed", m.publish(keyed("key", 1))[0].Replayed, false)
	}},
	{"expire by count", false, func(m *memory) {
		if race {
			m.Skip("100,000 publishes take minutes with the race detector")
		}
		m.make(name, 10_000)
		m.publish(keyed("key", 1), keyed("next", 1), keyed("third", 1))
		add := func(from, to int) {
			m.Helper()
			for from < to {
				n := min(10_000, to-from)
				p := make([]changelog.Publish, n)
				for i := range p {
					p[i] = keyed(fmt.Sprint("n", from+i), 1)
				}
				m.publish(p...)
				from += n
			}
		}
		known := func(key string) bool {
			m.Helper()
			a := m.publish(keyed(key, 2))[0] // is added where the key is not known
			return a.Err != nil || a.Replayed
		}
		add(3, changelog.KeyCount) // these and the three are KeyCount
		_, err := m.Trim(m.ctx, name, changelog.Retention{})
		m.ok(err)
		if !known("key") {
			m.Error("a key is forgotten too early")
		}
		add(changelog.KeyCount, changelog.KeyCount+1)
		if known("key") { // is added now, as one more
			m.Error("a key is known after KeyCount others")
		}
		_, err = m.Trim(m.ctx, name, changelog.Retention{})
		m.ok(err)
		if !known("key") {
			m.Error("a key that was used again is forgotten with its first use")
		}
		if known("next") {
			m.Error("a key is known after KeyCount others and Trim")
		}
	}},
}
