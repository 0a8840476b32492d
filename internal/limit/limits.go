// Package limit limits the use of a hub per caller, per address and in total.
//
// A Limiter limits rates of requests, concurrent connections, and the sets that they follow. A Listener
// limits connections by the file descriptors of the process. A Budget limits memory for requests and
// responses. A Quota limits the size of sets, and Spools limit temporary files. The cost of a check does not
// depend on the number of callers.
//
// Package access identifies callers.
package limit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Kind is what a limit counts.
type Kind uint8

// The kinds. Connections and Follows are gauges, which limit concurrent use. The others are rates.
const (
	Requests    Kind = iota // requests of all kinds
	Publishes               // published documents, and batches of a published stream
	Changes                 // published changes
	Bytes                   // published bytes, after decompression
	Sets                    // sets created by a publish
	Connections             // open requests, including WebSockets, event streams and long polls
	Follows                 // sets that are followed on connections for several sets; each connection counts
	kinds
)

// Numbers of kinds that are rates, which come first, and gauges.
const (
	rates  = int(Connections)
	gauges = int(kinds) - rates
)

var names = [kinds]string{"requests", "publishes", "changes", "bytes", "sets", "connections", "follows"}

// String returns the name of the kind in the syntax of Parse.
func (k Kind) String() string { return names[k] }

// A Limit is a token bucket of Most tokens, which is refilled evenly within Within. The limit of a gauge has
// no Within.
type Limit struct {
	Most   int64 // 0 if not set, so that the default applies; None for no limit
	Within time.Duration
}

// None is the Most of an unlimited Limit.
const None = math.MaxInt64

// Limits has a Limit for each Kind.
type Limits [kinds]Limit

// maxMost is the maximum of Most, except None.
const maxMost = 1 << 40

var windows = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

var multiples = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// Parse parses limits such as "publishes:100/s,changes:1000000/m,bytes:1GiB/m,connections:50". A limit is
// KIND:NUMBER/TIME, where TIME is s, m, h or d; gauges have no TIME. A number of bytes may have the
// suffix KiB, MiB or GiB. The NUMBER none means no limit. Kinds that are not in text have the zero Limit,
// so an empty text is the zero Limits.
func Parse(text string) (l Limits, err error) {
	if text == "" {
		return l, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(one), ":")
		kind := kindOf(name)
		if !ok || kind == kinds {
			return Limits{}, fmt.Errorf("limit %.40q: want KIND:NUMBER/TIME with a KIND of %s", one, strings.Join(names[:], ", "))
		}
		if l[kind] != (Limit{}) {
			return Limits{}, fmt.Errorf("limit %.40q: got a second limit of %s, want one", one, name)
		}
		if l[kind], err = parseLimit(kind, value); err != nil {
			return Limits{}, fmt.Errorf("limit %.40q: %w", one, err)
		}
	}
	return l, nil
}

func kindOf(name string) Kind {
	for k := range kinds {
		if names[k] == name {
			return k
		}
	}
	return kinds
}

func parseLimit(kind Kind, value string) (l Limit, err error) {
	number, window, timed := strings.Cut(value, "/")
	if number == "none" && !timed {
		return Limit{Most: None}, nil
	}
	if gauge := int(kind) >= rates; timed == gauge {
		if timed {
			return l, fmt.Errorf("%s: got a TIME, want none for concurrent %s", kind, kind)
		}
		return l, fmt.Errorf("%s: got no TIME, want one such as %s:%s/s", kind, kind, value)
	}
	if timed {
		if l.Within = windows[window]; l.Within == 0 {
			return Limit{}, fmt.Errorf("got the TIME %.10q, want s, m, h or d", window)
		}
	}
	unit := int64(1)
	if kind == Bytes {
		for _, m := range multiples {
			if digits, ok := strings.CutSuffix(number, m.suffix); ok {
				number, unit = digits, m.bytes
				break
			}
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxMost/unit {
		return Limit{}, fmt.Errorf("got the NUMBER %.20q, want 1 to %d, or none", number, maxMost/unit)
	}
	l.Most = n * unit
	return l, nil
}

// UnmarshalText sets l to the result of Parse.
func (l *Limits) UnmarshalText(text []byte) (err error) {
	*l, err = Parse(string(text))
	return err
}

// Or returns l with the limits of others for the kinds that are not set in l.
func (l Limits) Or(others Limits) Limits {
	for k := range l {
		if l[k].Most == 0 {
			l[k] = others[k]
		}
	}
	return l
}
