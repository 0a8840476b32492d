package feed

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/rshub/rshub/resourcesync"
)

func TestParseLimit(t *testing.T) {
	for query, want := range map[string]int{"": 7, "limit=": 7, "other=3": 7, "limit=1": 1, "limit=99": 99, "limit=3&limit=x": 3} {
		q, _ := url.ParseQuery(query)
		if n, err := ParseLimit(q, 7, 99); n != want || err != nil {
			t.Errorf("%s is %d, %v; want %d", query, n, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "100", "x", "1.5", " 1", "99999999999999999999999"} {
		n, err := ParseLimit(url.Values{"limit": {text}}, 7, 99)
		if want := "a limit is a number from 1 to 99"; n != 0 || !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %d, %v", text, n, err)
		}
	}
}
