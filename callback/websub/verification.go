package websub

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/resourcesync"
)

// A param is one parameter of a query. A slice of them keeps their order.
type param struct{ name, value string }

// verification returns the parameters of a verification (section 5.3), without
// the challenge.
func verification(of *outlet.Question, topic string) []param {
	r := of.Request
	q := []param{{"hub.mode", string(r.Mode)}, {"hub.topic", topic}}
	if r.Mode == subscription.Subscribe {
		q = append(q, param{"hub.lease_seconds", strconv.FormatInt(int64(of.Lease/time.Second), 10)})
	}
	return q
}

// extras returns the parameters that rshub adds to a verification. They have
// the values that count, so that the subscriber sees how its request was
// understood.
func extras(of *outlet.Question, status string) []param {
	r := of.Request
	q := []param{
		{"rs.since", of.Since.String()},
		{"rs.renewed", strconv.FormatBool(of.Renewal)},
		{"rs.status", status},
	}
	if r.Filter.Prefix != "" {
		q = append(q, param{"rs.prefix", r.Filter.Prefix})
	}
	if len(r.Filter.Changes) > 0 {
		q = append(q, param{"rs.change", join(r.Filter.Changes)})
	}
	if len(r.Filter.Types) > 0 {
		q = append(q, param{"rs.type", strings.Join(r.Filter.Types, ",")})
	}
	if r.Filter.Collection != "" {
		q = append(q, param{"rs.collection", r.Filter.Collection})
	}
	if r.Every > 0 {
		q = append(q, param{"rs.every", r.Every.String()})
	}
	return q
}

// join returns the changes, separated by commas.
func join(changes []resourcesync.ChangeType) string {
	var b strings.Builder
	for i, c := range changes {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(c))
	}
	return b.String()
}

// addQuery appends parameters to a callback. The callback's own query stays
// byte for byte as it is.
func addQuery(callback string, q []param) string {
	var b strings.Builder
	b.WriteString(callback)
	sep := byte('?')
	if _, own, ok := strings.Cut(callback, "?"); ok {
		sep = '&'
		if own == "" || strings.HasSuffix(own, "&") {
			sep = 0
		}
	}
	for _, p := range q {
		if sep != 0 {
			b.WriteByte(sep)
		}
		sep = '&'
		b.WriteString(url.QueryEscape(p.name))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(p.value))
	}
	return b.String()
}
