package websub

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

const (
	formType       = "application/x-www-form-urlencoded"
	maxForm        = 64 << 10 // bytes
	maxSecret      = 199      // bytes: section 5.1 requires less than 200
	maxVerifyToken = 2048     // bytes, as of a callback, since both are in the URL of the verification
	minEvery       = time.Second
	maxEvery       = 24 * time.Hour
	publish        = "publish" // hub.mode of a ping
)

// IsForm reports whether a request has a form, as all requests of WebSub do (section 5.1). A malformed parameter
// of the Content-Type is ignored.
func IsForm(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return t == formType && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// A form has the parameters of a request. Each of its methods reads one. err is the first error; results of
// methods are invalid if it is set.
type form struct {
	url.Values
	err error
}

// fail sets the error, unless one is set.
func (f *form) fail(err error) { f.err = cmp.Or(f.err, err) }

// failf is fail with an error that states the rule.
func (f *form) failf(format string, args ...any) { f.fail(resourcesync.Invalidf(format, args...)) }

// readForm reads the parameters in the body of a request. It ignores parameters in the URL.
func readForm(w http.ResponseWriter, r *http.Request) (*form, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("the form exceeds %d bytes", e.Limit))
	}
	if err != nil {
		return nil, problem.BodyError(err)
	}
	params, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, resourcesync.Invalidf("invalid form: %v", err)
	}
	for name, values := range params {
		if slices.ContainsFunc(append(values, name), func(text string) bool { return !utf8.ValidString(text) }) {
			return nil, resourcesync.Invalidf("%.40q: want valid UTF-8", name)
		}
	}
	return &form{Values: params}, nil
}

// one returns the only value of a parameter, or "" if it is missing.
func (f *form) one(name string) string {
	if n := len(f.Values[name]); n > 1 {
		f.failf("%s: got %d values, want one", name, n)
		return ""
	}
	return f.Get(name)
}

// mode reads hub.mode. The draft of 2012 has no modes: each of its requests subscribes.
func (f *form) mode() string {
	switch mode := f.one("hub.mode"); mode {
	case string(subscription.Subscribe), string(subscription.Unsubscribe), publish:
		return mode
	case "":
		if !f.Has("callbackURI") {
			f.failf("hub.mode is missing; want subscribe, unsubscribe or publish")
		}
	default:
		f.failf("hub.mode: got %.40q, want subscribe, unsubscribe or publish", mode)
	}
	return string(subscription.Subscribe)
}

// callback reads hub.callback, or callbackURI of the draft of 2012. It returns the text unchanged, or "" if it
// is invalid. check reports whether a callback is allowed.
func (f *form) callback(check func(name, target string) error) string {
	name := "hub.callback"
	if !f.Has(name) && f.Has("callbackURI") {
		name = "callbackURI"
	}
	callback := f.one(name)
	if callback == "" {
		f.failf("%s is missing; want the URL to POST changes to", name)
		return ""
	}
	if err := check("callback", callback); err != nil {
		f.fail(resourcesync.Wrap(name, err))
		return ""
	}
	return callback
}

// secret reads hub.secret (section 5.1).
func (f *form) secret() string { return f.short("hub.secret", maxSecret, "less than 200") }

// verifyToken reads hub.verify_token of PubSubHubbub 0.3 (section 6.1).
func (f *form) verifyToken() string {
	return f.short("hub.verify_token", maxVerifyToken, "at most 2048")
}

// short reads a parameter of at most max bytes. want is that limit in the error.
func (f *form) short(name string, max int, want string) string {
	text := f.one(name)
	if len(text) > max {
		f.failf("%s: got %d bytes, want %s", name, len(text), want)
	}
	return text
}

// token reads rs.status, the URL of the subscription's status, and returns the token in it, which proves that the
// caller made the subscription.
func (f *form) token(base feed.Base) string {
	status := f.one("rs.status")
	name, ok := strings.CutPrefix(status, base.Status(""))
	_, token, _ := strings.Cut(name, ".")
	if status != "" && (!ok || token == "") {
		f.failf("rs.status: got %.40q, want the URL of a subscription's status from its verification", status)
	}
	return token
}

// lease reads hub.lease_seconds and returns the lease to grant. Zero requests the longest lease, as at other hubs:
// it once meant that a subscription does not end.
func (f *form) lease(o *Options) time.Duration {
	text := f.one("hub.lease_seconds")
	if text == "" {
		return o.LeaseDefault
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && n == 0 {
		return o.LeaseMax
	}
	if err != nil {
		f.failf("hub.lease_seconds: got %.40q, want a number of seconds, or 0 for the longest lease", text)
	}
	lease := time.Duration(min(n, uint64(o.LeaseMax/time.Second))) * time.Second // cannot overflow
	return min(max(lease, o.LeaseMin), o.LeaseMax)
}

// terms reads the parameters of the terms of a subscription.
func (f *form) terms() subscription.Terms {
	return subscription.Terms{Secret: f.secret(), Filter: f.filter(), Every: f.every()}
}

// every reads rs.every.
func (f *form) every() time.Duration {
	text := f.one("rs.every")
	if text == "" {
		return 0
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < minEvery || every > maxEvery {
		f.failf("rs.every: got %.40q, want a duration from %v to %v, such as 15m", text, minEvery, maxEvery)
	}
	return every
}

// filter reads feed.FilterParameters, prefixed with "rs.".
func (f *form) filter() feed.Filter {
	q := url.Values{}
	for _, name := range feed.FilterParameters {
		if v, ok := f.Values["rs."+name]; ok {
			q[name] = v
		}
	}
	filter, err := feed.ParseFilter(q)
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		err = resourcesync.Invalidf("rs.%s", e.Msg) // Msg starts with the name of the parameter
	}
	f.fail(err)
	return filter
}
