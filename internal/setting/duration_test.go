package setting

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2h30m": 150 * time.Minute, "0": 0, "-1s": -time.Second, "90d": 90 * day, "1d12h": 36 * time.Hour, "0d": 0, "100000d": 100_000 * day,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%s) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "5", "-1d", "1d-1h", "1d1d", "1.5d", "100001d", "9223372036854775807d", "1 d", "90days", "1h1d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want error", text, got)
		}
	}
}
