package server

import (
	"fmt"
	"os"
	"strings"
)

// A Location is where a store is kept: in a directory, or in a Redis.
type Location struct {
	Name   string // of the directory, or the URL of the Redis
	Prefix string // of the keys in Redis
}

// InRedis reports whether the store is in a Redis.
func (l Location) InRedis() bool { return strings.Contains(l.Name, "://") }

// String names the location without a secret.
func (l Location) String() string {
	if !l.InRedis() {
		return l.Name
	}
	scheme, rest, _ := strings.Cut(l.Name, "://")
	rest, _, _ = strings.Cut(rest, "?")
	return fmt.Sprintf("%s://%s (prefix %s)", scheme, rest[strings.LastIndexByte(rest, '@')+1:], l.Prefix)
}

// Same reports whether two locations are known to be the same.
func (l Location) Same(m Location) bool {
	if l.InRedis() || m.InRedis() {
		return l.String() == m.String()
	}
	a, aerr := os.Stat(l.Name)
	b, berr := os.Stat(m.Name)
	return aerr == nil && berr == nil && os.SameFile(a, b)
}

// Of returns a configuration that opens the store at the location, and is c otherwise.
func (l Location) Of(c Config) Config {
	c.Data, c.RedisURL, c.Prefix = "", "", l.Prefix
	if l.InRedis() {
		c.RedisURL = l.Name
	} else {
		c.Data = l.Name
	}
	return c
}
