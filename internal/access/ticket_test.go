package access

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// ticketKeys has the same keys for all hubs, and counts reads.
type ticketKeys struct {
	reads int
	other byte // number of the set of keys
	err   error
}

func (k *ticketKeys) TicketKey(_ context.Context, hour int64) ([]byte, error) {
	k.reads++
	key := make([]byte, 32)
	key[0], key[1] = byte(hour), k.other
	return key, k.err
}

// refused reports whether an error is a 401.
func refused(err error) bool {
	p := new(feed.Problem)
	return errors.As(err, &p) && p.Status == http.StatusUnauthorized
}

func TestTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watchFile(t, "alice ALICE follow:a*,publish:*,operate", "bob BOB follow:b expires=2000-01-01T02:00:00Z", "anyone - follow:open")
		keys := &ticketKeys{}
		hubs := []*Tickets{NewTickets(b.file, keys), NewTickets(b.file, keys)}
		make := func(token, set string, lifetime time.Duration) (string, time.Time) {
			t.Helper()
			c, err := b.caller(token)
			if err != nil {
				t.Fatal(err)
			}
			text, expires, err := hubs[0].New(t.Context(), c, set, lifetime)
			if err != nil {
				t.Fatal(err)
			}
			return text, expires
		}
		text, expires := make(alicesToken, "abundant", DefaultTicketLifetime)
		if want := time.Now().Add(DefaultTicketLifetime); !expires.Equal(want) {
			t.Errorf("New(): got the expiry %v, want %v", expires, want)
		}
		for name, plain := range map[string]string{"name": "alice", "set": "abundant"} {
			if sealed, _ := base64.RawURLEncoding.DecodeString(text); strings.Contains(text, plain) || strings.Contains(string(sealed), `"`+plain+`"`) {
				t.Errorf("New(): got a ticket that reveals the %s", name)
			}
		}
		c, err := hubs[1].Caller(t.Context(), text)
		if err != nil || c.Name != "alice" || !c.Ticket {
			t.Fatalf("Caller() at another hub = %+v, %v, want alice", c, err)
		}
		if r := c.Rights; !r.FollowPrivate("abundant") || r.Follow("abundantly") || r.Follow("a") || !r.Follow("open") || r.Publish("abundant") || r.Operate() {
			t.Errorf("Caller(): got %+v, want only the right to follow abundant and open", r)
		}
		if text, _ = make(alicesToken, "open", DefaultTicketLifetime); text != "" {
			c, err := hubs[1].Caller(t.Context(), text)
			if err != nil || c.Rights.FollowPrivate("open") || !c.Rights.Follow("open") {
				t.Errorf("Caller() for a public set = %+v, %v, want only the right of anyone", c, err)
			}
		}

		// An invalid ticket, or one with a changed byte, is refused.
		text, _ = make(alicesToken, "abundant", DefaultTicketLifetime)
		for i := range text {
			changed := []byte(text)
			if changed[i]++; changed[i] == text[i] {
				continue
			}
			if c, err := hubs[1].Caller(t.Context(), string(changed)); !refused(err) || c.Name != "" {
				// The last letter has unused bits.
				if same, _ := base64.RawURLEncoding.DecodeString(string(changed)); i != len(text)-1 || string(same) == "" {
					t.Errorf("Caller() with changed byte %d = %+v, %v, want 401", i, c, err)
				}
			}
		}
		for _, wrong := range []string{"x", "-", "????", text[:len(text)-4], text + "AAAA", strings.Repeat("A", maxTicket+1), strings.Repeat("A", 64)} {
			if _, err := hubs[1].Caller(t.Context(), wrong); !refused(err) {
				t.Errorf("Caller(%.20q) = %v, want 401", wrong, err)
			}
		}
		if _, err := NewTickets(b.file, &ticketKeys{other: 1}).Caller(t.Context(), text); !refused(err) {
			t.Errorf("Caller() with other keys = %v, want 401", err)
		}

		// It expires, even across the end of an hour, and with the token if that is earlier.
		time.Sleep(58 * time.Minute)
		text, _ = make(alicesToken, "ab", DefaultTicketLifetime)
		time.Sleep(DefaultTicketLifetime - time.Second)
		if _, err := hubs[1].Caller(t.Context(), text); err != nil {
			t.Errorf("Caller() before the expiry = %v, want nil", err)
		}
		time.Sleep(time.Second)
		if _, err := hubs[1].Caller(t.Context(), text); !refused(err) {
			t.Errorf("Caller() at the expiry = %v, want 401", err)
		}
		text, _ = make(alicesToken, "ab", MaxTicketLifetime)
		time.Sleep(MaxTicketLifetime - 7*time.Minute)
		if _, err := hubs[1].Caller(t.Context(), text); err != nil {
			t.Errorf("Caller() before the expiry of a long ticket = %v, want nil", err)
		}
		if c, _ := b.caller(bobsToken); c.Name != "bob" {
			t.Fatal("bob's token has expired too early for this test")
		}
		text, expires = make(bobsToken, "b", MaxTicketLifetime)
		if want := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC); !expires.Equal(want) {
			t.Errorf("New(): got the expiry %v, want the token's, %v", expires, want)
		}
		c, err = hubs[1].Caller(t.Context(), text)
		if err != nil || !c.Expires.Equal(expires) {
			t.Errorf("Caller() = %+v, %v, want the expiry of the token", c, err)
		}
		time.Sleep(time.Until(expires))
		if _, err := c.Refresh(); !refused(err) {
			t.Errorf("Refresh() after the expiry of the token = %v, want 401", err)
		}

		// A stream continues after the expiry of its ticket. It ends with the token, even if
		// another token has the same name.
		text, _ = make(alicesToken, "ab", time.Second)
		if c, err = hubs[1].Caller(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if c, err := c.Refresh(); err != nil || !c.Rights.Follow("ab") {
			t.Errorf("Refresh() after the expiry of the ticket = %+v, %v, want the right to follow ab", c, err)
		}
		b.write("alice ALICE follow:z")
		time.Sleep(10 * time.Second)
		if c, err := c.Refresh(); err != nil || c.Rights.Follow("ab") || c.Rights.Follow("open") {
			t.Errorf("Refresh() after a change of rights = %+v, %v, want no right", c, err)
		}
		b.write("alice BOB follow:*")
		time.Sleep(10 * time.Second)
		if _, err := c.Refresh(); !refused(err) {
			t.Errorf("Refresh() with another token = %v, want 401", err)
		}
	})
}

