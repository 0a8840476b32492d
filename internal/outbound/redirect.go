package outbound

import (
	"fmt"
	"net/http"
	"net/url"
)

// RedirectOf returns the target of a redirect, or nil if the response is not a redirect. It returns
// an error if the target is missing or invalid. The user and password of the request are kept for
// the same host. A user and password in the target are removed if it is another host.
func RedirectOf(resp *http.Response) (*url.URL, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	to, err := resp.Location()
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fmt.Errorf("redirect (%d) without a valid Location", resp.StatusCode) // err may contain a secret
	}
	switch from := resp.Request.URL; {
	case hostOf(to) != hostOf(from):
		to.User = nil
	case to.User == nil && to.Scheme == from.Scheme:
		to.User = from.User
	}
	return to, nil
}
