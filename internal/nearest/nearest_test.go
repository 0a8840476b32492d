package nearest

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	words := []string{"loc", "change", "datetime", "lastmod", "RSHUB_LISTEN", "RSHUB_REDIS_URL"}
	for word, want := range map[string]string{
		"lco": "loc", "Loc": "loc", "locs": "loc", "oc": "loc", "changes": "change", "chnage": "change", "datetme": "datetime", "last_mod": "lastmod",
		"rshub_listenn": "RSHUB_LISTEN", "RSHUB_REDDIS_URL": "RSHUB_REDIS_URL", "RSHUB_REDISURL": "RSHUB_REDIS_URL",
		"": "", "xyz": "", "title": "", "RSHUB_TOKENS_FILE": "", strings.Repeat("loc", 50): "",
	} {
		if got := Of(word, words); got != want {
			t.Errorf("Of(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "bca", 2}, {"kitten", "sitting", 3}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