// A ticket for all sets gives the sets that its caller could follow itself when it was issued, as far as
// the caller still may.
func TestTicketForAll(t *testing.T) {
	many := NewCaller("many", Rights{follow: slices.Repeat([]string{"a-long-name-of-a-set"}, 200)}, Rights{}, time.Time{}, nil)
	if _, _, err := NewTickets(nil, &ticketKeys{}).New(t.Context(), many, "", time.Minute); err == nil || !strings.Contains(err.Error(), "200 sets") {
		t.Errorf("New() for a caller with many rights = %v, want an error with their number", err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := watchFile(t, "alice ALICE follow:a,follow:lib.*,publish:*,operate", "anyone - follow:open")
		tickets := NewTickets(b.file, &ticketKeys{})
		c, err := b.caller(alicesToken)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := tickets.New(t.Context(), c, "", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = tickets.Caller(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if r := c.Rights; !r.FollowPrivate("a") || !r.FollowPrivate("lib.x") || r.FollowPrivate("open") || !r.Follow("open") || r.Publish("a") || r.Operate() {
			t.Errorf("Caller() = %+v, want only the rights to follow", r)
		}
		b.write("alice ALICE follow:lib.b*,follow:z,follow:a*", "anyone - follow:open")
		time.Sleep(10 * time.Second)
		c, err = c.Refresh()
		if r := c.Rights; err != nil || !r.FollowPrivate("a") || r.FollowPrivate("lib.b") || r.FollowPrivate("z") || r.FollowPrivate("ab") {
			t.Errorf("Refresh() = %+v, %v, want only the right to follow a", r, err)
		}
	})
}

// A ticket of a caller with a JWT has the rights and the expiry of the JWT.
func TestTicketOfJWT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tickets := NewTickets(jwtCallers{}, &ticketKeys{})
		rights, err := ParseRights("follow:a")
		if err != nil {
			t.Fatal(err)
		}
		ends := time.Now().Add(time.Minute)
		text, expires, err := tickets.New(t.Context(), NewCaller(JWTPrefix+"x", rights, Rights{}, ends, nil), "a", time.Hour)
		if err != nil || !expires.Equal(ends) {
			t.Fatalf("New(): got the expiry %v, %v, want the JWT's", expires, err)
		}
		c, err := tickets.Caller(t.Context(), text)
		if err != nil || c.Name != JWTPrefix+"x" || !c.Rights.FollowPrivate("a") || c.Rights.Follow("b") || !c.Expires.Equal(ends) {
			t.Errorf("Caller() = %+v, %v, want the right to follow a", c, err)
		}
		text, _, err = tickets.New(t.Context(), NewCaller(JWTPrefix+"x", rights, Rights{}, ends, nil), "open", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := tickets.Caller(t.Context(), text); err != nil || c.Rights.Follow("open") {
			t.Errorf("Caller() for a set without a right = %+v, %v, want no right", c, err)
		}
		withdrawn := NewCaller(JWTPrefix+"x", rights, Rights{}, ends, nil)
		withdrawn.Key = "withdrawn"
		if text, _, err = tickets.New(t.Context(), withdrawn, "a", time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := tickets.Caller(t.Context(), text); !refused(err) {
			t.Errorf("Caller() with a withdrawn key = %v, want 401", err)
		}
		time.Sleep(time.Minute)
		if _, err := c.Refresh(); !refused(err) {
			t.Errorf("Refresh() after the expiry of the JWT = %v, want 401", err)
		}
	})
}

// jwtCallers behaves like package jwt for named callers.
type jwtCallers struct{ *TokensFile }

func (jwtCallers) CallerByName(name, key string) (Caller, bool) {
	return NewNamedCaller(name, key, Rights{}), key != "withdrawn"
}

// Keys are read every few seconds, not for each request. A failure to read them does not invalidate
// the ticket.
func TestTicketKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watchFile(t, "alice ALICE follow:a")
		keys := &ticketKeys{}
		tickets := NewTickets(b.file, keys)
		c, err := b.caller(alicesToken)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := tickets.New(t.Context(), c, "a", DefaultTicketLifetime)
		for range 100 {
			if _, err := tickets.Caller(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil || keys.reads != 1 {
			t.Errorf("got %d reads of the key, %v, want 1, nil", keys.reads, err)
		}
		keys.other = 1 // as after a failover
		time.Sleep(keyCacheTime)
		if _, err := tickets.Caller(t.Context(), text); !refused(err) {
			t.Errorf("Caller() with another key = %v, want 401", err)
		}
		if text, _, err = tickets.New(t.Context(), c, "a", DefaultTicketLifetime); err != nil {
			t.Fatal(err)
		}
		if _, err := tickets.Caller(t.Context(), text); err != nil {
			t.Errorf("Caller() of a new ticket = %v, want nil", err)
		}
		time.Sleep(keyCacheTime)
		keys.err = errors.New("Redis is down")
		if _, err := tickets.Caller(t.Context(), text); err == nil || refused(err) {
			t.Errorf("Caller() without keys = %v, want an error other than 401", err)
		}
		if _, _, err := tickets.New(t.Context(), c, "a", DefaultTicketLifetime); !errors.Is(err, keys.err) {
			t.Errorf("New() without keys = %v, want its error", err)
		}
	})
}
