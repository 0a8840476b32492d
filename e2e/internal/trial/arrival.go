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

// What arrives at a callback.
const (
	Verification = "verification"
	Denial       = "denial"
	Delivery     = "delivery"
)

// An CallbackRequest is one request of the hub.
type CallbackRequest struct {
	kind   string
	At     time.Time
	Target string // path and query as they were sent
	Query  url.Values
	Header http.Header
	Body   []byte
	Status int // that was answered; 0: none, or not yet
}

// Contains says whether a delivery has a mark.
func (a CallbackRequest) Contains(mark string) bool { return strings.Contains(string(a.Body), mark) }

// Param is a parameter that the hub has appended.
func (a CallbackRequest) Param(name string) string {
	if all := a.Query[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// Challenge is what the subscriber has to send back. A callback may have a
// parameter of that name itself: the hub's is the last.
func (a CallbackRequest) Challenge() string { return a.Param("hub.challenge") }

// CheckSignature checks a delivery's signature.
func CheckSignature(d *CallbackRequest, secret string) error {
	all := d.Header.Values("X-Hub-Signature")
	if len(all) != 1 {
		return fmt.Errorf("there are %d signatures", len(all))
	}
	method, hexed, _ := strings.Cut(all[0], "=")
	h := map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}[method]
	got, err := hex.DecodeString(hexed)
	if err != nil || h == nil {
		return fmt.Errorf("X-Hub-Signature is %q", all[0])
	}
	mac := hmac.New(h, []byte(secret))
	mac.Write(d.Body)
	if !hmac.Equal(got, mac.Sum(nil)) {
		return fmt.Errorf("X-Hub-Signature %s is not that of the body with %.20q", all[0], secret)
	}
	return nil
}

var linkForm = regexp.MustCompile(`<([^>]*)>([^,<]*)`)

// Links are the targets of the links with a relation in a header.
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

// SelfOf is the topic that a delivery says it is of.
func SelfOf(d *CallbackRequest) string { return strings.Join(Links(d.Header, "self"), " ") }

// PathOf is a URL's path with its query, as they are written.
func PathOf(u string) string {
	rest := u[strings.Index(u, "://")+3:]
	return rest[strings.Index(rest, "/"):]
}

// LeaseOf is the lease that a verification grants, 0 when it says none.
func LeaseOf(v *CallbackRequest) int64 {
	n, err := strconv.ParseInt(v.Param("hub.lease_seconds"), 10, 64)
	if err != nil || n < 1 {
		return 0
	}
	return n
}
