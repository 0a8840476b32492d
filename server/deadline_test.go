package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A recorder counts the pieces of an answer, and the deadlines that were set
// before each.
type recorder struct {
	*httptest.ResponseRecorder
	deadlines int
	calls     [][2]int // size of a piece, and deadlines so far
}

func (r *recorder) SetWriteDeadline(time.Time) error { r.deadlines++; return nil }

func (r *recorder) Write(p []byte) (int, error) {
	r.calls = append(r.calls, [2]int{len(p), r.deadlines})
	return r.ResponseRecorder.Write(p)
}

// A large answer may take its time as a whole: each piece has a deadline.
func TestDeadlineOfEachPiece(t *testing.T) {
	body := strings.Repeat("0123456789", 20_000)
	r := &recorder{ResponseRecorder: httptest.NewRecorder()}
	withDeadlines(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		if n, err := io.WriteString(w, body); n != len(body) || err != nil {
			t.Errorf("Write() = %d, %v", n, err)
		}
		if n, err := w.Write(nil); n != 0 || err != nil {
			t.Errorf("Write(nil) = %d, %v", n, err)
		}
	}), time.Second).ServeHTTP(r, httptest.NewRequest("GET", "/", nil))
	if r.Body.String() != body || len(r.calls) != 5 {
		t.Errorf("%d bytes came in %d pieces", r.Body.Len(), len(r.calls))
	}
	for i, call := range r.calls {
		if call[0] > maxPiece || call[1] != i+2 { // one was for the header
			t.Errorf("piece %d has %d bytes after %d deadlines", i+1, call[0], call[1])
		}
	}
}
