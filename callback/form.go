package callback

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

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

const (
	formType   = "application/x-www-form-urlencoded"
	maxForm    = 64 << 10 // bytes
	maxSecret  = 199      // bytes: section 5.1 says less than 200
	publishing = "publish"
)

// IsForm reports whether a request carries a form, as all of WebSub's do
// (section 5.1). A parameter of the type that cannot be read does not matter.
func IsForm(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return t == formType && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// readForm reads the parameters in a request's body. Those in its URL do not
// count.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, changelog.NewStatus(http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("the form has more than %d bytes", e.Limit))
	}
	if err != nil {
		return nil, fmt.Errorf("read the form: %w", err)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, changelog.Invalid("the form cannot be read: %v", err)
	}
	for name, values := range form {
		for _, v := range values {
			if !utf8.ValidString(name) || !utf8.ValidString(v) {
				return nil, changelog.Invalid("%.40q: a form is UTF-8", name)
			}
		}
	}
	return form, nil
}

// one returns the only value of a parameter, "" when it is not there.
func one(form url.Values, name string) (string, error) {
	switch v := form[name]; len(v) {
	case 0:
		return "", nil
	case 1:
		return v[0], nil
	default:
		return "", changelog.Invalid("%s is there %d times, and can be there once", name, len(v))
	}
}

// parseMode reads hub.mode. The draft of 2012 had no mode: it only subscribed.
func parseMode(form url.Values) (string, error) {
	mode, err := one(form, "hub.mode")
	switch {
	case err != nil:
		return "", err
	case mode == string(Subscribe), mode == string(Unsubscribe), mode == publishing:
		return mode, nil
	case mode == "" && form.Has("callbackURI"):
		return string(Subscribe), nil
	}
	if mode == "" {
		return "", changelog.Invalid("hub.mode is missing: it is subscribe, unsubscribe or publish")
	}
	return "", changelog.Invalid("hub.mode=%.40q: it is subscribe, unsubscribe or publish", mode)
}

// parseTopic finds the set whose topic a parameter names.
func (s *Server) parseTopic(form url.Values, name string) (set string, err error) {
	topic, err := one(form, name)
	if err != nil {
		return "", err
	}
	if topic == "" {
		return "", changelog.Invalid("%s is missing: it is a topic, %s/sets/SET/changes", name, s.base)
	}
	set, ok := strings.CutPrefix(topic, s.base+"/sets/")
	if ok {
		set, ok = strings.CutSuffix(set, "/changes")
	}
	if !ok || changelog.CheckSet(set) != nil {
		return "", changelog.NewStatus(http.StatusNotFound, "no-such-topic",
			fmt.Sprintf("%s=%.200q is no topic of this hub: a topic is %s/sets/SET/changes, and GET %[3]s/sets lists the sets", name, topic, s.base))
	}
	return set, nil
}

// parseCallback reads hub.callback, or what the draft of 2012 called it. What it
// returns is exactly what was given.
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
		return "", changelog.Invalid("%s is missing: it is the URL that changes are POSTed to", name)
	}
	if err := s.engine.CheckCallback(callback); err != nil {
		return "", named(name, err)
	}
	return callback, nil
}

// named says which parameter an error is about.
func named(name string, err error) error {
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		return changelog.Invalid("%s: %s", name, e.Rule)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// parseSecret reads hub.secret (section 5.1).
func parseSecret(form url.Values) (string, error) {
	secret, err := one(form, "hub.secret")
	if err == nil && len(secret) > maxSecret {
		err = changelog.Invalid("hub.secret has %d bytes: it must be less than 200", len(secret))
	}
	return secret, err
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
		return 0, changelog.Invalid("hub.lease_seconds=%.40q: it is a number of seconds, at least 1", text)
	}
	return min(max(time.Duration(min(n, uint64(s.opts.LeaseMax/time.Second)))*time.Second, s.opts.LeaseMin), s.opts.LeaseMax), nil
}

// parseFilter reads rs.prefix, rs.change and rs.type.
func parseFilter(form url.Values) (changelog.Filter, error) {
	q := url.Values{}
	for _, name := range []string{"prefix", "change", "type"} {
		if v, ok := form["rs."+name]; ok {
			q[name] = v
		}
	}
	f, err := changelog.ParseFilter(q)
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		err = changelog.Invalid("rs.%s", e.Rule) // each rule begins with the parameter's name
	}
	return f, err
}
