package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// A ticket comes in this parameter of a URL, or in this cookie.
const (
	ticketParameter = "ticket"
	ticketCookie    = "rshub-ticket"
)

// takeTicket returns the ticket of a request to read, and whether it was in the URL. It
// removes it from there. An Authorization counts more than a ticket.
func takeTicket(r *http.Request) (ticket string, inURL bool) {
	if strings.Contains(r.URL.RawQuery, ticketParameter) {
		if q := r.URL.Query(); q.Has(ticketParameter) {
			ticket = q.Get(ticketParameter)
			q.Del(ticketParameter)
			u := *r.URL
			u.RawQuery = q.Encode()
			r.URL, r.RequestURI = &u, u.RequestURI()
		}
	}
	switch {
	case r.Header.Get("Authorization") != "" || r.Method != http.MethodGet && r.Method != http.MethodHead:
		return "", false
	case ticket != "":
		return ticket, true
	case r.Header["Cookie"] == nil:
		return "", false
	}
	cookie, err := r.Cookie(ticketCookie)
	if err != nil {
		return "", false
	}
	return cookie.Value, false
}

// maxTicketRequest bounds the body of a request for a ticket, in bytes.
const maxTicketRequest = 1 << 10

// A ticketView is the answer to a request for a ticket.
type ticketView struct {
	Ticket  string `json:"ticket,omitempty"`  // none if the URL needs none, or if it is in a cookie
	Expires string `json:"expires,omitempty"` // when no request may begin with it any more
	URL     string `json:"url"`               // the topic, with the ticket
}

// serveTicket gives a caller a ticket to follow a set with in a browser. To whoever may
// follow the set without a token it gives the URL alone.
func (s *site) serveTicket(w http.ResponseWriter, r *http.Request) error {
	set := r.PathValue("set")
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		return problem.NotAllowed(r, "POST")
	}
	trail.From(r.Context()).Begin(trail.Ticket, set)
	if err := access.MayFollow(r.Context(), set); err != nil {
		return err
	}
	lasts, cookie, err := readTicketRequest(http.MaxBytesReader(w, r.Body, maxTicketRequest))
	if err != nil {
		return err
	}
	view := ticketView{URL: s.base.Topic(set)}
	if caller := access.FromContext(r.Context()); caller.Name != "" {
		text, expires, err := s.callers.tickets.New(r.Context(), caller, set, lasts)
		if err != nil {
			return err
		}
		view.Expires = string(resourcesync.AppendTime(nil, expires))
		if cookie {
			http.SetCookie(w, s.cookie(set, text, expires))
		} else {
			view.Ticket = text
			view.URL += "?" + url.Values{ticketParameter: {text}}.Encode()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(view)
}

// cookie returns a cookie with a ticket. A browser sends it to nothing but the URLs of the
// set, for no page elsewhere, and no script can read it.
func (s *site) cookie(set, text string, expires time.Time) *http.Cookie {
	c := &http.Cookie{Name: ticketCookie, Value: text, Expires: expires, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if u, err := url.Parse(s.base.Set(set)); err == nil {
		c.Path, c.Secure = u.EscapedPath()+"/", u.Scheme == "https"
	}
	return c
}

// readTicketRequest reads what somebody asks for. Nothing at all asks for the usual.
func readTicketRequest(body io.Reader) (lasts time.Duration, cookie bool, err error) {
	asked := struct {
		Seconds int  `json:"seconds"`
		Cookie  bool `json:"cookie"`
	}{Seconds: int(access.TicketLasts / time.Second)}
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	switch err = decoder.Decode(&asked); {
	case errors.Is(err, io.EOF):
		err = nil
	case err == nil:
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows it")
		}
	}
	if err != nil {
		return 0, false, resourcesync.Invalid(`the body is nothing or {"seconds": 300, "cookie": true or false}: %v`, err)
	}
	if most := int(access.TicketMost / time.Second); asked.Seconds < 1 || asked.Seconds > most {
		return 0, false, resourcesync.Invalid("seconds is a number from 1 to %d", most)
	}
	return time.Duration(asked.Seconds) * time.Second, asked.Cookie, nil
}

// ownTicketKeys are the keys of a hub alone. They are made anew at each start.
type ownTicketKeys [32]byte

func newOwnTicketKeys() *ownTicketKeys {
	k := &ownTicketKeys{}
	_, _ = rand.Read(k[:]) // it never fails
	return k
}

// TicketKey returns a key that is derived from the one of this process.
func (k *ownTicketKeys) TicketKey(_ context.Context, hour int64) ([]byte, error) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(k[:], uint64(hour)))
	return sum[:], nil
}

// sharedTicketKeys are the keys of all hubs that share a Redis. Each is a string there,
// PREFIX:ticket-key:HOUR, and gone when no ticket needs it any more.
type sharedTicketKeys struct {
	conn   *redisconn.Conn
	prefix string
}

// ticketKeyScript returns the key of an hour, and makes it if there is none. Nobody waits for
// replicas: when a key is lost, its tickets are not good any more, and new ones are made.
var ticketKeyScript = redisconn.NewScript(`
local key = redis.call('GET', KEYS[1])
if not key then
  key = ARGV[1]
  redis.call('SET', KEYS[1], key, 'EX', ARGV[2])
end
return key`, func(redisconn.Answer) bool { return false })

// TicketKey returns the key that is in Redis.
func (k *sharedTicketKeys) TicketKey(ctx context.Context, hour int64) (key []byte, err error) {
	fresh := newOwnTicketKeys()
	err = k.conn.Reading().Do(ctx, func(t *redisconn.Try) error {
		answer, err := t.Run(ticketKeyScript, []string{k.prefix + ":ticket-key:" + strconv.FormatInt(hour, 10)}, string(fresh[:]), int64(2*(access.TicketMost+time.Hour)/time.Second))
		if key = []byte(answer.Word()); err == nil && len(key) != len(fresh) {
			err = fmt.Errorf("the key of tickets in Redis has %d bytes", len(key))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get the key of tickets: %w", err)
	}
	return key, nil
}
