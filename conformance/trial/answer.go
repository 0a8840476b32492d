package trial

import (
	"io"
	"net/http"
	"time"
)

// An Answer is a whole response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Plain keeps no connections: a hub that is killed would else leave some that
// look alive. It does not ask to close them either: net/http cuts such a
// connection off so soon that a client which still sends sees no answer.
var Plain = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}, Timeout: 2 * time.Minute}

// ExchangeBy makes a request and reads the whole answer.
func ExchangeBy(client *http.Client, req *http.Request) (*Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return &Answer{resp.StatusCode, resp.Header, b}, err
}

// Tail is the end of a long text.
func Tail(s string) string {
	const most = 6000
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}
