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
	maxSecret      = 199      // bytes: section 5.1 asks for less than 200
	maxVerifyToken = 2048     // bytes, as of a callback, since both are in the URL of the verification
	publishing     = "publish"
)

// IsForm reports whether a request carries a form, as all requests of WebSub do
// (section 5.1). A Content-Type with a malformed parameter still counts.
func IsForm(h http.Header) bool {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return t == formType && (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter))
}

// A form is the parameters of a request. Its methods read one of them each. err is what
// is wrong with the first that cannot be read; what they return then does not matter.
type form struct {
	url.Values
	err error
}

// fail notes what is wrong, unless something was wrong before.
func (f *form) fail(err error) { f.err = cmp.Or(f.err, err) }

// refuse is fail with an error that names the rule.
func (f *form) refuse(format string, args ...any) { f.fail(resourcesync.Invalidf(format, args...)) }

// readForm reads the parameters in the body of a request. Parameters in its URL
// do not count.
func readForm(w http.ResponseWriter, r *http.Request) (*form, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm))
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("the form exceeds %d bytes", e.Limit))
	}
	if err != nil {
		return nil, problem.BodyError(err)
	}
	all, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, resourcesync.Invalidf("invalid form: %v", err)
	}
	for name, values := range all {
		for _, v := range values {
			if !utf8.ValidString(name) || !utf8.ValidString(v) {
				return nil, resourcesync.Invalidf("%.40q: want valid UTF-8", name)
			}
		}
	}
	return &form{Values: all}, nil
}

// one returns the only value of a parameter, or "" when it is missing.
func (f *form) one(name string) string {
	if n := len(f.Values[name]); n > 1 {
		f.refuse("%s: got %d values, want one", name, n)
		return ""
	}
	return f.Get(name)
}

// mode reads hub.mode. The draft of 2012 has no mode, and every request of it
// subscribes.
func (f *form) mode() string {
	switch mode := f.one("hub.mode"); {
	case f.err != nil, mode == string(subscription.Subscribe), mode == string(subscription.Unsubscribe), mode == publishing:
		return mode
	case mode == "" && f.Has("callbackURI"):
		return string(subscription.Subscribe)
	case mode == "":
		f.refuse("hub.mode is missing; want subscribe, unsubscribe or publish")
	default:
		f.refuse("hub.mode: got %.40q, want subscribe, unsubscribe or publish", mode)
	}
	return ""
}

// setOf returns the set of a topic, which is the value of a parameter, and the form of what is
// delivered: see subscription.Subscription.Form.
func (s *Server) setOf(name, topic string) (set, format string, err error) {
	if topic == "" {
		return "", "", resourcesync.Invalidf("%s is missing; want a topic such as %s", name, s.base.Topic("SET"))
	}
	if set, ok := s.base.ParseTopic(topic); ok {
		return set, "", nil
	}
	set, format, ok := s.base.ParseDocument(topic)
	if !ok || s.opts.Formats[format] == nil {
		return "", "", problem.New(http.StatusNotFound, "no-such-topic",
			fmt.Sprintf("%s: got %.200q, want a topic of this hub such as %s; GET %s lists the sets", name, topic, s.base.Topic("SET"), s.base.Sets()))
	}
	return set, format, nil
}

// callback reads hub.callback, or callbackURI of the draft of 2012. It returns the text
// exactly as it was given. check decides whether it is allowed.
func (f *form) callback(check func(name, target string) error) string {
	name := "hub.callback"
	if !f.Has(name) && f.Has("callbackURI") {
		name = "callbackURI"
	}
	callback := f.one(name)
	switch {
	case f.err != nil:
		return ""
	case callback == "":
		f.refuse("%s is missing; want the URL to POST changes to", name)
		return ""
	}
	if err := check("callback", callback); err != nil {
		f.fail(resourcesync.Wrap(name, err))
		return ""
	}
	return callback
}

