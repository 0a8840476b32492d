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
	{"retry returns the first result", false, func(m *memory) {
		m.make(name, k)
		m.add(2)
		p := publish(25)
		p.Key, p.Hash = "key", [32]byte{1}
		first := m.publish(p)[0]
		m.wantEqual("replayed", first.Replayed, false)
		m.add(3)
		want := first
		want.Replayed = true
		s := m.state()
		m.wantEqual("answer", m.publish(p)[0], want)
		m.wantEqual("state", m.state(), s)
		m.reopen()
		m.wantEqual("answer", m.publish(p)[0], want)
		m.wantEqual("state", m.state(), s)
	}},
	{"other content is refused", false, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyedPublish("key", 1))[0]
		a := m.publish(publish(2), keyedPublish("key", 2), publish(3))
		m.wantErr(feed.ErrKeyReused, a[1].Err)
		m.wantEqual("answer", a[1], changelog.Appended{Err: a[1].Err})
		m.wantEqual("after", a[0].After, first.Cursor)
		m.wantEqual("after", a[2].After, a[0].Cursor)
		m.wantEqual("head", m.state().Head, a[2].Cursor)
		m.wantEqual("replayed", m.publish(keyedPublish("key", 1))[0].Replayed, true)
	}},
	{"other content alone is refused", false, func(m *memory) {
		m.make(name, k)
		m.publish(keyedPublish("key", 1))
		s := m.state()
		m.wantErr(feed.ErrKeyReused, m.publish(keyedPublish("key", 2))[0].Err)
		m.wantEqual("state", m.state(), s)
	}},
	{"unless another key was used", false, func(m *memory) {
		m.make(name, k)
		unless := func(key string, hash byte, other string) changelog.Publish {
			p := keyedPublish(key, hash)
			p.Unless = other
			return p
		}
		first := m.publish(keyedPublish("key", 1))[0]
		s := m.state()
		m.wantErr(feed.ErrKeyReused, m.publish(unless("other", 1, "key"))[0].Err)
		nameless := publish(1)
		nameless.Unless = "key"
		m.wantErr(feed.ErrKeyReused, m.publish(nameless)[0].Err)
		m.wantEqual("state", m.state(), s)
		first.Replayed = true
		m.wantEqual("answer", m.publish(unless("key", 1, "nobody"))[0], first)

		// In the same call too.
		a := m.publish(unless("a", 1, "b"), unless("b", 1, "a"), unless("c", 1, "a"), publish(1), unless("a", 1, "b"))
		m.wantEqual("after", a[0].After, first.Cursor)
		m.wantErr(feed.ErrKeyReused, a[1].Err)
		m.wantErr(feed.ErrKeyReused, a[2].Err)
		m.wantEqual("after", a[3].After, a[0].Cursor)
		m.wantEqual("replayed", a[4].Replayed, true)
		m.wantEqual("head", m.state().Head, a[3].Cursor)
		m.reopen()
		m.wantErr(feed.ErrKeyReused, m.publish(unless("b", 1, "a"))[0].Err)

		// A known Key counts before Unless: an older version may have used both.
		m.publish(keyedPublish("b", 1))
		m.wantEqual("replayed", m.publish(unless("a", 1, "b"))[0].Replayed, true)
		m.wantErr(feed.ErrKeyReused, m.publish(unless("a", 2, "b"))[0].Err)
		_, err := m.Append(m.ctx, name, unless("d", 1, strings.Repeat("x", changelog.MaxKey+1)))
		m.wantErr(resourcesync.ErrInvalid, err)
	}},
	{"refused publishes", false, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyedPublish("key", 1))[0]
		first.Replayed = true
		why := errors.New("the set is full")
		refused := func(p changelog.Publish) changelog.Publish {
			p.Refused = why
			return p
		}
		m.wantEqual("a retry", m.publish(refused(keyedPublish("key", 1)))[0], first)
		s := m.state()
		for _, p := range []changelog.Publish{refused(publish(25)), refused(keyedPublish("other", 1))} {
			m.wantEqual("answer", m.publish(p)[0], changelog.Appended{Err: why})
		}
		m.wantErr(feed.ErrKeyReused, m.publish(refused(keyedPublish("key", 2)))[0].Err)
		m.wantEqual("state", m.state(), s)
		a := m.publish(refused(publish(3)), publish(20), refused(keyedPublish("key", 1)), refused(keyedPublish("other", 1)), keyedPublish("other", 2))
		m.wantEqual("answer 0", a[0].Err, why)
		m.wantEqual("after", a[1].After, s.Head)
		m.wantEqual("answer 2", a[2], first)
		m.wantEqual("answer 3", a[3].Err, why)
		m.wantEqual("after", a[4].After, a[1].Cursor)
		m.wantEqual("head", m.state().Head, a[4].Cursor)
	}},
	{"an excluded key expires", true, func(m *memory) {
		m.make(name, k)
		m.publish(keyedPublish("key", 1))
		p := keyedPublish("other", 1)
		p.Unless = "key"
		m.clock.advance(changelog.KeyAge - time.Second)
		m.wantErr(feed.ErrKeyReused, m.publish(p)[0].Err)
		m.clock.advance(2 * time.Second)
		m.wantEqual("replayed", m.publish(p)[0].Replayed, false)
		_, err := m.Trim(m.ctx, name, changelog.Retention{}) // key expires, other does not
		m.ok(err)
		m.wantEqual("replayed", m.publish(keyedPublish("other", 1))[0].Replayed, true)
		m.wantEqual("replayed", m.publish(keyedPublish("key", 2))[0].Replayed, false)
	}},
	{"twice in one call", false, func(m *memory) {
		m.make(name, k)
		a, err := m.Append(m.ctx, name, keyedPublish("key", 1), publish(2), keyedPublish("key", 1), keyedPublish("key", 2), keyedPublish("other", 2), keyedPublish("key", 1))
		m.ok(err)
		for i := range a {
			a[i].Blocks = nil // replayed publishes have none
		}
		again := a[0]
		again.Replayed = true
		m.wantEqual("answer 2", a[2], again)
		m.wantErr(feed.ErrKeyReused, a[3].Err)
		m.wantEqual("after", a[4].After, a[1].Cursor)
		m.wantEqual("answer 5", a[5], again)
		s, err := m.State(m.ctx, name)
		m.ok(err)
		m.wantEqual("head", s.Head, a[4].Cursor)
		m.wantEqual("latest", s.BeforeLatest, a[4].After)
	}},
	{"keys belong to one set", false, func(m *memory) {
		m.make(name, k)
		m.make("other", k)
		m.publish(keyedPublish("key", 1))
		_, err := m.Append(m.ctx, "other", keyedPublish("another", 1)) // each set numbers its keys from 1
		m.ok(err)
		a, err := m.Append(m.ctx, "other", keyedPublish("key", 2))
		m.ok(err)
		if a[0].Err != nil || a[0].Replayed {
			m.Errorf("Appended = %+v, want it added", a[0])
		}
	}},
	{"keys of any bytes", false, func(m *memory) {
		m.make(name, k)
		keys := []string{"a", "a/", "a/b", "a\x00", "\x00", "\xff\xfe", "ü", "a b", "/"}
		for range 2 {
			for i, key := range keys {
				a := m.publish(keyedPublish(key, byte(i)))[0]
				m.wantEqual("position", a.Cursor.Position, uint64(i+1))
			}
			m.reopen()
		}
	}},
	{"a key outlives its entries", false, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyedPublish("key", 1))[0]
		m.add(50)
		removed, err := m.Trim(m.ctx, name, changelog.Retention{Count: 1})
		m.ok(err)
		if removed == 0 {
			m.Fatal("Trim() = 0, want more")
		}
		first.Replayed = true
		m.wantEqual("answer", m.publish(keyedPublish("key", 1))[0], first)
	}},
	{"expire by age", true, func(m *memory) {
		m.make(name, k)
		first := m.publish(keyedPublish("key", 1))[0]
		trim := func() {
			m.Helper()
			_, err := m.Trim(m.ctx, name, changelog.Retention{})
			m.ok(err)
		}
		m.clock.advance(changelog.KeyAge - time.Second)
		trim()
		m.wantEqual("replayed", m.publish(keyedPublish("key", 1))[0].Replayed, true)
		m.clock.advance(2 * time.Second)
		again := m.publish(keyedPublish("key", 2))[0] // without a Trim
		if again.Replayed || again.Err != nil || again.After != first.Cursor {
			m.Fatalf("key after %v: Appended = %+v, want it added", changelog.KeyAge, again)
		}
		trim() // must not remove the new record instead of the old one
		m.clock.advance(changelog.KeyAge - time.Second)
		trim()
		want := again
		want.Replayed = true
		m.wantEqual("answer", m.publish(keyedPublish("key", 2))[0], want)
		m.clock.advance(2 * time.Second)
		trim()
		m.reopen()
		m.wantEqual("replayed", m.publish(keyedPublish("key", 1))[0].Replayed, false)
	}},
	{"expire by count", false, func(m *memory) {
		if race {
			m.Skip("100,000 publishes take minutes with the race detector")
		}
		m.make(name, 10_000)
		m.publish(keyedPublish("key", 1), keyedPublish("next", 1), keyedPublish("third", 1))
		add := func(from, to int) {
			m.Helper()
			for from < to {
				n := min(10_000, to-from)
				p := make([]changelog.Publish, n)
				for i := range p {
					p[i] = keyedPublish(fmt.Sprint("n", from+i), 1)
				}
				m.publish(p...)
				from += n
			}
		}
		known := func(key string) bool {
			m.Helper()
			a := m.publish(keyedPublish(key, 2))[0] // added if the key is unknown
			return a.Err != nil || a.Replayed
		}
		add(3, changelog.KeyCount) // with the first three, KeyCount keys
		_, err := m.Trim(m.ctx, name, changelog.Retention{})
		m.ok(err)
		if !known("key") {
			m.Error("key is unknown before KeyCount others")
		}
		add(changelog.KeyCount, changelog.KeyCount+1)
		if known("key") { // adds it, as one more key
			m.Error("key is still known after KeyCount others")
		}
		_, err = m.Trim(m.ctx, name, changelog.Retention{})
		m.ok(err)
		if !known("key") {
			m.Error("key that was used again is unknown after Trim")
		}
		if known("next") {
			m.Error("key is still known after KeyCount others and Trim")
		}
	}},
}
