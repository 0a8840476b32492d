package access

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// ticketKeys has the same keys for all hubs, and counts the reads.
type ticketKeys struct {
	reads int
	other byte // another number, other keys
	err   error
}

func (k *ticketKeys) TicketKey(_ context.Context, hour int64) ([]byte, error) {
	k.reads++
	key := make([]byte, 32)
	key[0], key[1] = byte(hour), k.other
	return key, k.err
}

func refused(err error) bool {
	p := new(feed.Problem)
	return errors.As(err, &p) && p.Status == http.StatusUnauthorized
}

func TestTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watchFile(t, "alice ALICE follow:a*,publish:*,operate", "bob BOB follow:b expires=2000-01-01T02:00:00Z", "anyone - follow:open")
		keys := &ticketKeys{}
		hubs := []*Tickets{NewTickets(b.file, keys), NewTickets(b.file, keys)}
		make := func(token, set string, lasts time.Duration) (string, time.Time) {
			t.Helper()
			c, err := b.caller(token)
			if err != nil {
				t.Fatal(err)
			}
			text, expires, err := hubs[0].New(t.Context(), c, set, lasts)
			if err != nil {
				t.Fatal(err)
			}
			return text, expires
		}
		text, expires := make(alicesToken, "abundant", TicketLasts)
		if want := time.Now().Add(TicketLasts); !expires.Equal(want) {
			t.Errorf("it expires at %v, want %v", expires, want)
		}
		for name, plain := range map[string]string{"name": "alice", "set": "abundant"} {
			if sealed, _ := base64.RawURLEncoding.DecodeString(text); strings.Contains(text, plain) || strings.Contains(string(sealed), `"`+plain+`"`) {
				t.Errorf("the ticket shows the %s", name)
			}
		}
		c, err := hubs[1].Caller(t.Context(), text)
		if err != nil || c.Name != "alice" || !c.Ticket {
			t.Fatalf("another hub: %+v, %v", c, err)
		}
		if r := c.Rights; !r.FollowPrivate("abundant") || r.Follow("abundantly") || r.Follow("a") || !r.Follow("open") || r.Publish("abundant") || r.Operate() {
			t.Errorf("the ticket gives %+v", r)
		}
		if text, _ = make(alicesToken, "open", TicketLasts); text != "" {
			c, err := hubs[1].Caller(t.Context(), text)
			if err != nil || c.Rights.FollowPrivate("open") || !c.Rights.Follow("open") {
				t.Errorf("a ticket for what anyone may follow: %+v, %v", c, err)
			}
		}

		// What is not a ticket, or was changed in any byte, is refused.
		text, _ = make(alicesToken, "abundant", TicketLasts)
		for i := range text {
			changed := []byte(text)
			if changed[i]++; changed[i] == text[i] {
				continue
			}
			if c, err := hubs[1].Caller(t.Context(), string(changed)); !refused(err) || c.Name != "" {
				// The last letter has bits that count for nothing.
				if same, _ := base64.RawURLEncoding.DecodeString(string(changed)); i != len(text)-1 || string(same) == "" {
					t.Errorf("byte %d changed: %+v, %v", i, c, err)
				}
			}
		}
		for _, wrong := range []string{"x", "-", "????", text[:len(text)-4], text + "AAAA", strings.Repeat("A", maxTicket+1), strings.Repeat("A", 64)} {
			if _, err := hubs[1].Caller(t.Context(), wrong); !refused(err) {
				t.Errorf("%.20q: %v", wrong, err)
			}
		}
		if _, err := NewTickets(b.file, &ticketKeys{other: 1}).Caller(t.Context(), text); !refused(err) {
			t.Errorf("with other keys: %v", err)
		}

		// It expires, also over the end of an hour; and with the token, if that is earlier.
		time.Sleep(58 * time.Minute)
		text, _ = make(alicesToken, "ab", TicketLasts)
		time.Sleep(TicketLasts - time.Second)
		if _, err := hubs[1].Caller(t.Context(), text); err != nil {
			t.Errorf("a second before its end: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := hubs[1].Caller(t.Context(), text); !refused(err) {
			t.Errorf("at its end: %v", err)
		}
		text, _ = make(alicesToken, "ab", TicketMost)
		time.Sleep(TicketMost - 7*time.Minute)
		if _, err := hubs[1].Caller(t.Context(), text); err != nil {
			t.Errorf("a long one before its end: %v", err)
		}
		if c, _ := b.caller(bobsToken); c.Name != "bob" {
			t.Fatal("bob's token has expired too early for this test")
		}
		text, expires = make(bobsToken, "b", TicketMost)
		if want := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC); !expires.Equal(want) {
			t.Errorf("the ticket of a token expires at %v", expires)
		}
		c, err = hubs[1].Caller(t.Context(), text)
		if err != nil || !c.Expires.Equal(expires) {
			t.Errorf("%+v, %v", c, err)
		}
		time.Sleep(time.Until(expires))
		if _, err := c.Now(); !refused(err) {
			t.Errorf("after the end of the token: %v", err)
		}

		// What has begun with a ticket goes on when the ticket has expired, and ends with
		// the token: also when another token has its name.
		text, _ = make(alicesToken, "ab", time.Second)
		if c, err = hubs[1].Caller(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if c, err := c.Now(); err != nil || !c.Rights.Follow("ab") {
			t.Errorf("a stream after the end of the ticket: %+v, %v", c, err)
		}
		b.write("alice ALICE follow:z")
		time.Sleep(10 * time.Second)
		if c, err := c.Now(); err != nil || c.Rights.Follow("ab") || c.Rights.Follow("open") {
			t.Errorf("with other rights: %+v, %v", c, err)
		}
		b.write("alice BOB follow:*")
		time.Sleep(10 * time.Second)
		if _, err := c.Now(); !refused(err) {
			t.Errorf("with another token: %v", err)
		}
	})
}