// secret reads hub.secret (section 5.1).
func (f *form) secret() string {
	secret := f.one("hub.secret")
	if len(secret) > maxSecret {
		f.refuse("hub.secret: got %d bytes, want less than 200", len(secret))
	}
	return secret
}

// verifyToken reads hub.verify_token of PubSubHubbub 0.3 (section 6.1).
func (f *form) verifyToken() string {
	token := f.one("hub.verify_token")
	if len(token) > maxVerifyToken {
		f.refuse("hub.verify_token: got %d bytes, want at most %d", len(token), maxVerifyToken)
	}
	return token
}

// token reads rs.status, the URL of the subscription's status, and returns the token in
// it: whoever made the subscription knows it.
func (f *form) token(base feed.Base) string {
	status := f.one("rs.status")
	name, ok := strings.CutPrefix(status, base.Status(""))
	_, token, _ := strings.Cut(name, ".")
	if status != "" && (!ok || token == "") {
		f.refuse("rs.status: got %.40q, want the URL of a subscription's status from its verification", status)
	}
	return token
}

// lease reads hub.lease_seconds and returns the lease that is granted. Zero asks for the longest
// lease, as at other hubs: it once meant that a subscription does not end.
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
		f.refuse("hub.lease_seconds: got %.40q, want a number of seconds, or 0 for the longest lease", text)
	}
	return min(max(time.Duration(min(n, uint64(o.LeaseMax/time.Second)))*time.Second, o.LeaseMin), o.LeaseMax)
}

// shownTerms are the terms of a subscription as callbacks, subscribers and operators see them.
type shownTerms struct {
	Prefix string   `json:"rs.prefix,omitempty"`
	Change []string `json:"rs.change,omitempty"`
	Type   []string `json:"rs.type,omitempty"`
	Within string   `json:"rs.collection,omitempty"`
	Every  string   `json:"rs.every,omitempty"`
	Signed bool     `json:"signed"` // it has a secret
}

// showTerms returns terms as they are shown.
func showTerms(t *subscription.Terms) shownTerms {
	filter := t.Filter.Values()
	v := shownTerms{Prefix: filter.Get("prefix"), Change: filter["change"], Type: filter["type"], Within: filter.Get("collection"), Signed: t.Secret != ""}
	if t.Every > 0 {
		v.Every = t.Every.String()
	}
	return v
}

// params returns the parameters that choose these terms, except the secret.
func (v shownTerms) params() []param {
	return slices.DeleteFunc([]param{
		{"rs.prefix", v.Prefix}, {"rs.change", strings.Join(v.Change, ",")}, {"rs.type", strings.Join(v.Type, ",")}, {"rs.collection", v.Within},
		{"rs.every", v.Every},
	}, func(p param) bool { return p.value == "" })
}

// terms reads the parameters that choose the terms of a subscription.
func (f *form) terms() subscription.Terms {
	return subscription.Terms{Secret: f.secret(), Filter: f.filter(), Every: f.every()}
}

// Bounds of rs.every.
const (
	everyAtLeast = time.Second
	everyAtMost  = 24 * time.Hour
)

// every reads rs.every.
func (f *form) every() time.Duration {
	text := f.one("rs.every")
	if text == "" {
		return 0
	}
	every, err := time.ParseDuration(text)
	if err != nil || every < everyAtLeast || every > everyAtMost {
		f.refuse("rs.every: got %.40q, want a duration from %v to %v, such as 15m", text, everyAtLeast, everyAtMost)
	}
	return every
}

// filter reads feed.FilterParameters, which begin with "rs." here.
func (f *form) filter() feed.Filter {
	q := url.Values{}
	for _, name := range feed.FilterParameters {
		if v, ok := f.Values["rs."+name]; ok {
			q[name] = v
		}
	}
	filter, err := feed.ParseFilter(q)
	if e, ok := errors.AsType[*resourcesync.Error](err); ok {
		err = resourcesync.Invalidf("rs.%s", e.Msg) // every Msg begins with the name of the parameter
	}
	f.fail(err)
	return filter
}
