package outbound

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRedirectOf(t *testing.T) {
	for _, test := range []struct {
		status         int
		location, want string
	}{
		{200, "/b", ""},
		{304, "/b", ""},
		{301, "/b", "http://u:p@a.example/b"},
		{302, "http://A.example:80/b", "http://u:p@A.example:80/b"},
		{303, "http://x@a.example/b", "http://x@a.example/b"},
		{307, "https://a.example/b", "https://a.example/b"},
		{308, "http://x:y@other.example/b", "http://other.example/b"},
		{302, "", "error"},
		{302, "ftp://a.example/b", "error"},
		{302, "http:///b", "error"},
		{302, "http://a.example/%zz", "error"},
	} {
		resp := &http.Response{StatusCode: test.status, Header: http.Header{}, Request: httptest.NewRequest("GET", "http://u:p@a.example/a", nil)}
		resp.Header.Set("Location", test.location)
		got := ""
		if to, err := RedirectOf(resp); err != nil {
			got = "error"
		} else if to != nil {
			got = to.String()
		}
		if got != test.want {
			t.Errorf("RedirectOf(%d to %q) = %q, want %q", test.status, test.location, got, test.want)
		}
	}
}
