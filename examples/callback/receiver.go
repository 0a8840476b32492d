// Receiver is a callback that appends the deliveries of a hub to a file. Another program
// reads the file.
//
//	CALLBACK_SECRET=... go run ./examples/callback 127.0.0.1:9000 http://127.0.0.1:8080/sets/demo/changes spool.ndjson
//
// The file has a line for each delivery: {"mark", "missed", "changes"}. If "missed" is
// true, read a baseline. The mark of the last line says what was processed, as
// "POSITION/NUMBER", so only the file must survive a crash. NUMBER is the number of the newest
// delivery; it is missing if the hub does not number deliveries.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

const maxDelivery = 16 << 20 // bytes of a delivery; a hub sends about 1 MiB

// A notification is the part of a delivery's body that the receiver reads. The
// attributes after, cursor, delivery, gap, diverged and position are in the hub's
// namespace.
type notification struct {
	MD struct {
		After    string  `xml:"https://github.com/rshub/rshub/terms/ after,attr"`
		Cursor   string  `xml:"https://github.com/rshub/rshub/terms/ cursor,attr"`
		Delivery *number `xml:"https://github.com/rshub/rshub/terms/ delivery,attr"` // nil if the hub is older
		Gap      string  `xml:"https://github.com/rshub/rshub/terms/ gap,attr"`
		Diverged bool    `xml:"https://github.com/rshub/rshub/terms/ diverged,attr"`
	} `xml:"http://www.openarchives.org/rs/terms/ md"`
	URLs []struct {
		Loc     string `xml:"loc"`
		Lastmod string `xml:"lastmod"`
		MD      struct {
			Position uint64 `xml:"https://github.com/rshub/rshub/terms/ position,attr"`
			Change   string `xml:"change,attr"`
			Datetime string `xml:"datetime,attr"`
			Hash     string `xml:"hash,attr"`
		} `xml:"http://www.openarchives.org/rs/terms/ md"`
	} `xml:"url"`
}

type change struct {
	Position uint64 `json:"position"`
	Loc      string `json:"loc"`
	Change   string `json:"change"`
	Datetime string `json:"datetime"`
	Lastmod  string `json:"lastmod,omitempty"`
	Hash     string `json:"hash,omitempty"`
}

// A number is a decimal integer below 2^63.
type number uint64

func (n *number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 63)
	*n = number(v)
	return err
}

// A mark has the position and the delivery number up to which everything was processed.
// Its text is POSITION/NUMBER.
type mark struct {
	position uint64
	number   *number // nil if no delivery had one
}

func (m mark) MarshalText() ([]byte, error) {
	text := strconv.AppendUint(nil, m.position, 10)
	if m.number != nil {
		text = strconv.AppendUint(append(text, '/'), uint64(*m.number), 10)
	}
	return text, nil
}

// UnmarshalJSON also reads a JSON number, which older versions of this program stored.
func (m *mark) UnmarshalJSON(text []byte) error {
	at, of, numbered := bytes.Cut(bytes.Trim(text, `"`), []byte("/"))
	if numbered {
		m.number = new(number)
		if err := m.number.UnmarshalText(of); err != nil {
			return err
		}
	}
	var err error
	m.position, err = strconv.ParseUint(string(at), 10, 64)
	return err
}

type line struct {
	Mark    mark     `json:"mark"`
	Missed  bool     `json:"missed"`
	Changes []change `json:"changes"`
}

// A callback appends deliveries to a file.
type callback struct {
	topic, secret string

	mu   sync.Mutex // held while a delivery is stored
	file *os.File
	mark *mark // mark of the last line; nil before the first line
}

// open opens the file. It removes the part of a line that a crash may have left; that
// delivery was not acknowledged.
func (c *callback) open(path string) error {
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if c.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	if err := errors.Join(c.file.Truncate(int64(whole)), syncDir(filepath.Dir(path))); err != nil || whole == 0 {
		return err
	}
	var last line
	err = json.Unmarshal(text[bytes.LastIndexByte(text[:whole-1], '\n')+1:whole], &last)
	c.mark = &last.Mark
	return err
}

