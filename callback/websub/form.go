package websub

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

const (
	formType   = "application/x-www-form-urlencoded"
	maxForm    = 64 << 10 // bytes
	maxSecret  = 199      // bytes: section 5.1 asks for less than 200
	publishing = "publish"
)

// IsForm reports whether a request carries a form, as all requests of WebSub do
// (section 5.1). A Content-Type with a malformed parameter still counts.
func IsForm(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return t == formType && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// readForm reads the parameters in the body of a request. Parameters in its URL
// do not count.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("the form has more than %d bytes", e.Limit))
	}
	if err != nil {
		return nil, fmt.Errorf("read the form: %w", err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, resourcesync.Invalid("the form cannot be read: %v", err)
	}
	for name, values := range form {
		for _, v := range values {
			if !utf8.ValidString(name) || !utf8.ValidString(v) {
				return nil, resourcesync.Invalid("%.40q: a form is UTF-8", name)
			}
		}
	}
	return form, nil
}

// one returns the only value of a parameter, or "" when it is missing.
func one(form url.Values, name string) (string, error) {
	switch v := form[name]; len(v) {
	case 0:
		return "", nil
	case 1:
		return v[0], nil
	default:
		return "", resourcesync.Invalid("%s is there %d times, but can be there only once", name, len(v))
	}
}

// parseMode reads hub.mode. The draft of 2012 has no mode, and every request of
// it subscribes.
func parseMode(form url.Values) (string, error) {
	mode, err := one(form, "hub.mode")
	switch {
	case err != nil:
		return "", err
	case mode == string(subscription.Subscribe), mode == string(subscription.Unsubscribe), mode == publishing:
		return mode, nil
	case mode == "" && form.Has("callbackURI"):
		return string(subscription.Subscribe), nil
	}
	if mode == "" {
		return "", resourcesync.Invalid("hub.mode is missing: it is subscribe, unsubscribe or publish")
	}
	return "", resourcesync.Invalid("hub.mode=%.40q: it is subscribe, unsubscribe or publish", mode)
}

// parseTopic returns the set whose topic a parameter names.
func (s *Server) parseTopic(form url.Values, name string) (set string, err error) {
	topic, err := one(form, name)
	if err != nil {
		return "", err
	}
	return s.setOf(name, topic)
}

// setOf returns the set of a topic, which is the value of a parameter.
func (s *Server) setOf(name, topic string) (set string, err error) {
	if topic == "" {
		return "", resourcesync.Invalid("%s is missing: it is a topic, %s", name, s.base.Topic("SET"))
	}
	set, ok := s.base.ParseTopic(topic)
	if !ok {
		return "", problem.New(http.StatusNotFound, "no-such-topic",
			fmt.Sprintf("%s=%.200q is no topic of this hub: a topic is %s, and GET %s lists the sets", name, topic, s.base.Topic("SET"), s.base.Sets()))
	}
	return set, nil
}

// parseCallback reads hub.callback, or callbackURI of the draft of 2012. It
// returns the text exactly as it was given.
func (s *Server) parseCallback(form url.Values) (string, error) {
	name := "hub.callback"
	if !form.Has(name) && form.Has("callbackURI") {
		name = "callbackURI"
	}
	callback, err := one(form, name)
	if err != nil {
		return "", err
	}
	if callback == "" {
		return "", resourcesync.Invalid("%s is missing: it is the URL that changes are POSTed to", name)
	}
	if err := s.check("callback", callback); err != nil {
		return "", resourcesync.About(name, err)
	}
	return callback, nil
}

// parseSecret reads hub.secret (section 5.1).
func parseSecret(form url.Values) (string, error) {
	secret, err := one(form, "hub.secret")
	if err == nil && len(secret) > maxSecret {
		err = resourcesync.Invalid("hub.secret has %d bytes: it must be less than 200", len(secret))
	}
	return secret, err
}

// parseStatus reads rs.status, the URL of the subscription's status, and
// returns the token in it: whoever made the subscription knows it.
func (s *Server) parseStatus(form url.Values) (token string, err error) {
	status, err := one(form, "rs.status")
	if err != nil || status == "" {
		return "", err
	}
	name, ok := strings.CutPrefix(status, s.base.Status(""))
	if ok {
		_, token, ok = strings.Cut(name, ".")
	}
	if !ok || token == "" {
		return "", resourcesync.Invalid("rs.status=%.40q is not the URL of a subscription's status: the callback was told the URL when it was asked to confirm", status)
	}
	return token, nil
}

// parseLease reads hub.lease_seconds and returns the lease that is granted.
func (s *Server) parseLease(form url.Values) (time.Duration, error) {
	text, err := one(form, "hub.lease_seconds")
	if err != nil {
		return 0, err
	}
	if text == "" {
		return s.opts.LeaseDefault, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return s.opts.LeaseMax, nil
	}
	if err != nil || n == 0 {
		return 0, resourcesync.Invalid("hub.lease_seconds=%.40q: it is a number of seconds, at least 1", text)
	}
	return min(max(time.Duration(min(n, uint64(s.opts.LeaseMax/time.Second)))*time.Second, s.opts.LeaseMin), s.opts.LeaseMax), nil
}

// Bounds of rs.every.
const (
	everyAtLeast = time.Second
	everyAtMost  = 24 * time.Hour
)

// parseEvery reads rs.every.
func parseEvery(form url.Values) (time.Duration, error) {
	text, err := one(form, "rs.every")
	if err != nil || text == "" {
		return 0, err
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < everyAtLeast || every > everyAtMost {
		return 0, resourcesync.Invalid("rs.every=%.40q: it is a duration from %v to %v, such as 15m", text, everyAtLeast, everyAtMost)
	}
	return every, nil
}

// parseFilter reads rs.prefix, rs.change, rs.type and rs.collection.
func parseFilter(form url.Values) (feed.Filter, error) {
	q := url.Values{}
	for _, name := range []string{"prefix", "change", "type", "collection"} {
		if v, ok := form["rs."+name]; ok {
			q[name] = v
		}
	}
	f, err := feed.ParseFilter(q)
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		err = resourcesync.Invalid("rs.%s", e.Rule) // every Rule begins with the name of the parameter
	}
	return f, err
}
