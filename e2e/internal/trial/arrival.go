package trial

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The kinds of requests to a callback.
const (
	Verification = "verification"
	Denial       = "denial"
	Delivery     = "delivery"
)

// A CallbackRequest is a request of the hub to a callback.
type CallbackRequest struct {
	kind   string
	At     time.Time
	Target string // path and query as sent
	Query  url.Values
	Header http.Header
	Body   []byte
	Status int // status of the response; 0 if there is none yet
}

// Contains reports whether a delivery has a mark.
func (a CallbackRequest) Contains(mark string) bool { return strings.Contains(string(a.Body), mark) }

// Param returns a parameter that the hub has appended.
func (a CallbackRequest) Param(name string) string {
	if all := a.Query[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// Challenge returns the challenge that the subscriber must echo. A callback may have a parameter
// of that name itself: the one of the hub is last.
func (a CallbackRequest) Challenge() string { return a.Param("hub.challenge") }

// CheckSignature checks the signature of a delivery.
func CheckSignature(d *CallbackRequest, secret string) error {
	all := d.Header.Values("X-Hub-Signature")
	if len(all) != 1 {
		return fmt.Errorf("got %d signatures, want 1", len(all))
	}
	method, hexed, _ := strings.Cut(all[0], "=")
	h := map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}[method]
	got, err := hex.DecodeString(hexed)
	if err != nil || h == nil {
		return fmt.Errorf("invalid X-Hub-Signature %q", all[0])
	}
	mac := hmac.New(h, []byte(secret))
	mac.Write(d.Body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return fmt.Errorf("X-Hub-Signature %s does not match the body with secret %.20q", all[0], secret)
	}
	return nil
}

var linkForm = regexp.MustCompile(`<([^>]*)>([^,<]*)`)

// Links returns the targets of the links with a relation in a header.
func Links(h http.Header, rel string) (targets []string) {
	for _, l := range linkForm.FindAllStringSubmatch(strings.Join(h.Values("Link"), ", "), -1) {
		for p := range strings.SplitSeq(l[2], ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			for v := range strings.FieldsSeq(strings.Trim(value, `" `)) {
				if strings.EqualFold(name, "rel") && strings.EqualFold(v, rel) {
					targets = append(targets, l[1])
				}
			}
		}
	}
	return targets
}

// SelfOf returns the topic that a delivery states.
func SelfOf(d *CallbackRequest) string { return strings.Join(Links(d.Header, "self"), " ") }

// PathOf returns the path of a URL with its query, as written.
func PathOf(u string) string {
	rest := u[strings.Index(u, "://")+3:]
	return rest[strings.Index(rest, "/"):]
}

// LeaseOf returns the lease that a verification grants, or 0 if it states none.
func LeaseOf(v *CallbackRequest) int64 {
	n, err := strconv.ParseInt(v.Param("hub.lease_seconds"), 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}
