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

// A loginTransport adds a user and password to requests to one origin. It never sends them to
// other origins.
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

// extractLogin returns the URL of a source without its user and password. It stores them only in
// c.login, so that they are not printed, saved or published. fromEnv is NAME:PASSWORD from the
// environment, and is used if the URL has no user. The environment is safer, because every user
// of the machine can read command lines.
func (c *config) extractLogin(source, fromEnv string) (string, error) {
	source, err := idn.URL(source)
	if err != nil {
		return "", fmt.Errorf("parse URL of the source: %w", err)
	}
	u, err := url.Parse(source)
	if err != nil || u.Host == "" {
		return "", errors.New("parse URL of the source: invalid URL") // without err, which may have a password
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

// sourceClient returns a client of the source that sends the login, if any.
func (c *config) sourceClient() *http.Client {
	if c.login == nil {
		return &http.Client{Transport: http.DefaultTransport}
	}
	return &http.Client{Transport: c.login}
}