// A ticket of a caller with a JWT is good for what the JWT allowed, as long as the JWT is.
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
			t.Fatalf("%v, %v", expires, err)
		}
		c, err := tickets.Caller(t.Context(), text)
		if err != nil || c.Name != JWTPrefix+"x" || !c.Rights.FollowPrivate("a") || c.Rights.Follow("b") || !c.Expires.Equal(ends) {
			t.Errorf("%+v, %v", c, err)
		}
		text, _, err = tickets.New(t.Context(), NewCaller(JWTPrefix+"x", rights, Rights{}, ends, nil), "open", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := tickets.Caller(t.Context(), text); err != nil || c.Rights.Follow("open") {
			t.Errorf("a set that the JWT does not name: %+v, %v", c, err)
		}
		withdrawn := NewCaller(JWTPrefix+"x", rights, Rights{}, ends, nil)
		withdrawn.Key = "withdrawn"
		if text, _, err = tickets.New(t.Context(), withdrawn, "a", time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := tickets.Caller(t.Context(), text); !refused(err) {
			t.Errorf("a ticket of a JWT whose key was withdrawn: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := c.Now(); !refused(err) {
			t.Errorf("after the end of the JWT: %v", err)
		}
	})
}

// jwtCallers knows of callers what package jwt does.
type jwtCallers struct{ *TokensFile }

func (jwtCallers) Named(name, key string) (Caller, bool) {
	return NewNamed(name, key, Rights{}), key != "withdrawn"
}

// Keys are read each few seconds and not for each request; if they cannot be read, that is
// no fault of the ticket.
func TestTicketKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := watchFile(t, "alice ALICE follow:a")
		keys := &ticketKeys{}
		tickets := NewTickets(b.file, keys)
		c, err := b.caller(alicesToken)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := tickets.New(t.Context(), c, "a", TicketLasts)
		for range 100 {
			if _, err := tickets.Caller(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil || keys.reads != 1 {
			t.Errorf("%d reads, %v", keys.reads, err)
		}
		keys.other = 1 // as after a failover
		time.Sleep(keyFor)
		if _, err := tickets.Caller(t.Context(), text); !refused(err) {
			t.Errorf("with another key: %v", err)
		}
		if text, _, err = tickets.New(t.Context(), c, "a", TicketLasts); err != nil {
			t.Fatal(err)
		}
		if _, err := tickets.Caller(t.Context(), text); err != nil {
			t.Errorf("a new one: %v", err)
		}
		time.Sleep(keyFor)
		keys.err = errors.New("Redis is away")
		if _, err := tickets.Caller(t.Context(), text); err == nil || refused(err) {
			t.Errorf("without keys: %v", err)
		}
		if _, _, err := tickets.New(t.Context(), c, "a", TicketLasts); !errors.Is(err, keys.err) {
			t.Errorf("a new one without keys: %v", err)
		}
	})
}