// syncDir makes the names in a directory durable. Otherwise a crash of the machine may
// leave no file.
func syncDir(path string) error {
	if runtime.GOOS == "windows" { // it cannot sync directories
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// signed checks the signatures of a body, or of a query. For a day after a change of the
// secret, the hub signs with both secrets, so the receiver may get the new one at any
// time in that day.
func signed(secret string, text []byte, h http.Header, name string) bool {
	return matches(secret, text, h.Get(name)) || matches(secret, text, h.Get("RS-Former-Signature"))
}

// matches checks one signature, which is ALGORITHM=HEX.
func matches(secret string, text []byte, header string) bool {
	algorithm, given, _ := strings.Cut(header, "=")
	algorithms := map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	if algorithms[algorithm] == nil {
		return false
	}
	mac := hmac.New(algorithms[algorithm], []byte(secret))
	mac.Write(text)
	sum, err := hex.DecodeString(given)
	return err == nil && hmac.Equal(sum, mac.Sum(nil))
}

// checkQuery reports whether the query of a GET is signed and recent.
func (c *callback) checkQuery(r *http.Request) bool {
	at, err := time.Parse(time.RFC3339, r.URL.Query().Get("rs.time"))
	return err == nil && time.Since(at).Abs() < 5*time.Minute && signed(c.secret, []byte(r.URL.RawQuery), r.Header, "RS-Signature")
}

// store appends the new changes of a delivery. Order and gap are in the body, which the
// signature covers. header is RS-Gap, which is used only if the body has no h:delivery.
func (c *callback) store(body []byte, header string) error {
	var n notification
	if err := xml.Unmarshal(body, &n); err != nil {
		return err
	}
	after, _ := position(n.MD.After) // empty before a set's first change
	to, err := position(n.MD.Cursor)
	if err != nil {
		return err
	}
	gap := n.MD.Gap
	if n.MD.Delivery == nil {
		gap = header
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest *number
	if c.mark != nil {
		newest = c.mark.number
	}
	if newest != nil && n.MD.Delivery != nil && *n.MD.Delivery < *newest {
		return nil // a replay
	}
	higher := newest == nil || n.MD.Delivery != nil && *n.MD.Delivery > *newest
	from := after
	// After a gap or a lost tail, positions may start again. In a delivery that is not newer
	// than the last one, it belongs to a replay or a retry.
	if c.mark != nil && (!higher || gap == "" && !n.MD.Diverged) {
		from = c.mark.position
	}
	next := mark{max(from, to), newest}
	if higher {
		next.number = n.MD.Delivery
	}
	l := line{Mark: next, Missed: higher && gap != "" || c.mark != nil && after > c.mark.position, Changes: []change{}}
	for _, u := range n.URLs {
		if u.MD.Position > from {
			l.Changes = append(l.Changes, change{u.MD.Position, u.Loc, u.MD.Change, u.MD.Datetime, u.Lastmod, u.MD.Hash})
		}
	}
	if len(l.Changes) == 0 && !l.Missed && c.mark != nil && next.position == c.mark.position && (!higher || next.number == nil) {
		return nil // a repeat
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err = c.file.Write(append(text, '\n')); err == nil {
		err = c.file.Sync()
	}
	if err != nil { // the file may now have a part of the line, which the next start removes
		log.Fatalf("store delivery: %v", err)
	}
	c.mark = &l.Mark
	return nil
}

func position(cursor string) (uint64, error) {
	digits, _, _ := strings.Cut(cursor, "-")
	return strconv.ParseUint(digits, 10, 64)
}

// ServeHTTP answers 2xx when the changes are stored. After any other answer the hub
// retries.
func (c *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet { // confirm subscriptions to our topic, and no other
		q := r.URL.Query()
		switch mode := q.Get("hub.mode"); {
		case !c.checkQuery(r):
			http.Error(w, "not signed with the secret", http.StatusForbidden)
		case mode == "denied":
			log.Printf("the hub ended the subscription: %s", q.Get("hub.reason"))
		case (mode == "subscribe" || mode == "unsubscribe") && q.Get("hub.topic") == c.topic:
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, q.Get("hub.challenge"))
		default:
			http.NotFound(w, r)
		}
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	switch {
	case err != nil:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	case !signed(c.secret, body, r.Header, "X-Hub-Signature"):
		w.WriteHeader(http.StatusForbidden)
	default:
		if err := c.store(body, r.Header.Get("RS-Gap")); err != nil {
			log.Printf("read delivery: %v", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func main() {
	c := &callback{secret: os.Getenv("CALLBACK_SECRET")}
	if len(os.Args) != 4 || c.secret == "" {
		log.Fatal("usage: CALLBACK_SECRET=... receiver HOST:PORT TOPIC FILE")
	}
	c.topic = os.Args[2]
	if err := c.open(os.Args[3]); err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("callback http://%s/\n", l.Addr())
	s := &http.Server{Handler: c, ReadTimeout: 30 * time.Second}
	log.Fatal(s.Serve(l))
}
