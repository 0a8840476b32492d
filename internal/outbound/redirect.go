package outbound

import (
	"fmt"
	"net/http"
	"net/url"
)

// RedirectOf returns where an answer leads; nil: it is no redirect. The error says that it leads
// nowhere. The user and password of the request go along to the same host. Those that an
// answer names for another host do not.
func RedirectOf(resp *http.Response) (*url.URL, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	to, err := resp.Location()
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fmt.Errorf("the answer is a redirect (%d) that leads nowhere", resp.StatusCode) // err may contain a secret
	}
	switch from := resp.Request.URL; {
	case hostOf(to) != hostOf(from):
		to.User = nil
	case to.User == nil && to.Scheme == from.Scheme:
		to.User = from.User
	}
	return to, nil
}
