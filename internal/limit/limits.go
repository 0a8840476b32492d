// Package limit bounds how much each caller, each address and all of them together may use of a
// hub.
//
// A Limiter bounds requests in a time, and connections at once. A Listener bounds connections by
// the file descriptors of the process. A Budget bounds memory for requests and answers. A Quota
// bounds what a set stores, and Spools bound temporary files. The cost of a check does not depend
// on the number of callers.
//
// Who a caller is, package access decides.
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

// The kinds. All but Connections count what is used in a time. Connections counts what is
// open at one moment.
const (
	Requests    Kind = iota // requests of every sort
	Publishes               // published documents, and batches of a published stream
	Changes                 // published changes
	Bytes                   // published bytes, after decompression
	Sets                    // sets made by a publish
	Connections             // open requests; a WebSocket, an event stream and a long poll count as one each
	kinds
)

// rates is the number of kinds that count use in a time. These kinds come
// first.
const rates = int(Connections)

var names = [kinds]string{"requests", "publishes", "changes", "bytes", "sets", "connections"}

// String returns the name of the kind, as Parse reads it.
func (k Kind) String() string { return names[k] }

// A Limit is how much may be used. A user that was idle long enough may use Most at
// once. After that, use is regained evenly, all of Most within Within (a token bucket).
// Connections have no Within.
type Limit struct {
	Most   int64 // 0: not set, so another limit such as the default counts; None: no limit
	Within time.Duration
}

// None is the Most of a Limit that bounds nothing.
const None = math.MaxInt64

// Limits are a Limit for each Kind.
type Limits [kinds]Limit

// maxMost bounds Most, except None.
const maxMost = 1 << 40

var windows = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

var multiples = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// Parse reads limits such as
// "publishes:100/s,changes:1000000/m,bytes:1GiB/m,connections:50". A limit is
// KIND:NUMBER/TIME, where TIME is s, m, h or d; connections have no TIME. A number of
// bytes may end in KiB, MiB or GiB. The NUMBER none means no limit. Kinds that the text
// does not name have the zero Limit. An empty text gives the zero Limits.
func Parse(text string) (l Limits, err error) {
	if text == "" {
		return l, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(one), ":")
		kind := kindOf(name)
		if !ok || kind == kinds {
			return Limits{}, fmt.Errorf("limit %.40q: a limit is KIND:NUMBER/TIME, and KIND is one of %s", one, strings.Join(names[:], ", "))
		}
		if l[kind] != (Limit{}) {
			return Limits{}, fmt.Errorf("limit %.40q: %s has a limit already", one, name)
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
	if timed == (kind == Connections) {
		if timed {
			return l, fmt.Errorf("connections have no TIME, because the limit is for connections at one moment")
		}
		return l, fmt.Errorf("%s need a TIME: write for instance %s:%s/s", kind, kind, value)
	}
	if timed {
		if l.Within = windows[window]; l.Within == 0 {
			return Limit{}, fmt.Errorf("the time %.10q is not s, m, h or d", window)
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
		return Limit{}, fmt.Errorf("the number %.20q is not 1 to %d, or none", number, maxMost/unit)
	}
	l.Most = n * unit
	return l, nil
}

// UnmarshalText is Parse.
func (l *Limits) UnmarshalText(text []byte) (err error) {
	*l, err = Parse(string(text))
	return err
}

// Or returns l, completed with the limits of others for the kinds that l does
// not set.
func (l Limits) Or(others Limits) Limits {
	for k := range l {
		if l[k].Most == 0 {
			l[k] = others[k]
		}
	}
	return l
}
