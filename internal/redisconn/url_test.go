package redisconn

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, test := range []struct {
		url    string
		addrs  []string
		db     int
		tls    bool
		master string
		user   string
	}{
		{"redis://localhost", []string{"localhost:6379"}, 0, false, "", ""},
		{"redis://localhost:1234/5", []string{"localhost:1234"}, 5, false, "", ""},
		{"redis://user:p%40ss@host/", []string{"host:6379"}, 0, false, "", "user"},
		{"redis://:p@ss@host/", []string{"host:6379"}, 0, false, "", ""},
		{"rediss://a:1,b,[::1]:3,[::2]", []string{"a:1", "b:6379", "[::1]:3", "[::2]:6379"}, 0, true, "", ""},
		{"unix:///run/redis.sock?db=3", []string{"/run/redis.sock"}, 3, false, "", ""},
		{"unix://user:pass@/run/redis.sock", []string{"/run/redis.sock"}, 0, false, "", "user"},
		{"redis-sentinel://a,b:1/2?master=m", []string{"a:26379", "b:1"}, 2, false, "m", ""},
		{"redis-sentinel://a, b:1 /2?master=m", []string{"a:26379", "b:1"}, 2, false, "m", ""},
		{"rediss-sentinel://a?master_name=m&client_name=hub", []string{"a:26379"}, 0, true, "m", ""},
	} {
		o, err := parseURL(test.url)
		if err != nil {
			t.Errorf("parseURL(%s): %v", test.url, err)
			continue
		}
		if !reflect.DeepEqual(o.Addrs, test.addrs) || o.DB != test.db || (o.TLSConfig != nil) != test.tls || o.MasterName != test.master || o.Username != test.user {
			t.Errorf("parseURL(%s) = %+v", test.url, o)
		}
	}
	for _, bad := range []string{
		"", "localhost:6379", "http://secret@x", "redis://", "redis://a:secret", "redis://a:1:2", "redis://a/x", "redis://a,b/1", "redis://a,",
		"redis://u:se#cret@a", "redis://u:se%cret@a", "redis://u:se/cret@a", "redis://:se/cret@a:1", "redis://:1/cret@a:1", "redis://u:se?cret@a", "redis://u:1?cret=x@a", "redis://u:p@a/cret@a", "redis://u:p@se?cret=x@a", "redis://a?db=x", "redis://a?secret=1", "redis://a?master=m", "redis-sentinel://a",
		"redis://a?ca_file=x", "rediss://a?ca_file=/nowhere", "unix://host/path", "unix://", "redis://::1", "redis://a?cluster=x",
	} {
		if _, err := parseURL(bad); err == nil {
			t.Errorf("parseURL(%q) succeeded", bad)
		} else if strings.Contains(err.Error(), "cret@") || strings.Contains(err.Error(), "se\"") || strings.Contains(err.Error(), `"cret`) || strings.Contains(err.Error(), "/cret") {
			t.Errorf("parseURL(%q): error contains a secret: %v", bad, err)
		}
	}
	for url, want := range map[string]string{
		"redis://user:p@ss@a:1,b/2?sentinel_password=secret": "redis://a:1,b/2", "redis://a": "redis://a", "unix://:secret@/run/redis?db=3": "unix:///run/redis",
		"redis://u:se/cret@a": "redis://", "redis://u:1?secret@a": "redis://", "redis://u:se#cret@a": "redis://", "redis://u:p@se?cret@a": "redis://",
	} {
		if got := WithoutSecret(url); got != want {
			t.Errorf("WithoutSecret(%s) = %s, want %s", url, got, want)
		}
	}
}
