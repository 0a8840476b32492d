package websub

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
)

// A param is one parameter of a query. A slice of them keeps their order.
type param struct{ name, value string }

// verification returns the parameters of a verification (section 5.3), without
// the challenge. What rshub adds has the values that count, so that the subscriber
// sees how its request was understood. status is the URL of the subscription's status.
func verification(of *outlet.Question, topic, status string) []param {
	r := of.Request
	q := withVerifyToken([]param{{"hub.mode", string(r.Mode)}, {"hub.topic", topic}}, r.VerifyToken)
	if r.Mode != subscription.Subscribe {
		return q
	}
	q = append(q,
		param{"hub.lease_seconds", strconv.FormatInt(int64(of.Lease/time.Second), 10)},
		param{"rs.since", of.Since.String()},
		param{"rs.renewed", strconv.FormatBool(of.Renewal)},
		param{"rs.status", status})
	return append(q, showTerms(&r.Terms).params()...)
}

// withVerifyToken appends the verify token of a request, unless it has none.
func withVerifyToken(q []param, token string) []param {
	if token == "" {
		return q
	}
	return append(q, param{"hub.verify_token", token})
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
