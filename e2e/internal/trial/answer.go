package trial

import (
	"io"
	"net/http"
	"strings"
)

// A Response is an HTTP response with its body.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Exchange makes a request with headers of the form "Name: value", and reads the response.
func Exchange(client *http.Client, method, url string, body io.Reader, headers ...string) (*Response, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	req.Host = req.Header.Get("Host") // empty means the host of the URL
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &Response{resp.StatusCode, resp.Header, b}, err
}

// Tail returns the end of a long text.
func Tail(s string) string {
	const limit = 6000
	if len(s) > limit {
		s = "…" + s[len(s)-limit:]
	}
	return s
}
