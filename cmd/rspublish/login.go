package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rshub/rshub/internal/idn"
	"github.com/rshub/rshub/internal/outbound"
)

// A loginTransport sends a user and a password with each request to one server, and to no other
// server.
type loginTransport struct {
	http.RoundTripper
	origin         string
	user, password string
}

func (l *loginTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if outbound.Origin(r.URL) == l.origin && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.SetBasicAuth(l.user, l.password)
	}
	return l.RoundTripper.RoundTrip(r)
}

// extractLogin returns the URL of a source without the user and the password in it. It keeps them
// only for requests, so that nothing prints, stores or publishes them. fromEnv is
// NAME:PASSWORD from the environment, which is safer: every user of the machine can read
// command lines.
func (c *config) extractLogin(source, fromEnv string) (string, error) {
	source, err := idn.URL(source)
	if err != nil {
		return "", fmt.Errorf("the URL of the source cannot be read: %w", err)
	}
	u, err := url.Parse(source)
	if err != nil || u.Host == "" {
		return "", errors.New("the URL of the source cannot be read") // without the text, which may hold a password
	}
	l := &loginTransport{RoundTripper: http.DefaultTransport, origin: outbound.Origin(u)}
	switch password, _ := u.User.Password(); {
	case u.User != nil:
		l.user, l.password = u.User.Username(), password
		u.User = nil
	case fromEnv != "":
		l.user, l.password, _ = strings.Cut(fromEnv, ":")
	default:
		return source, nil
	}
	c.login = l
	return u.String(), nil
}

func (c *config) sourceClient() *http.Client {
	if c.login == nil {
		return &http.Client{Transport: http.DefaultTransport}
	}
	return &http.Client{Transport: c.login}
}
