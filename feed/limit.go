package feed

import (
	"net/url"
	"strconv"

	"github.com/rshub/rshub/resourcesync"
)

// ParseLimit reads the parameter limit, which says how many at most an answer should have:
// from 1 to most. If it is not there, or empty, that is usual. An error is a
// *resourcesync.Error with ErrInvalid.
func ParseLimit(q url.Values, usual, most int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, resourcesync.Invalid("limit=%.20s: a limit is a number from 1 to %d", text, most)
	}
	return n, nil
}
