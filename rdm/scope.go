package rdm

import (
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// parseScope reads a scope of the query language gatherer: all, or since and a date. since is
// in microseconds since 1970; has is false for all. RDs of the very second are in the scope.
func parseScope(text string) (since int64, has bool, err error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch {
	case strings.EqualFold(word, "all") && rest == "":
		return 0, false, nil
	case strings.EqualFold(word, "since"):
		at, err := parseDate(strings.TrimSpace(rest))
		return at.UnixMicro(), true, err
	}
	return 0, false, resourcesync.Invalid("the scope is %q; the query language gatherer knows all, and since DATE", resourcesync.Shorten(text))
}

// parseDate reads a date of HTTP, in any of its three forms, or a datetime as ResourceSync
// has it.
func parseDate(text string) (time.Time, error) {
	if at, err := http.ParseTime(text); err == nil {
		return at.UTC(), nil
	}
	at, err := resourcesync.ParseTime(text)
	if err != nil {
		return at, resourcesync.Invalid("%q is no date: it is like Sun, 06 Nov 1994 08:49:37 GMT", resourcesync.Shorten(text))
	}
	return at, nil
}

// date writes a date of HTTP.
func date(at time.Time) string { return at.UTC().Format(http.TimeFormat) }
